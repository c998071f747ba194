// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// Values of the flag --for, as in "kubectl wait".
const (
	forReady  = "condition=Ready"
	forDelete = "delete"
)

var waitTargets = []string{forReady, forDelete}

type waitOptions struct {
	*session
	target  string
	timeout time.Duration
}

func newWaitCommand(session *session) *cobra.Command {
	options := &waitOptions{session: session}
	command := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until a namespace is initialized or deleted",
		Long: `Wait until a namespace is initialized, as "create --wait", or deleted, as "delete".

Unlike "kubectl wait", the command requires only permission to get the namespace.

Exit status: 0 success, 3 waiting cannot help or the deletion is blocked at the timeout, 1 error.`,
		Example: `  # Wait until a namespace is initialized
  kubectl nslifecycle wait shop

  # Wait until a terminating namespace is deleted
  kubectl nslifecycle wait shop --for=delete`,
		Args:              oneNamespace,
		ValidArgsFunction: session.completeNamespace,
		RunE:              runWithContext(options.run),
	}
	flags := command.Flags()
	flags.StringVar(&options.target, "for", forReady,
		fmt.Sprintf("What to wait for. One of: (%s).", strings.Join(waitTargets, ", ")))
	_ = command.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(waitTargets, cobra.ShellCompDirectiveNoFileComp))
	flags.DurationVar(&options.timeout, "timeout", defaultCreateTimeout, helpTimeout)
	return command
}

func (o *waitOptions) run(ctx context.Context, args []string) error {
	name := args[0]
	if !slices.Contains(waitTargets, o.target) {
		return fmt.Errorf("invalid --for value %q; must be one of %s", o.target, strings.Join(waitTargets, ", "))
	}
	client, err := o.namespaces()
	if err != nil {
		return err
	}
	namespace, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && o.target == forDelete:
		return nil
	case err != nil:
		return err
	case o.target == forReady && namespace.DeletionTimestamp != nil:
		return fmt.Errorf("namespace %q is being deleted", name)
	case o.target == forReady:
		_, err = o.waitUntilInitialized(ctx, o.Out, client, namespace, o.timeout)
		return err
	case namespace.DeletionTimestamp == nil:
		return fmt.Errorf("namespace %q is not being deleted", name)
	}
	deletion := &deleteOptions{session: o.session, timeout: o.timeout, progressDeadline: diagnosis.DefaultProgressDeadline}
	return deletion.waitUntilDeleted(ctx, client, namespace)
}
