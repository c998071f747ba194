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
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

const messageRolloutRevisionNumber = "invalid revision %d; must be a positive number"

// templateRolloutOptions are the flags of the rollout commands.
type templateRolloutOptions struct {
	*session
	revision int64
	dryRun   dryRun
	watch    bool
	timeout  time.Duration
}

func newTemplateRolloutCommand(session *session) *cobra.Command {
	command := &cobra.Command{
		Use:   "rollout",
		Short: "Manage the rollout of a NamespaceTemplate",
		Long: `Manage the rollout of a NamespaceTemplate, as "kubectl rollout" does for Deployments.

A change of the parameters, variables, metadata or objects of a template is a new revision. The
operator stores the revisions as ControllerRevisions in its namespace.`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	options := &templateRolloutOptions{session: session}

	history := options.add(command, options.history, &cobra.Command{
		Use:   "history",
		Short: "Show the revisions of a NamespaceTemplate",
		Long: `Show the stored revisions of a NamespaceTemplate, oldest first, or one of them as YAML.

"Latest" is the revision of the spec, and "Current" the one that new namespaces get.`,
		Example: `  # Show the revisions of a template
  kubectl nslifecycle template rollout history team

  # Print the second revision
  kubectl nslifecycle template rollout history team --revision=2`,
	})
	history.Int64Var(&options.revision, "revision", 0, "Print the revision with this number.")
	pause := func(ctx context.Context, name string) error { return options.setPaused(ctx, name, true) }
	options.add(command, pause, &cobra.Command{
		Use:   "pause",
		Short: "Pause the rollout of a NamespaceTemplate",
		Long: `Pause the rollout of a NamespaceTemplate. Initialized namespaces keep their revision, and new
namespaces get the last revision that has reached all initialized namespaces.`,
		Example: `  # Pause the rollout of a template
  kubectl nslifecycle template rollout pause team`,
	})
	resume := func(ctx context.Context, name string) error { return options.setPaused(ctx, name, false) }
	options.add(command, resume, &cobra.Command{
		Use:   "resume",
		Short: "Resume a paused rollout of a NamespaceTemplate",
		Long:  `Resume a paused rollout of a NamespaceTemplate.`,
		Example: `  # Resume the rollout of a template
  kubectl nslifecycle template rollout resume team`,
	})
	status := options.add(command, options.status, &cobra.Command{
		Use:   "status",
		Short: "Show the status of the rollout of a NamespaceTemplate",
		Long: `Wait until the operator has applied the revision of the spec to all namespaces of a
NamespaceTemplate, and show the progress. With --watch=false, show the progress once.

Exit status: 0 the rollout has finished, 3 the template is invalid, or the rollout is paused
because of failures, 1 error or timeout. With --watch=false, the exit status of a rollout in
progress is 0.`,
		Example: `  # Wait for the rollout of a template
  kubectl nslifecycle template rollout status team --timeout=10m`,
	})
	status.BoolVarP(&options.watch, "watch", "w", true, "If true, wait until the rollout has finished.")
	status.DurationVar(&options.timeout, "timeout", 0, helpTimeout)
	undo := &cobra.Command{
		Use:   "undo",
		Short: "Roll a NamespaceTemplate back to an earlier revision",
		Long: `Write the parameters, variables, metadata and objects of an earlier revision into the spec of
a NamespaceTemplate. Other fields do not change.

The default revision is the one that new namespaces get, while a rollout is in progress, and
the previous one afterwards.`,
		Example: `  # Undo the last change of a template
  kubectl nslifecycle template rollout undo team

  # Roll back to the second revision
  kubectl nslifecycle template rollout undo team --to-revision=2

  # Verify that you have the permissions
  kubectl nslifecycle template rollout undo team --dry-run=server`,
	}
	options.add(command, options.undo, undo).Int64Var(&options.revision, "to-revision", 0,
		"The number of the revision to roll back to. 0 is the default.")
	options.dryRun.addFlag(undo)
	return command
}

// add adds a subcommand with the name of a template as its argument, and returns its flags.
func (o *templateRolloutOptions) add(
	parent *cobra.Command, run func(ctx context.Context, name string) error, command *cobra.Command,
) *pflag.FlagSet {
	command.Use += " NAME"
	command.Args = oneTemplate
	command.ValidArgsFunction = o.completeTemplate
	command.RunE = func(command *cobra.Command, args []string) error { return run(command.Context(), args[0]) }
	parent.AddCommand(command)
	return command.Flags()
}

func (o *templateRolloutOptions) printResult(name, result string) error {
	_, err := fmt.Fprintf(o.Out, "%s/%s %s%s\n", templateResource.GroupResource(), name, result, o.dryRun.suffix())
	return err
}

func (o *templateRolloutOptions) setPaused(ctx context.Context, name string, isPaused bool) error {
	reader, object, err := o.template(ctx, name)
	if err != nil {
		return err
	}
	progressing := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionProgressing)
	switch {
	case object.Spec.Rollout.Paused != isPaused:
	case isPaused:
		return fmt.Errorf("NamespaceTemplate %q is already paused", name)
	case progressing != nil && progressing.Reason == v1alpha1.ReasonPausedAfterFailures:
		return fmt.Errorf("NamespaceTemplate %q is paused only because of failures; change it, or run: %s", name,
			o.withConnection(shell.Command(displayName+" template rollout undo %s", name)))
	default:
		return fmt.Errorf("NamespaceTemplate %q is not paused", name)
	}
	patch := fmt.Appendf(nil, `{"spec":{"rollout":{"paused":%t}}}`, isPaused)
	options := metav1.PatchOptions{FieldManager: commandName}
	if _, err := reader.client.Patch(ctx, name, types.MergePatchType, patch, options); err != nil {
		return err
	}
	if isPaused {
		return o.printResult(name, "paused")
	}
	return o.printResult(name, "resumed")
}

