// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/plugin/forcefinalize"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

type finalizeOptions struct {
	*session
	output    printer.Output
	removal   forcefinalize.Removal
	allowed   forcefinalize.Permissions
	dryRun    string
	confirmed string
}

func newFinalizeCommand(session *session) *cobra.Command {
	options := &finalizeOptions{session: session}
	command := &cobra.Command{
		Use:   "finalize NAME",
		Short: "Forcibly remove a finalizer from a stuck namespace",
		Long: `Forcibly remove a finalizer that blocks the deletion of a namespace.

Use this command only as a last resort: resources that the owner of the finalizer would have
cleaned up remain. First try the remedies of "kubectl nslifecycle explain".

Without --namespace-finalizer, --metadata-finalizer or --finalizer, the command prints the
findings and all finalizers that can be removed. With one of these flags, it prints the
plan, the consequences and the objects that would be orphaned, and tests the removal with a
server-side dry run.

The command changes nothing unless --dry-run=false is given. With --dry-run=false, it asks
you to confirm the removal with the name of the namespace. Then it verifies that nothing has
changed since the plan was printed, and removes only the selected finalizer.

The command refuses the removal if some objects cannot be read, if the owner of the
finalizer might still be active, or if objects would be orphaned. Each refusal names the flag
that overrides it, if any.`,
		Example: `  # Show the finalizers that can be removed
  kubectl nslifecycle finalize shop

  # Show the consequences of removing a finalizer from all objects
  kubectl nslifecycle finalize shop --finalizer=example.com/cleanup

  # Remove a finalizer from all objects of one resource type
  kubectl nslifecycle finalize shop --finalizer=example.com/cleanup \
    --resource=widgets.example.com --ignore-active-owner --dry-run=false

  # Remove a namespace finalizer whose owner has been uninstalled, in a script
  kubectl nslifecycle finalize shop --namespace-finalizer=example.com/agent \
    --ignore-active-owner --dry-run=false --confirm=shop`,
		Args:              oneNamespace,
		ValidArgsFunction: session.completeTerminating,
		RunE: func(command *cobra.Command, args []string) error {
			// An empty shell variable must not select all objects.
			if command.Flags().Changed("resource") && len(options.removal.Resources) == 0 {
				return errors.New("--resource must not be empty; omit it to select all objects")
			}
			return options.run(command.Context(), args[0])
		},
	}
	options.output.AddFlag(command)
	options.addFlags(command)
	return command
}

func (o *finalizeOptions) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.removal.NamespaceFinalizer, forcefinalize.FlagNamespaceFinalizer, "",
		"The namespace finalizer to remove, an entry of spec.finalizers of the Namespace.")
	flags.StringVar(&o.removal.MetadataFinalizer, forcefinalize.FlagMetadataFinalizer, "",
		"The finalizer to remove from metadata.finalizers of the Namespace.")
	flags.StringVar(&o.removal.Finalizer, forcefinalize.FlagFinalizer, "",
		"The finalizer to remove from metadata.finalizers of objects in the namespace.")
	flags.StringSliceVar(&o.removal.Resources, "resource", nil, "With --finalizer, only change these resource types or "+
		"objects (TYPE or TYPE/NAME), for example pods or widgets.example.com/a.")
	flags.StringVar(&o.dryRun, "dry-run", dryRunServer,
		`Must be "server" or "none". If server, only print and test the plan. If none or false, apply it.`)
	flags.Lookup("dry-run").NoOptDefVal = dryRunServer
	flags.StringVar(&o.confirmed, "confirm", "", "The name of the namespace, to confirm the removal without a prompt.")
	flags.BoolVar(&o.allowed.Orphan, forcefinalize.FlagOrphan, false,
		"If true, allow the removal to orphan the remaining objects.")
	flags.BoolVar(&o.allowed.AllowUnread, forcefinalize.FlagAllowUnread, false,
		"If true, continue even if some objects cannot be read and might be missing from the plan.")
	flags.BoolVar(&o.allowed.IgnoreActiveOwner, forcefinalize.FlagIgnoreActiveOwner, false,
		"If true, continue even if the owner of the finalizer might still be active.")
	command.MarkFlagsMutuallyExclusive(
		forcefinalize.FlagNamespaceFinalizer, forcefinalize.FlagMetadataFinalizer, forcefinalize.FlagFinalizer)
	_ = command.RegisterFlagCompletionFunc("dry-run",
		cobra.FixedCompletions([]string{dryRunServer, dryRunNone}, cobra.ShellCompDirectiveNoFileComp))
}

// validate checks the flags and reports whether the command is a dry run.
func (o *finalizeOptions) validate() (isDryRun bool, err error) {
	if len(o.removal.Resources) > 0 && o.removal.Finalizer == "" {
		return false, errors.New("--resource requires --finalizer")
	}
	switch o.dryRun {
	case dryRunServer, "true":
		return true, nil
	case dryRunNone, "false":
		return false, nil
	}
	return false, fmt.Errorf(messageDryRunValue, o.dryRun, dryRunServer+", "+dryRunNone)
}

