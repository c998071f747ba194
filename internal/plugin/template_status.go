// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

const (
	// maxOutdated is the number of namespaces whose names are printed.
	maxOutdated = 5
	// maxFailureMessage is the length of the message of a failure.
	maxFailureMessage = 200
)

var failureColumns = []string{"Namespace", "Object", "Reason", "Message"}

type templateStatusOptions struct {
	*session
	output *printer.Output
}

// templateStatus is the document that the status command prints.
type templateStatus struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	v1alpha1.NamespaceTemplateStatus
	// Outdated are the names of the selected namespaces that do not record the revision of the spec.
	Outdated []string `json:"outdated"`
	// Late are the names of the namespaces that the template selects, but that were not created with it.
	Late []string `json:"late"`
}

func newTemplateStatusCommand(session *session) *cobra.Command {
	options := &templateStatusOptions{
		session: session, output: printer.NewOutput(printer.FormatJSON, printer.FormatYAML),
	}
	command := &cobra.Command{
		Use:               "status NAME",
		Short:             shortTemplateStatus,
		Long:              longTemplateStatus,
		Example:           exampleTemplateStatus,
		Args:              oneTemplate,
		ValidArgsFunction: session.completeTemplate,
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args[0])
		},
	}
	options.output.AddFlag(command)
	return command
}

func (o *templateStatusOptions) run(ctx context.Context, name string) error {
	if err := o.output.Validate(); err != nil {
		return err
	}
	_, object, err := o.template(ctx, name)
	if err != nil {
		return err
	}
	status := &templateStatus{
		Metadata: metav1.ObjectMeta{
			Name: object.Name, UID: object.UID, Generation: object.Generation, CreationTimestamp: object.CreationTimestamp,
		},
		NamespaceTemplateStatus: object.Status, Outdated: []string{}, Late: []string{},
	}
	if namespaces, err := o.listNamespaces(ctx, ""); err != nil {
		o.warnf("%v", err)
	} else {
		for i := range namespaces {
			if isOutdated(object, &namespaces[i]) {
				status.Outdated = append(status.Outdated, namespaces[i].Name)
			}
			if isLate(object, &namespaces[i]) {
				status.Late = append(status.Late, namespaces[i].Name)
			}
		}
		slices.Sort(status.Outdated)
		slices.Sort(status.Late)
	}
	if o.output.IsStructured() {
		err = o.output.Print(o.Out, "TemplateStatus", status)
	} else {
		err = o.print(object, status)
	}
	if err == nil && isBlocked(status) {
		err = &StatusError{Code: ExitBlocked}
	}
	return err
}

// isOutdated reports whether the operator must still update a namespace.
func isOutdated(object *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) bool {
	state, err := template.ParseState(namespace)
	if err != nil {
		return template.Selects(object, namespace)
	}
	return template.IsOutdated(object, namespace, state, object.Status.Revision)
}

// isLate reports whether the template selects a namespace that was not created with it.
func isLate(object *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) bool {
	state, err := template.ParseState(namespace)
	return err == nil && template.IsLate(object, namespace, state)
}

// isBlocked reports whether a user must act.
func isBlocked(status *templateStatus) bool {
	return meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionValid) ||
		meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionAuthorized) ||
		len(status.Failures) > 0
}

func (o *templateStatusOptions) print(object *v1alpha1.NamespaceTemplate, status *templateStatus) error {
	var text bytes.Buffer
	width, colors := printer.TextWidth(o.Out), printer.NewPalette(o.Out)
	fmt.Fprintf(&text, msgStatusTitle+"\n", object.Name, cmp.Or(status.Revision, "<unknown>"),
		cmp.Or(object.Spec.Access, v1alpha1.AccessOpen), object.Spec.ServiceAccountName)
	if status.CurrentRevision != "" && status.CurrentRevision != status.Revision {
		fmt.Fprintf(&text, msgStatusCurrent+"\n", status.CurrentRevision)
	}
	if len(status.Conditions) == 0 {
		fmt.Fprintln(&text, "\n"+msgStatusUnknown)
	} else {
		fmt.Fprintln(&text)
	}
	for i := range status.Conditions {
		writeCondition(&text, &status.Conditions[i], width, colors)
	}
	if counts := status.Namespaces; counts != nil {
		fmt.Fprintf(&text, "\n"+msgStatusNamespaces+"\n", counts.Selected, counts.Ready, counts.Pending, counts.Failed,
			counts.Conflicted)
	}
	writeNames(&text, msgStatusOutdated, status.Outdated, width)
	writeNames(&text, msgStatusLate, status.Late, width)
	if err := writeFailures(&text, status.Failures, printer.Width(o.Out)); err != nil {
		return err
	}
	_, err := o.Out.Write(text.Bytes())
	return err
}

// writeNames writes the first names of namespaces, if there are any.
func writeNames(text *bytes.Buffer, format string, all []string, width int) {
	if len(all) == 0 {
		return
	}
	names := all[:min(len(all), maxOutdated)]
	list := strings.Join(names, ", ")
	if more := len(all) - len(names); more > 0 {
		list += fmt.Sprintf(", and %d more", more)
	}
	fmt.Fprintln(text, printer.Wrap(fmt.Sprintf(format, list), width))
}

// writeCondition writes a condition. Its message can have several lines, for example missing RBAC rules.
func writeCondition(text *bytes.Buffer, condition *metav1.Condition, width int, colors printer.Palette) {
	const column = 22
	status := fmt.Sprintf("%-7s", condition.Status)
	isGood := condition.Status == metav1.ConditionTrue
	if condition.Type == v1alpha1.ConditionProgressing || condition.Type == v1alpha1.ConditionConflicted {
		isGood = condition.Status == metav1.ConditionFalse
	}
	if !isGood {
		status = colors.Yellow(status)
	}
	indent := strings.Repeat(" ", column)
	message := strings.ReplaceAll(printer.Wrap(condition.Message, width-column), "\n", "\n"+indent)
	fmt.Fprintf(text, "%-*s %s%s\n", column-len("Unknown")-1, condition.Type, status, message)
}

func writeFailures(text *bytes.Buffer, failures []v1alpha1.TemplateFailure, columns int) error {
	if len(failures) == 0 {
		return nil
	}
	fmt.Fprintln(text)
	table := &metav1.Table{ColumnDefinitions: printer.Columns(failureColumns...)}
	for _, failure := range failures {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			failure.Namespace, printer.OrNone(failure.Object), failure.Reason,
			printer.Shorten(failure.Message, maxFailureMessage),
		}})
	}
	return printer.PrintTable(text, table, printer.TableOptions{Columns: columns})
}
