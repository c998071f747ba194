// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
)

const (
	// commandName is the program that kubectl runs, and displayName is the command that users type.
	commandName = "kubectl-nslifecycle"
	displayName = "kubectl nslifecycle"
	// completionName is the program that kubectl runs to complete the plugin's arguments. It is a
	// link to the plugin.
	completionName = "kubectl_complete-nslifecycle"
)

// Main runs the plugin with the arguments of a process, including the program name, and returns
// the exit status.
func Main(args []string, streams genericiooptions.IOStreams) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal terminates the process immediately.
	context.AfterFunc(ctx, stop)
	streams = printer.EscapeStreams(streams)
	rest.SetDefaultWarningHandler(rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{Deduplicate: true}))

	root := newRoot(streams)
	root.SetArgs(args[1:])
	if strings.TrimSuffix(filepath.Base(args[0]), ".exe") == completionName {
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, args[1:]...))
	}
	return report(streams.ErrOut, root.ExecuteContext(ctx))
}

// New returns the root command.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	return newRoot(printer.EscapeStreams(streams))
}

func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	session := newSession(streams)
	root := &cobra.Command{
		Use:         commandName,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: displayName},
		Short:       shortRoot,
		Long:        longRoot,
		// report prints errors.
		SilenceErrors:    true,
		SilenceUsage:     true,
		PersistentPreRun: func(*cobra.Command, []string) { session.configureLogs() },
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w; "+msgSeeHelp, err, command.CommandPath())
	})
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages",
		fmt.Sprintf(".FlagUsagesWrapped %d", printer.MaxTextWidth)))
	session.addFlags(root)
	root.AddCommand(
		newBackupCommand(session),
		newCreateCommand(session),
		newDeleteCommand(session),
		newExplainCommand(session),
		newFinalizeCommand(session),
		newListCommand(session),
		newOrphansCommand(session),
		newTemplateCommand(session),
		newUseCommand(session),
		newVersionCommand(session),
	)
	return root
}

// oneNamespace requires exactly one argument.
func oneNamespace(command *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf(msgNameRequired, command.CommandPath())
	case len(args) > 1:
		return fmt.Errorf(msgTooManyNames, len(args), strings.Join(args, ", "))
	case args[0] == "":
		return errNameEmpty
	}
	return nil
}

// noArguments rejects all arguments.
func noArguments(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf(msgNoArguments, command.CommandPath(), strings.Join(args, ", "))
	}
	return nil
}

// atMostOneNamespace requires zero or one argument.
func atMostOneNamespace(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return oneNamespace(command, args)
}
