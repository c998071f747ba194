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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// maxOutdated is the number of namespaces whose names are printed.
const maxOutdated = 5

const messageRetainedUnread = "There might be more objects that the operator does not delete"

type templateStatusOptions struct {
	*session
	output printer.Output
}

// templateStatus is the document that the status command prints.
type templateStatus struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	v1alpha1.NamespaceTemplateStatus
	// Outdated are the names of the namespaces that the operator must still update.
	Outdated []string `json:"outdated"`
	// Late are the names of the namespaces that the template selects, but that were not created with it.
	Late []string `json:"late"`
	// NearlySelected are the namespaces that the template would select without a typing error in a label.
	NearlySelected []nearlySelected `json:"nearlySelected"`
	// Retained are the objects that the template no longer contains, and that the operator does not delete.
	Retained []templates.RetainedObject `json:"retained,omitempty"`
}

// nearlySelected is a namespace that a template nearly selects.
type nearlySelected struct {
	Namespace string `json:"namespace"`
	Reason    string `json:"reason"`
}

func newTemplateStatusCommand(session *session) *cobra.Command {
	options := &templateStatusOptions{session: session}
	command := &cobra.Command{
		Use:   "status NAME",
		Short: "Show the state of a NamespaceTemplate",
		Long: `Show the conditions of a NamespaceTemplate, its first failures, the namespaces that do not
contain its revision, and the objects that it no longer contains, but that remain.

Exit status: 0 the operator can apply the template, 3 the template is invalid or unauthorized
or has failures, 1 error.`,
		Example: `  # Show the state of a template
  kubectl nslifecycle template status team

  # Print the namespaces that the operator must still update
  kubectl nslifecycle template status team -o json | jq -r '.outdated[]'`,
		Args:              oneTemplate,
		ValidArgsFunction: session.completeTemplate,
		RunE:              runWithContext(options.run),
	}
	options.output.AddFlag(command)
	return command
}

func (o *templateStatusOptions) run(ctx context.Context, args []string) error {
	name := args[0]
	reader, object, err := o.template(ctx, name)
	if err != nil {
		return err
	}
	all, err := reader.list(ctx)
	if err != nil {
		o.warnf("%v", err)
	}
	status := &templateStatus{
		Metadata: metav1.ObjectMeta{
			Name: object.Name, UID: object.UID, Generation: object.Generation, CreationTimestamp: object.CreationTimestamp,
		},
		NamespaceTemplateStatus: object.Status, Outdated: []string{}, Late: []string{},
		NearlySelected: []nearlySelected{},
	}
	if namespaces, err := o.templateNamespaces(ctx, ""); err != nil {
		o.warnf("%v", err)
	} else {
		var unread []string
		if status.Retained, unread = o.retainedObjects(ctx, name, namespaces...); len(unread) > 0 {
			o.warnEach(messageRetainedUnread, unread)
		}
		status.addNamespaces(object, namespaces, all)
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

// addNamespaces adds the namespaces that do not contain the latest revision of a template, or nearly get it.
func (s *templateStatus) addNamespaces(
	object *v1alpha1.NamespaceTemplate, namespaces []corev1.Namespace, all []v1alpha1.NamespaceTemplate,
) {
	for i := range namespaces {
		namespace := &namespaces[i]
		state, err := template.ParseRecord(namespace)
		if err != nil && template.Selects(object, namespace) ||
			err == nil && template.IsOutdated(object, namespace, state, object.Status.UpdateRevision) {
			s.Outdated = append(s.Outdated, namespace.Name)
		}
		if err != nil {
			continue
		}
		switch match := template.ComputeMatch(object, namespace, state, all); match.Result {
		case template.MatchNotApplied:
			s.Late = append(s.Late, namespace.Name)
		case template.MatchNearlySelected:
			s.NearlySelected = append(s.NearlySelected, nearlySelected{namespace.Name, match.Reason})
		}
	}
	slices.Sort(s.Outdated)
	slices.Sort(s.Late)
}

// retainedObjects returns the objects of a template, or of any if its name is empty, that remain in namespaces although
// the template no longer contains them. It ignores types that the user may not list. unread is what could not be listed
// for another reason.
func (s *session) retainedObjects(
	ctx context.Context, templateName string, namespaces ...corev1.Namespace,
) (retained []templates.RetainedObject, unread []string) {
	discoverer, client, err := s.contentClients()
	if err != nil {
		return nil, []string{err.Error()}
	}
	set, err := resourcetypes.Discover(ctx, discoverer)
	if err != nil {
		return nil, []string{err.Error()}
	}
	selector, scope := v1alpha1.LabelManagedByTemplate, ""
	if templateName != "" {
		selector += "=" + templateName
	}
	if len(namespaces) == 1 {
		scope = namespaces[0].Name
	}
	writable := slices.DeleteFunc(resourcetypes.Distinct(set.Types), func(one resourcetypes.Type) bool {
		return !one.Can("list") || !one.Can("patch")
	})
	contents := resourcetypes.ListSelected(ctx, client, scope, writable, selector, resourcetypes.Unlimited)
	for _, content := range contents {
		if content.Err != nil && !apierrors.IsForbidden(content.Err) {
			unread = append(unread, content.Err.Error())
		}
	}
	return templates.Retained(namespaces, contents), unread
}

// isBlocked reports whether a user must act.
func isBlocked(status *templateStatus) bool {
	return meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionValid) ||
		meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionAuthorized) ||
		len(status.Failures) > 0
}

