// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/version"
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
		Short:       "Create, explain, delete and repair namespaces",
		Long: `Create, explain, delete and repair namespaces.

All commands work on any cluster, with or without the nslifecycle operator, except "check",
"enforcement" and those of "template" that read NamespaceTemplates.

Exit status: 0 success or healthy, 1 error, 3 blocked or degraded, 130 interrupted.`,
		// report prints errors.
		SilenceErrors:    true,
		SilenceUsage:     true,
		PersistentPreRun: func(*cobra.Command, []string) { session.configureLogs() },
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w; "+messageSeeHelp, err, command.CommandPath())
	})
	root.SetUsageTemplate(usageTemplate(root.UsageTemplate()))
	session.addFlags(root)
	root.AddCommand(
		newCheckCommand(session),
		newCreateCommand(session),
		newDeleteCommand(session),
		newEnforcementCommand(session),
		newExplainCommand(session),
		newFinalizeCommand(session),
		newListCommand(session),
		newOptionsCommand(),
		newOrphansCommand(session),
		newTemplateCommand(session),
		newVersionCommand(session),
		newWaitCommand(session),
	)
	return root
}

// usageTemplate changes the template of cobra so that the flags of the root command are not listed in the help of each
// command, as in kubectl.
func usageTemplate(template string) string {
	for _, change := range [][2]string{
		{"{{if .HasAvailableLocalFlags}}", "{{if and .HasParent .HasAvailableLocalFlags}}"},
		{"Global Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}", messageSeeOptions},
		{".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", printer.MaxTextWidth)},
	} {
		template = strings.ReplaceAll(template, change[0], change[1])
	}
	return template + "{{if not .HasParent}}" + messageSeeOptions + "\n{{end}}"
}

const messageSeeOptions = `Use "` + displayName + ` options" for a list of options that apply to all commands.`

func newOptionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "options",
		Short:             "Print the list of flags inherited by all commands",
		Long:              "Print the list of flags inherited by all commands.",
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(command.OutOrStdout(), "The following options can be passed to any command:\n\n%s",
				command.InheritedFlags().FlagUsagesWrapped(printer.MaxTextWidth))
			return err
		},
	}
}

// runWithContext returns a function that runs a command with its context and its arguments.
func runWithContext(run func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error { return run(command.Context(), args) }
}

// oneNamespace requires exactly one argument.
func oneNamespace(command *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("the name of a namespace is required; "+messageSeeHelp, command.CommandPath())
	case len(args) > 1:
		return fmt.Errorf("exactly one namespace is required, got %d (%s)", len(args), strings.Join(args, ", "))
	case args[0] == "":
		return errors.New("the name of the namespace must not be empty")
	}
	return nil
}

// namespaces requires at least one argument.
func namespaces(command *cobra.Command, args []string) error {
	if len(args) == 0 || slices.Contains(args, "") {
		return fmt.Errorf("the name of at least one namespace is required; "+messageSeeHelp, command.CommandPath())
	}
	return nil
}

func noArguments(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("'%s' accepts no arguments, got %s", command.CommandPath(), strings.Join(args, ", "))
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

// Exit statuses of the plugin. They are part of its public interface.
const (
	// ExitOK means that the command succeeded, or that the namespace is healthy.
	ExitOK = 0
	// ExitError means that an error occurred, or that the result is unknown because some data could not
	// be read.
	ExitError = 1
	// ExitBlocked means that the namespace is stuck and the plugin found a cause, or that a template cannot be applied.
	ExitBlocked = 3
	// ExitInterrupted means that the command received SIGINT or SIGTERM.
	ExitInterrupted = 130
)

// StatusError is an error with an exit status. If Err is nil, the command has already printed its
// result.
type StatusError struct {
	Code int
	Err  error
}

// Error implements error.
func (e *StatusError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the error to print, or nil.
func (e *StatusError) Unwrap() error { return e.Err }

// report prints an error as kubectl does, and returns the exit status. Of joined errors, the first one determines it.
func report(errOut io.Writer, err error) int {
	code, printed := ExitOK, sets.Set[string]{}
	for _, one := range splitErrors(err) {
		exit := &StatusError{Code: ExitError, Err: one}
		if !errors.As(one, &exit) && errors.Is(one, context.Canceled) {
			fmt.Fprintln(errOut, "Interrupted.")
			return ExitInterrupted
		}
		code = cmp.Or(code, exit.Code)
		if exit.Err == nil {
			continue
		}
		if text := strings.TrimSpace(errorText(exit.Err)); !printed.Has(text) {
			// The messages of the plugin and of the admission policies end with commands.
			fmt.Fprintln(errOut, printer.WrapCommand(text))
			printed.Insert(text)
		}
	}
	return code
}

// splitErrors returns the errors that errors.Join has joined.
func splitErrors(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, splitErrors(one)...)
	}
	return all
}

// errorText formats an error as kubectl does (k8s.io/kubectl/pkg/cmd/util/helpers.go).
func errorText(err error) string {
	var status apierrors.APIStatus
	var request *url.Error
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf("error: You must be logged in to the server (%v)", err)
	case errors.As(err, &status) && status.Status().Reason != "":
		return fmt.Sprintf("Error from server (%s): %v", status.Status().Reason, err)
	case errors.As(err, &status):
		return fmt.Sprintf("Error from server: %v", err)
	case errors.As(err, &request) && err.Error() == request.Error() && utilnet.IsConnectionRefused(err):
		server, _ := url.Parse(request.URL) // It is the URL of a request that was sent.
		return fmt.Sprintf("The connection to the server %s was refused - did you specify the right host or port?",
			server.Host)
	case errors.As(err, &request):
		return fmt.Sprintf("Unable to connect to the server: %v", err)
	}
	return fmt.Sprintf("error: %v", err)
}

func newVersionCommand(session *session) *cobra.Command {
	var output printer.Output
	command := &cobra.Command{
		Use:               "version",
		Short:             "Print the version of the plugin",
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			info := version.Read()
			if output.IsStructured() {
				return output.Print(session.Out, "Version", info)
			}
			fmt.Fprintf(session.Out, "%s %s\n", commandName, info)
			return nil
		},
	}
	output.AddFlag(command)
	return command
}
