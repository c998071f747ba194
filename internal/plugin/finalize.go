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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// goneTimeout is how long a Namespace that nothing holds any more may take to go.
const goneTimeout = 5 * time.Second

type finalizeOptions struct {
	*session
	output    *output
	wanted    removal
	allowed   permits
	dryRun    string
	confirmed string
	backup    string
	hasNone   bool // no backup is wanted
}

func newFinalizeCommand(session *session) *cobra.Command {
	options := &finalizeOptions{session: session, output: newOutput(outputJSON, outputYAML)}
	command := &cobra.Command{
		Use:   "finalize NAME",
		Short: "The last resort: remove one token or finalizer of a stuck namespace by force",
		Long: "Remove one token or finalizer that holds a namespace which is being deleted, by force. It is\n" +
			"the last resort: whatever its owner would have cleaned up stays behind. First do what\n" +
			"`" + displayName + " explain` says.\n\n" +
			"Without one of --namespace-finalizer, --metadata-finalizer and --finalizer it shows the findings and\n" +
			"everything that could be removed. With one of them it shows what would be done, what would be\n" +
			"lost, and which objects would be left without a namespace, and asks the API server in a dry\n" +
			"run whether it would accept that. It changes nothing unless --dry-run=false is given. Then it\n" +
			"writes a backup of every object that remains, Secrets too, asks for the name of the namespace\n" +
			"to be typed, makes sure that nothing has changed since it was shown, and removes that one\n" +
			"token or finalizer and no other.\n\n" +
			"It refuses where it cannot see everything, where whoever should remove the token or finalizer\n" +
			"may be at work, and where objects would be orphaned. Each refusal names the flag that lifts it,\n" +
			"if there is one.",
		Example: "  # What holds it, and what could be done\n" +
			"  kubectl nslifecycle finalize shop\n\n" +
			"  # What would removing a finalizer do?\n" +
			"  kubectl nslifecycle finalize shop --finalizer=example.com/cleanup\n\n" +
			"  # Do it, for one type only\n" +
			"  kubectl nslifecycle finalize shop --finalizer=example.com/cleanup \\\n" +
			"    --resource=widgets.example.com --dry-run=false\n\n" +
			"  # Release the token of an agent that has been uninstalled, in a script\n" +
			"  kubectl nslifecycle finalize shop --namespace-finalizer=example.com/agent --dry-run=false --confirm=shop",
		Args:              oneNamespace,
		ValidArgsFunction: session.completeNamespace,
		RunE: func(command *cobra.Command, args []string) error {
			// What an empty variable of a script makes of it would select everything.
			if command.Flags().Changed("resource") && len(options.wanted.Resources) == 0 {
				return errors.New("--resource is empty; leave it out to remove the --finalizer from all objects")
			}
			return options.run(command.Context(), args[0])
		},
	}
	options.output.addFlag(command)
	options.addFlags(command)
	return command
}

func (o *finalizeOptions) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.wanted.Token, "namespace-finalizer", "", "Token in spec.finalizers of the Namespace to release")
	flags.StringVar(&o.wanted.NamespaceFinalizer, "metadata-finalizer", "",
		"Finalizer in metadata.finalizers of the Namespace to remove")
	flags.StringVar(&o.wanted.Finalizer, "finalizer", "", "Finalizer to remove from objects in the namespace")
	flags.StringSliceVar(&o.wanted.Resources, "resource", nil,
		"With --finalizer: only from these, TYPE or TYPE/NAME, such as pods or widgets.example.com/a")
	flags.StringVar(&o.dryRun, "dry-run", dryRunServer, "Show what would be done and do not do it; false or none to do it")
	flags.Lookup("dry-run").NoOptDefVal = dryRunServer
	flags.StringVar(&o.confirmed, "confirm", "", "The name of the namespace once more, instead of typing it when asked")
	flags.StringVar(&o.backup, "backup", "", "File for the backup, which must not exist (default NAME-backup-TIME.yaml)")
	flags.BoolVar(&o.hasNone, "no-backup", false, "Write no backup")
	flags.BoolVar(&o.allowed.isOrphaning, strings.TrimPrefix(flagOrphan, "--"), false,
		"Accept that objects are left without a namespace")
	flags.BoolVar(&o.allowed.allowsUnread, strings.TrimPrefix(flagAllowUnread, "--"), false,
		"Accept that there may be objects which cannot be read, and are in no backup")
	flags.BoolVar(&o.allowed.isEvenIfAlive, strings.TrimPrefix(flagEvenIfAlive, "--"), false,
		"Accept that whoever should remove it may be at work")
	command.MarkFlagsMutuallyExclusive("namespace-finalizer", "metadata-finalizer", "finalizer")
	command.MarkFlagsMutuallyExclusive("backup", "no-backup")
	_ = command.RegisterFlagCompletionFunc("dry-run",
		cobra.FixedCompletions([]string{dryRunServer, dryRunNone}, cobra.ShellCompDirectiveNoFileComp))
}