func (o *templateStatusOptions) print(object *v1alpha1.NamespaceTemplate, status *templateStatus) error {
	var text bytes.Buffer
	fmt.Fprintln(&text, printer.Wrap(fmt.Sprintf("NamespaceTemplate %s, revision %s, access %s, ServiceAccount %s",
		object.Name, cmp.Or(status.UpdateRevision, "<unknown>"),
		cmp.Or(object.Spec.Access, v1alpha1.AccessOpen), object.Spec.ServiceAccountName)))
	if status.CurrentRevision != "" && status.CurrentRevision != status.UpdateRevision {
		fmt.Fprintf(&text, "New namespaces get revision %s until the rollout has completed.\n", status.CurrentRevision)
	}
	if len(status.Conditions) == 0 {
		fmt.Fprintln(&text, "\nThe operator has not observed the template yet.")
	} else {
		fmt.Fprintln(&text)
	}
	for i := range status.Conditions {
		writeCondition(&text, &status.Conditions[i])
	}
	if counts := status.Namespaces; counts != nil {
		fmt.Fprintf(&text, "\nNamespaces: %d desired, %d updated, %d outdated, %d failed, %d conflicted.\n", counts.Desired,
			counts.Updated, counts.Outdated, counts.Failed, counts.Conflicted)
	}
	writeNames(&text, "Without this revision: %s", status.Outdated)
	writeNames(&text, "Selected, but not created with the template, whose scope is NewNamespaces: %s", status.Late)
	nearly := make([]string, 0, len(status.NearlySelected))
	for _, one := range status.NearlySelected {
		nearly = append(nearly, fmt.Sprintf("%s (%s)", one.Namespace, one.Reason))
	}
	writeNames(&text, "Nearly selected: %s", nearly)
	retained := make([]string, 0, len(status.Retained))
	for _, one := range status.Retained {
		retained = append(retained, fmt.Sprintf("%s in %s", one, one.Namespace))
	}
	writeNames(&text, "No longer contained, but not deleted: %s", retained)
	writeFailures(&text, status.Failures)
	_, err := o.Out.Write(text.Bytes())
	return err
}

// writeNames writes the first names of namespaces, if there are any.
func writeNames(text *bytes.Buffer, format string, all []string) {
	if len(all) == 0 {
		return
	}
	names := all[:min(len(all), maxOutdated)]
	list := strings.Join(names, ", ")
	if more := len(all) - len(names); more > 0 {
		list += fmt.Sprintf(", and %d more", more)
	}
	fmt.Fprintln(text, printer.Wrap(fmt.Sprintf(format, list)))
}

// writeCondition writes a condition. Its message can have several lines, for example missing RBAC rules.
func writeCondition(text *bytes.Buffer, condition *metav1.Condition) {
	const column = 22
	message := strings.TrimSpace(printer.WrapIndented(condition.Message, strings.Repeat(" ", column)))
	fmt.Fprintf(text, "%-*s %-7s%s\n", column-len("Unknown")-1, condition.Type, condition.Status, message)
}

// writeFailures writes each failure with its whole message, and what ends it.
func writeFailures(text *bytes.Buffer, failures []v1alpha1.TemplateFailure) {
	for _, failure := range failures {
		message := "namespace/" + failure.Namespace
		if failure.Object != "" {
			message += ", object " + failure.Object
		}
		message += ": " + failure.Reason + ": " + failure.Message
		if remedy := (template.Problem{Reason: failure.Reason, Message: failure.Message}).Remedy(); remedy != "" {
			message = strings.TrimSuffix(message, ".") + ". To fix it, " + remedy + "."
		}
		fmt.Fprintf(text, "\n%s\n", printer.Wrap(printable.Escape(message)))
	}
}
