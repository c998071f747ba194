// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// completionTimeout limits the duration of requests for shell completion.
const completionTimeout = 3 * time.Second

// completeNamespace completes the first argument with the names of namespaces. It returns no names
// if namespaces cannot be listed.
func (s *session) completeNamespace(
	command *cobra.Command, args []string, _ string,
) ([]string, cobra.ShellCompDirective) {
	return s.completeNamespaces(command, args, func(*corev1.Namespace) bool { return true })
}

// completeManyNamespaces is like completeNamespace, for all arguments.
func (s *session) completeManyNamespaces(
	command *cobra.Command, args []string, text string,
) ([]string, cobra.ShellCompDirective) {
	names, directive := s.completeNamespace(command, nil, text)
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), directive
}

// completeTerminating is like completeNamespace, but only for namespaces that are being deleted.
func (s *session) completeTerminating(
	command *cobra.Command, args []string, _ string,
) ([]string, cobra.ShellCompDirective) {
	return s.completeNamespaces(command, args, func(namespace *corev1.Namespace) bool {
		return namespace.DeletionTimestamp != nil
	})
}

func (s *session) completeNamespaces(
	command *cobra.Command, args []string, isProposed func(*corev1.Namespace) bool,
) ([]string, cobra.ShellCompDirective) {
	return completeNames(command, args, func(ctx context.Context) []string {
		namespaces, err := s.listNamespaces(ctx, metav1.ListOptions{})
		if err != nil {
			return nil
		}
		var names []string
		for i := range namespaces.Items {
			if isProposed(&namespaces.Items[i]) {
				names = append(names, namespaces.Items[i].Name)
			}
		}
		return names
	})
}

// completeNames completes the first argument with the names that a function returns within completionTimeout.
func completeNames(
	command *cobra.Command, args []string, list func(context.Context) []string,
) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
	defer cancel()
	return slices.Sorted(slices.Values(list(ctx))), cobra.ShellCompDirectiveNoFileComp
}

func (s *session) completeContexts(
	*cobra.Command, []string, string,
) ([]string, cobra.ShellCompDirective) {
	config, err := s.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// dryRun is the value of the flag --dry-run, as in kubectl.
type dryRun string

const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

var dryRunStrategies = []string{dryRunNone, dryRunClient, dryRunServer}

func (d *dryRun) addFlag(command *cobra.Command) {
	command.Flags().StringVar((*string)(d), "dry-run", dryRunNone,
		`Must be "none", "server", or "client". If client, only print the object without sending it. `+
			"If server, submit the request without persisting the resource.")
	_ = command.RegisterFlagCompletionFunc("dry-run",
		cobra.FixedCompletions(dryRunStrategies, cobra.ShellCompDirectiveNoFileComp))
}

func (d dryRun) validate() error {
	if !slices.Contains(dryRunStrategies, string(d)) {
		return fmt.Errorf(messageDryRunValue, d, strings.Join(dryRunStrategies, ", "))
	}
	return nil
}

// requestOption returns the dryRun field of request options.
func (d dryRun) requestOption() []string {
	if d == dryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// suffix returns what kubectl appends to the result of a dry run.
func (d dryRun) suffix() string {
	switch d {
	case dryRunClient:
		return " (dry run)"
	case dryRunServer:
		return " (server dry run)"
	}
	return ""
}