// validate checks the flags, as far as that can be done without a server.
func (o *finalizeOptions) validate() (isDryRun bool, err error) {
	if err := o.output.validate(); err != nil {
		return false, err
	}
	if len(o.wanted.Resources) > 0 && o.wanted.Finalizer == "" {
		return false, errors.New("--resource selects what loses a --finalizer, which is missing")
	}
	switch o.dryRun {
	case dryRunServer, "true":
		return true, nil
	case dryRunNone, "false":
		return false, nil
	}
	return false, fmt.Errorf("unknown --dry-run=%s; use %s, or %s to do it", o.dryRun, dryRunServer, dryRunNone)
}

func (o *finalizeOptions) run(ctx context.Context, name string) error {
	isDryRun, err := o.validate()
	if err != nil {
		return err
	}
	forcer, err := o.newForcer(name)
	if err != nil {
		return err
	}
	gatherer, err := o.newGatherer(diagnosis.DefaultProgressDeadline)
	if err != nil {
		return err
	}
	found, err := diagnose(ctx, gatherer, name)
	if err != nil {
		return err
	}
	facts, err := forcer.look(ctx)
	if err != nil {
		return err
	}
	facts.diagnosis = found
	if o.wanted.name() == "" {
		return o.offer(facts)
	}
	planned, err := planFinalize(facts, o.wanted, o.allowed)
	if err != nil {
		return refused(err)
	}
	planned.IsDryRun, planned.Backup = isDryRun, o.backupFile(name)
	warning, refusal := forcer.rehearse(ctx, planned, facts.namespace)
	if refusal != nil {
		refusal = forcer.explainWrite(ctx, planned, refusal)
		planned.Objections = append(planned.Objections, "the API server does not accept it: "+refusal.Error())
	}
	if err := o.show(planned); err != nil {
		return err
	}
	if warning != nil {
		o.warnf("The API server cannot tell beforehand whether it accepts this: %v", warning)
	}
	if len(planned.Objections) > 0 {
		return refused(errors.New(strings.Join(planned.Objections, ";\nand ")))
	}
	if isDryRun {
		fmt.Fprintln(o.ErrOut, "\nNothing was changed: this was a dry run. --dry-run=false does it.")
		return nil
	}
	return o.force(ctx, forcer, planned)
}

// refused is the error of a command that has changed nothing.
func refused(err error) error {
	return fmt.Errorf("refused, and nothing was changed: %w", err)
}

// offer shows what could be removed, for a user who has not chosen yet.
func (o *finalizeOptions) offer(facts *predicament) error {
	if err := whyNotFinalize(facts); err != nil {
		return refused(err)
	}
	planned := newPlan(facts)
	planned.IsDryRun, planned.Candidates = true, listCandidates(facts)
	if err := o.show(planned); err != nil {
		return err
	}
	return exitFor(facts.diagnosis)
}