// revisions returns the stored revisions of a NamespaceTemplate, oldest first.
func (o *templateRolloutOptions) revisions(
	ctx context.Context, object *v1alpha1.NamespaceTemplate,
) ([]templates.Revision, error) {
	client, err := newClient(o.session, appsv1client.NewForConfig)
	if err != nil {
		return nil, err
	}
	namespace, _, err := o.operatorNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	list, err := client.ControllerRevisions(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: v1alpha1.LabelManagedByTemplate + "=" + object.Name,
	})
	if err != nil {
		return nil, fmt.Errorf("failed to list the revisions of NamespaceTemplate %q: %w", object.Name, err)
	}
	return templates.Revisions(object, list.Items), nil
}

// operatorNamespaces returns the namespace of the operator, and the namespace of the sources of copies.
func (s *session) operatorNamespaces(ctx context.Context) (system, source string, err error) {
	reader, err := s.operatorClient()
	if err != nil {
		return "", "", err
	}
	set, err := effectiveSet(ctx, reader)
	if err == nil && set.SystemNamespace == "" {
		err = fmt.Errorf("the operator has not started yet: NamespaceInitializerSet %q has no systemNamespace", set.Name)
	}
	if err != nil {
		return "", "", err
	}
	return set.SystemNamespace, set.SourceNamespace, nil
}

// history prints the revisions of a NamespaceTemplate, or the content of one.
func (o *templateRolloutOptions) history(ctx context.Context, name string) error {
	if o.revision < 0 {
		return fmt.Errorf(messageRolloutRevisionNumber, o.revision)
	}
	_, object, err := o.template(ctx, name)
	if err != nil {
		return err
	}
	revisions, err := o.revisions(ctx, object)
	switch {
	case err != nil:
		return err
	case o.revision > 0:
		revision, err := templates.FindRevision(object, revisions, o.revision)
		if err != nil {
			return err
		}
		return revision.Write(o.Out)
	case len(revisions) == 0:
		printf(o.ErrOut, "No revisions of NamespaceTemplate %s found.", name)
		return nil
	}
	return printHistory(o.Out, object, revisions, time.Now())
}

func printHistory(
	out io.Writer, object *v1alpha1.NamespaceTemplate, revisions []templates.Revision, now time.Time,
) error {
	table := printer.NewTable("Revision", "Name", "Age", "State")
	for _, revision := range revisions {
		var states []string
		if revision.Name == templates.SpecRevision(object) {
			states = append(states, "Latest")
		}
		if revision.Name == object.Status.CurrentRevision {
			states = append(states, "Current")
		}
		printer.AddRow(table,
			revision.Number, revision.Name, printer.Age(revision.Created, now), printer.OrNone(strings.Join(states, ", ")))
	}
	return printer.NewTablePrinter(out, false, false).Print(table)
}

// rolloutInterval is the time between two requests for the status of a rollout.
const rolloutInterval = time.Second

