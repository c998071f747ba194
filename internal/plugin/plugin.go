// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
)

const (
	// commandName is how kubectl finds the plugin, displayName how people call it.
	commandName = "kubectl-nslifecycle"
	displayName = "kubectl nslifecycle"
	// completionName is what kubectl runs to complete the arguments of the plugin. The
	// plugin serves it when it is called by that name, so that a link is all it takes.
	completionName = "kubectl_complete-nslifecycle"
)

// Main runs the plugin with the arguments of a process, the name of the command first, and
// returns its exit status.
func Main(args []string, streams genericiooptions.IOStreams) int {
	// With SIGTERM as with Ctrl-C: what a command has begun it can say how it was left.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	streams = escaping(streams)
	rest.SetDefaultWarningHandler(rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{Deduplicate: true}))

	root := newRoot(streams)
	root.SetArgs(args[1:])
	if isCompletion(args[0]) {
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, args[1:]...))
	}
	return report(streams.ErrOut, root.ExecuteContext(ctx))
}

func isCompletion(command string) bool {
	return strings.TrimSuffix(filepath.Base(command), ".exe") == completionName
}

// New returns the root command.
func New(streams genericiooptions.IOStreams) *cobra.Command { return newRoot(escaping(streams)) }

func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	session := newSession(streams)
	root := &cobra.Command{
		Use:         commandName,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: displayName},
		Short:       "The whole life of namespaces: create, watch, explain, delete and repair them",
		Long: "Look after namespaces for their whole life: create them and wait for their initializers,\n" +
			"see what they wait for, delete them and find out why they do not go.\n\n" +
			"All commands work on any cluster, with nslifecycle installed or without.\n\n" +
			"Exit status: 0 done or healthy, 1 error, 3 blocked, 130 interrupted.",
		// Errors are printed by report, and the usage is there for those who ask.
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			session.quietLogs()
		},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w; see `%s --help`", err, command.CommandPath())
	})
	session.addFlags(root)
	root.AddCommand(
		newBackupCommand(session),
		newCreateCommand(session),
		newDeleteCommand(session),
		newExplainCommand(session),
		newFinalizeCommand(session),
		newListCommand(session),
		newOrphansCommand(session),
		newUseCommand(session),
		newVersionCommand(session),
	)
	return root
}

// oneNamespace checks that a command is given exactly one name.
func oneNamespace(command *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("the name of a namespace is missing; see `%s --help`", command.CommandPath())
	case len(args) > 1:
		return fmt.Errorf("one namespace at a time: %s were given", strings.Join(args, ", "))
	case args[0] == "":
		return errors.New("the name of the namespace is empty")
	}
	return nil
}

// noArguments checks that a command is given none.
func noArguments(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("`%s` takes no arguments, but was given %s", command.CommandPath(), strings.Join(args, ", "))
	}
	return nil
}

// atMostOneNamespace checks that a command is given one name, or none where it takes that
// of the current context.
func atMostOneNamespace(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return oneNamespace(command, args)
}