func (o *finalizeOptions) run(ctx context.Context, name string) error {
	isDryRun, err := o.validate()
	if err != nil {
		return err
	}
	finalizer, err := o.newFinalizer(name)
	if err != nil {
		return err
	}
	collector, err := o.newCollector(diagnosis.DefaultProgressDeadline)
	if err != nil {
		return err
	}
	found, err := o.diagnose(ctx, collector, name)
	if err != nil {
		return err
	}
	plan, err := finalizer.Prepare(ctx, found, o.removal, o.allowed)
	if err != nil {
		return err
	}
	for i := range plan.Candidates {
		plan.Candidates[i].Command = o.withConnection(plan.Candidates[i].Command)
	}
	plan.IsDryRun = isDryRun || plan.Removal == nil
	if err := o.print(plan); err != nil {
		return err
	}
	switch {
	case plan.Removal == nil:
		return diagnosisStatus(found)
	case plan.Rejection != nil, len(plan.Objections) > 0 && !isDryRun:
		return forcefinalize.Refused(errors.New(strings.Join(plan.Objections, ";\n")))
	case len(plan.Objections) > 0:
		fmt.Fprintln(o.ErrOut)
		printf(o.ErrOut, "Nothing was changed (dry run). With --dry-run=false, the removal would be refused: %s",
			strings.Join(plan.Objections, ";\n"))
		return nil
	case isDryRun:
		fmt.Fprintln(o.ErrOut)
		printf(o.ErrOut, "Nothing was changed (dry run). Use --dry-run=false to apply the plan.")
		return nil
	}
	return o.apply(ctx, finalizer, plan)
}

func (s *session) newFinalizer(name string) (*forcefinalize.Finalizer, error) {
	namespaces, err := s.namespaces()
	if err != nil {
		return nil, err
	}
	discoverer, objects, err := s.contentClients()
	if err != nil {
		return nil, err
	}
	dryRuns, err := s.dryRuns()
	if err != nil {
		return nil, err
	}
	return &forcefinalize.Finalizer{
		Namespace: name, Namespaces: namespaces, Metadata: objects, Discoverer: discoverer, DryRuns: dryRuns,
	}, nil
}

func (o *finalizeOptions) print(plan *forcefinalize.Plan) error {
	if o.output.IsStructured() {
		if err := o.output.Print(o.Out, "FinalizePlan", plan); err != nil {
			return err
		}
	} else {
		if _, err := io.WriteString(o.Out, forcefinalize.Render(plan, printer.NewPalette(o.Out), time.Now())); err != nil {
			return err
		}
		o.warnUnread(plan.Namespace, plan.Diagnosis.Unread)
		o.warnEach(fmt.Sprintf("Namespace %s might contain more objects", plan.Namespace), plan.Unread)
	}
	if plan.DryRunUnsupported != nil {
		o.warnf("The removal could not be tested before it is requested: %v", plan.DryRunUnsupported)
	}
	return nil
}

// apply asks for the confirmation, and applies the plan.
func (o *finalizeOptions) apply(
	ctx context.Context, finalizer *forcefinalize.Finalizer, plan *forcefinalize.Plan,
) error {
	if err := o.confirm(ctx, plan.Namespace, o.confirmed, messageFinalizeQuestion(plan)); err != nil {
		return forcefinalize.Refused(err)
	}
	removed, err := finalizer.Apply(ctx, plan)
	if removed > 0 {
		o.printResult("Removed %s from %s.", plan.Removal, printable.Count(removed, "object"))
	}
	var unanswered forcefinalize.UnansweredError
	switch {
	case errors.As(err, &unanswered):
		o.warnf("The API server did not respond. The last request to remove the %s might have succeeded. To see the "+
			"current state, run: %s", plan.Removal, o.explainCommand(plan.Namespace))
		return err
	case err != nil && removed == 0:
		return forcefinalize.Refused(err)
	case err != nil:
		return fmt.Errorf("stopped, %s left unchanged: %w", printable.Count(len(plan.Targets)-removed, "object"), err)
	case len(plan.Targets) == 0:
		o.printResult("Removed %s.", plan.Removal)
	}
	o.printOutcome(ctx, finalizer, plan)
	return nil
}

// printResult prints a line to stdout, or to stderr if the plan was written to stdout as a
// document.
func (o *finalizeOptions) printResult(format string, args ...any) {
	out := o.Out
	if o.output.IsStructured() {
		out = o.ErrOut
	}
	printf(out, format, args...)
}

// printOutcome prints the state of the namespace after the removal and what the user must do next.
func (o *finalizeOptions) printOutcome(
	ctx context.Context, finalizer *forcefinalize.Finalizer, plan *forcefinalize.Plan,
) {
	orphaned := "Orphaned: %s. To find them, run: %s"
	if len(plan.HeldBy) == 0 && finalizer.WaitForDeletion(ctx, plan) {
		o.printResult("Namespace %s was deleted.", plan.Namespace)
	} else {
		orphaned = "Orphaned when the namespace is deleted: %s. Delete them first, or find them later with: %s"
		o.printResult("Namespace %s is still terminating. To see why, run: %s", plan.Namespace,
			o.explainCommand(plan.Namespace))
	}
	if len(plan.Orphans) > 0 {
		o.printResult(orphaned, forcefinalize.ListObjects(plan.Orphans), o.withConnection(displayName+" orphans"))
	}
	if len(plan.Losses) > 0 {
		o.printResult("Check for remaining resources outside the cluster: %s", strings.Join(plan.Losses, " "))
	}
}

func messageFinalizeQuestion(plan *forcefinalize.Plan) string {
	question := fmt.Sprintf("This removes the %s.", plan.Removal)
	if len(plan.Orphans) > 0 {
		question += fmt.Sprintf(" It orphans %s.", printable.Count(len(plan.Orphans), "object"))
	}
	return question
}