// status shows the progress of a rollout until it has finished.
func (o *templateRolloutOptions) status(ctx context.Context, name string) error {
	reader, object, err := o.template(ctx, name)
	if err != nil {
		return err
	}
	waitCtx, cancel := withTimeout(ctx, o.timeout)
	defer cancel()
	printed := ""
	show := func() (bool, error) {
		text, isDone, err := rolloutProgress(object)
		if err == nil && text != printed {
			printed = text
			printf(o.Out, "%s", text)
		}
		return isDone || !o.watch, err
	}
	if isDone, err := show(); isDone || err != nil {
		return err
	}
	err = wait.PollUntilContextCancel(waitCtx, rolloutInterval, false, func(ctx context.Context) (bool, error) {
		found, err := reader.get(ctx, name)
		switch {
		case apierrors.IsNotFound(err), err == nil && found.UID != object.UID:
			return false, fmt.Errorf("NamespaceTemplate %q was deleted", name)
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), errors.Is(err, errTemplatesNotServed):
			return false, err
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil:
			o.warnf("Failed to get NamespaceTemplate %q, retrying: %v", name, err)
			return false, nil
		}
		object = found
		return show()
	})
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("timed out after %s waiting for the rollout of NamespaceTemplate %q", o.timeout, name)
	}
	return err
}

// rolloutProgress describes the progress of a rollout. It returns an error if a user must act.
func rolloutProgress(object *v1alpha1.NamespaceTemplate) (text string, isDone bool, err error) {
	if !templates.IsObserved(object) {
		text = fmt.Sprintf("Waiting for the operator to observe the change of NamespaceTemplate %q...", object.Name)
		return text, false, nil
	}
	status := &object.Status
	progressing := ptr.Deref(
		meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionProgressing), metav1.Condition{})
	if valid := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionValid); valid != nil &&
		valid.Status == metav1.ConditionFalse {
		return "", false, rolloutBlocked(object.Name, valid)
	}
	switch {
	case progressing.Reason == v1alpha1.ReasonPausedAfterFailures:
		return "", false, rolloutBlocked(object.Name, &progressing)
	case progressing.Reason == v1alpha1.ReasonIncomplete:
		return fmt.Sprintf("NamespaceTemplate %q rolled out: %s", object.Name, progressing.Message), true, nil
	case progressing.Status == metav1.ConditionFalse:
		return fmt.Sprintf("NamespaceTemplate %q successfully rolled out", object.Name), true, nil
	}
	counts := ptr.Deref(status.Namespaces, v1alpha1.TemplateNamespaceCounts{})
	text = fmt.Sprintf("Waiting for the rollout of NamespaceTemplate %q to finish: %d of %d namespaces updated",
		object.Name, counts.Updated, counts.Desired)
	if counts.Failed > 0 {
		text += fmt.Sprintf(", %d failed", counts.Failed)
	}
	if counts.Conflicted > 0 {
		text += fmt.Sprintf(", %d conflicted", counts.Conflicted)
	}
	switch progressing.Reason {
	case v1alpha1.ReasonPaused:
		text += ", paused"
	case v1alpha1.ReasonWaitingForMinReadySeconds:
		updated := ptr.Deref(status.CanariesUpdatedTime, metav1.Time{})
		end := updated.Add(time.Duration(object.Spec.Rollout.MinReadySeconds) * time.Second)
		text += ", other namespaces follow after " + end.UTC().Format(time.RFC3339)
	}
	// The permissions can be granted after the change, for example in the same manifest.
	if meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionAuthorized) {
		text += ", unauthorized"
	}
	return text + "...", false, nil
}

func rolloutBlocked(name string, condition *metav1.Condition) error {
	return &StatusError{Code: ExitBlocked, Err: fmt.Errorf("the rollout of NamespaceTemplate %q cannot continue (%s): %s",
		name, condition.Reason, condition.Message)}
}

// undo rolls a NamespaceTemplate back to an earlier revision.
func (o *templateRolloutOptions) undo(ctx context.Context, name string) error {
	if err := o.dryRun.validate(); err != nil {
		return err
	}
	if o.revision < 0 {
		return fmt.Errorf(messageRolloutRevisionNumber, o.revision)
	}
	reader, object, err := o.template(ctx, name)
	if err != nil {
		return err
	}
	revisions, err := o.revisions(ctx, object)
	if err != nil {
		return err
	}
	target, err := templates.UndoTarget(object, revisions, o.revision)
	if err != nil {
		return err
	}
	patch, err := target.UndoPatch(object)
	if err != nil {
		return err
	}
	if o.dryRun != dryRunClient {
		_, err = reader.client.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{
			FieldManager: commandName, DryRun: o.dryRun.requestOption(),
		})
	}
	switch {
	case apierrors.IsInvalid(err):
		return fmt.Errorf("nothing was rolled back: another client has changed NamespaceTemplate %q, or its revision %d is "+
			"invalid: %w", name, target.Number, err)
	case err != nil:
		return err
	}
	return o.printResult(name, fmt.Sprintf("rolled back to revision %d", target.Number))
}