func (o *finalizeOptions) show(planned *plan) error {
	if o.output.isStructured() {
		return o.output.print(o.Out, "FinalizePlan", planned)
	}
	if _, err := io.WriteString(o.Out, renderPlan(planned, o.screen(o.Out))); err != nil {
		return err
	}
	o.warnUnread(planned.Namespace, planned.Diagnosis.Unread)
	o.warnEach(fmt.Sprintf("There may be more objects in namespace %s", planned.Namespace), planned.Unread)
	return nil
}

// force does what was shown, after backup and confirmation.
func (o *finalizeOptions) force(ctx context.Context, forcer *forcer, planned *plan) error {
	if err := o.whyNotConfirmed(planned.Namespace, o.confirmed); err != nil {
		return refused(err)
	}
	if planned.Backup != "" {
		if err := o.backUp(ctx, forcer, planned); err != nil {
			return refused(err)
		}
	}
	question := fmt.Sprintf("This removes %s.", planned.Removal)
	if len(planned.Orphans) > 0 {
		question += fmt.Sprintf(" It leaves %s without a namespace.", count(len(planned.Orphans), "object"))
	}
	if err := o.confirm(ctx, planned.Namespace, o.confirmed, question); err != nil {
		return refused(err)
	}
	done, err := forcer.act(ctx, planned)
	if len(planned.Targets) > 0 && done > 0 {
		o.tell("Removed %s from %s.", planned.Removal, count(done, "object"))
	}
	var unanswered unansweredError
	switch {
	case errors.As(err, &unanswered):
		o.warnf("The API server has not answered: %s may have been removed, from one object if it is a finalizer of "+
			"objects. To see the current state, run: %s", planned.Removal, explainCommand(planned.Namespace))
		return err
	case err != nil && done == 0:
		return refused(err)
	case err != nil:
		return fmt.Errorf("stopped before the other %s: %w", count(len(planned.Targets)-done, "object"), err)
	case len(planned.Targets) == 0:
		o.tell("Removed %s.", planned.Removal)
	}
	o.tellOutcome(ctx, forcer, planned)
	return nil
}

// tell prints what was done: it is the result, unless that is a document.
func (o *finalizeOptions) tell(format string, args ...any) {
	out := o.Out
	if o.output.isStructured() {
		out = o.ErrOut
	}
	fmt.Fprintf(out, format+"\n", args...)
}

// tellOutcome says what is left behind, and how to go on.
func (o *finalizeOptions) tellOutcome(ctx context.Context, forcer *forcer, planned *plan) {
	isGone := len(planned.HeldBy) == 0 && forcer.waitUntilGone(ctx, planned)
	if isGone {
		o.tell("Namespace %s is gone.", planned.Namespace)
	} else {
		o.tell("Namespace %s is still being deleted. To see its progress, run: %s",
			planned.Namespace, explainCommand(planned.Namespace))
	}
	switch {
	case len(planned.Orphans) > 0 && isGone:
		o.tell("Left behind without a namespace: %s. Find them: %s orphans",
			nameRemnants(planned.Orphans), displayName)
	case len(planned.Orphans) > 0:
		o.tell("Still in it, and left behind when it goes: %s. Delete them before, or find them then: %s orphans",
			nameRemnants(planned.Orphans), displayName)
	}
	if len(planned.Losses) > 0 {
		o.tell("Look after what may be left outside of the cluster: %s", strings.Join(planned.Losses, " "))
	}
}

// waitUntilGone tells whether the Namespace goes, now that nothing holds it.
func (f *forcer) waitUntilGone(ctx context.Context, planned *plan) bool {
	const interval = 100 * time.Millisecond
	err := wait.PollUntilContextTimeout(ctx, interval, goneTimeout, true, func(ctx context.Context) (bool, error) {
		namespace, err := f.namespaces.Get(ctx, f.name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), nil
		}
		return namespace.UID != planned.UID, nil
	})
	return err == nil
}

// backupFile is where the backup goes, empty for none.
func (o *finalizeOptions) backupFile(name string) string {
	switch {
	case o.hasNone:
		return ""
	case o.backup != "":
		return o.backup
	}
	return fmt.Sprintf("%s-backup-%s.yaml", name, time.Now().UTC().Format("20060102T150405Z"))
}
