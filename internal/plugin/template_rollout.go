// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/shell"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

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
		Short: shortTemplateRollout,
		Long:  longTemplateRollout,
		Args:  noArguments,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	options := &templateRolloutOptions{session: session}

	history := options.command("history", shortRolloutHistory, longRolloutHistory, exampleRolloutHistory, options.history)
	history.Flags().Int64Var(&options.revision, "revision", 0, helpRolloutRevision)

	pause := options.command("pause", shortRolloutPause, longRolloutPause, exampleRolloutPause,
		func(ctx context.Context, name string) error { return options.setPaused(ctx, name, true) })
	resume := options.command("resume", shortRolloutResume, longRolloutResume, exampleRolloutResume,
		func(ctx context.Context, name string) error { return options.setPaused(ctx, name, false) })

	status := options.command("status", shortRolloutStatus, longRolloutStatus, exampleRolloutStatus, options.status)
	status.Flags().BoolVarP(&options.watch, "watch", "w", true, helpRolloutWatch)
	status.Flags().DurationVar(&options.timeout, "timeout", 0, helpTimeout)

	undo := options.command("undo", shortRolloutUndo, longRolloutUndo, exampleRolloutUndo, options.undo)
	undo.Flags().Int64Var(&options.revision, "to-revision", 0, helpRolloutToRevision)
	options.dryRun.addFlag(undo)

	command.AddCommand(history, pause, resume, status, undo)
	return command
}

func (o *templateRolloutOptions) command(
	use, short, long, example string, run func(ctx context.Context, name string) error,
) *cobra.Command {
	return &cobra.Command{
		Use:               use + " NAME",
		Short:             short,
		Long:              long,
		Example:           example,
		Args:              oneTemplate,
		ValidArgsFunction: o.completeTemplate,
		RunE: func(command *cobra.Command, args []string) error {
			return run(command.Context(), args[0])
		},
	}
}

// printResult prints a result as kubectl rollout does.
func (o *templateRolloutOptions) printResult(name, result string) error {
	_, err := fmt.Fprintf(o.Out, "%s/%s %s%s\n", templateResource.GroupResource(), name, result, o.dryRun.suffix())
	return err
}

// setPaused sets spec.rollout.paused.
func (o *templateRolloutOptions) setPaused(ctx context.Context, name string, isPaused bool) error {
	reader, object, err := o.template(ctx, name)
	if err != nil {
		return err
	}
	progressing := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionProgressing)
	switch {
	case object.Spec.Rollout.Paused != isPaused:
	case isPaused:
		return fmt.Errorf(msgRolloutPaused, name)
	case progressing != nil && progressing.Reason == template.ReasonPausedAfterFailures:
		return fmt.Errorf(msgRolloutFailurePause, name,
			o.withConnection(shell.Command(displayName+" template rollout undo %s", name)))
	default:
		return fmt.Errorf(msgRolloutNotPaused, name)
	}
	patch := fmt.Appendf(nil, `{"spec":{"rollout":{"paused":%t}}}`, isPaused)
	if _, err := reader.patch(ctx, name, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	if isPaused {
		return o.printResult(name, "paused")
	}
	return o.printResult(name, "resumed")
}

// patch applies a merge patch to a NamespaceTemplate.
func (r *templateReader) patch(
	ctx context.Context, name string, patch []byte, options metav1.PatchOptions,
) (*unstructured.Unstructured, error) {
	options.FieldManager = commandName
	return r.client.Patch(ctx, name, types.MergePatchType, patch, options)
}

// revisions returns the stored revisions of a NamespaceTemplate, oldest first.
func (o *templateRolloutOptions) revisions(
	ctx context.Context, object *v1alpha1.NamespaceTemplate,
) ([]templates.Revision, error) {
	config, err := o.restConfig()
	if err != nil {
		return nil, err
	}
	client, err := appsv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf(msgClient, err)
	}
	namespace, err := o.systemNamespace(ctx)
	if err != nil {
		return nil, err
	}
	list, err := client.ControllerRevisions(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: v1alpha1.LabelTemplate + "=" + object.Name,
	})
	if err != nil {
		return nil, fmt.Errorf(msgRolloutList, object.Name, err)
	}
	return templates.Revisions(object, list.Items), nil
}

// systemNamespace returns the namespace of the operator.
func (s *session) systemNamespace(ctx context.Context) (string, error) {
	config, err := s.restConfig()
	if err != nil {
		return "", err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf(msgClient, err)
	}
	set, err := client.Resource(v1alpha1.GroupVersion.WithResource("namespaceinitializersets")).
		Get(ctx, v1alpha1.EffectiveSetName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf(msgRolloutOperator, err)
	}
	namespace, _, _ := unstructured.NestedString(set.Object, "systemNamespace")
	if namespace == "" {
		return "", fmt.Errorf(msgRolloutNoOperator, v1alpha1.EffectiveSetName)
	}
	return namespace, nil
}

// history prints the revisions of a NamespaceTemplate, or the content of one.
func (o *templateRolloutOptions) history(ctx context.Context, name string) error {
	if o.revision < 0 {
		return fmt.Errorf(msgRolloutRevisionNumber, o.revision)
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
		printf(o.ErrOut, msgRolloutNoHistory, name)
		return nil
	}
	return printHistory(o.Out, object, revisions, time.Now())
}

var historyColumns = []string{"Revision", "Name", "Age", "State"}

func printHistory(
	out io.Writer, object *v1alpha1.NamespaceTemplate, revisions []templates.Revision, now time.Time,
) error {
	table := &metav1.Table{ColumnDefinitions: printer.Columns(historyColumns...)}
	for _, revision := range revisions {
		var states []string
		if revision.Name == templates.SpecRevision(object) {
			states = append(states, "Latest")
		}
		if revision.Name == object.Status.CurrentRevision {
			states = append(states, "Current")
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			revision.Number, revision.Name, printer.Age(revision.Created, now), printer.OrNone(strings.Join(states, ", ")),
		}})
	}
	return printer.PrintTable(out, table, printer.TableOptions{Columns: printer.Width(out)})
}
