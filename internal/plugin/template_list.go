// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// maxParallelReviews is the maximum number of access reviews that are sent in parallel.
const maxParallelReviews = 8

type templateListOptions struct {
	*session
	output printer.Output
}

// templateSummary is what a user needs to choose a template.
type templateSummary struct {
	Name   string                  `json:"name"`
	Access v1alpha1.TemplateAccess `json:"access"`
	// IsUsable is true if the user can choose the template, and nil if this is not known.
	IsUsable   *bool                        `json:"usable,omitempty"`
	Parameters []v1alpha1.TemplateParameter `json:"parameters"`
}

func newTemplateListCommand(session *session) *cobra.Command {
	options := &templateListOptions{session: session}
	command := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the NamespaceTemplates that you can choose, with their parameters",
		Long: `List NamespaceTemplates with their parameters, and whether you can choose them.

All users can choose a template with open access. A restricted template requires the verb
"use" on it.`,
		Example: `  # List the templates
  kubectl nslifecycle template list

  # Print the names of the templates that you can choose
  kubectl nslifecycle template list -o json | jq -r '.items[] | select(.usable) | .name'`,
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              runWithContext(options.run),
	}
	options.output.AddTableFlags(command)
	return command
}

func (o *templateListOptions) run(ctx context.Context, _ []string) error {
	reader, err := o.templates()
	if err != nil {
		return err
	}
	list, err := reader.list(ctx)
	if err != nil {
		return err
	}
	summaries := make([]templateSummary, 0, len(list))
	for i := range list {
		summaries = append(summaries, templateSummary{
			Name: list[i].Name, Access: cmp.Or(list[i].Spec.Access, v1alpha1.AccessOpen),
			Parameters: append([]v1alpha1.TemplateParameter{}, list[i].Spec.Parameters...),
		})
	}
	slices.SortFunc(summaries, func(a, b templateSummary) int { return cmp.Compare(a.Name, b.Name) })
	unknown, err := o.reviewAccess(ctx, summaries)
	if err != nil {
		return err
	}
	if err := o.print(summaries); err != nil {
		return err
	}
	o.warnEach("Access to some templates is unknown", unknown)
	return ctx.Err()
}

// reviewAccess computes which templates the user can choose. It sends a request only for restricted
// templates, and returns why reviews failed.
func (o *templateListOptions) reviewAccess(ctx context.Context, summaries []templateSummary) ([]string, error) {
	client, err := newClient(o.session, authorizationclient.NewForConfig)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(summaries))
	workqueue.ParallelizeUntil(ctx, maxParallelReviews, len(summaries), func(i int) {
		summary := &summaries[i]
		isUsable := summary.Access != v1alpha1.AccessRestricted
		if !isUsable {
			isUsable, errs[i] = canUse(ctx, client, summary.Name)
		}
		if errs[i] == nil {
			summary.IsUsable = &isUsable
		}
	})
	var unknown []string
	for i, err := range errs {
		if err != nil {
			unknown = append(unknown, fmt.Sprintf("%s: %v", summaries[i].Name, err))
		}
	}
	return unknown, nil
}

func canUse(ctx context.Context, client authorizationclient.AuthorizationV1Interface, name string) (bool, error) {
	review, err := client.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: v1alpha1.VerbUse, Group: templateResource.Group, Resource: templateResource.Resource, Name: name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

func (o *templateListOptions) print(summaries []templateSummary) error {
	if o.output.IsStructured() {
		return o.output.Print(o.Out, "TemplateSummaryList", printer.Items(summaries))
	}
	if len(summaries) == 0 {
		fmt.Fprintln(o.ErrOut, "No NamespaceTemplates found.")
		return nil
	}
	return o.output.NewTable(o.Out).Print(templateTable(summaries))
}

// templateTable returns a table with one row for each parameter.
func templateTable(summaries []templateSummary) *metav1.Table {
	table := printer.NewTable(
		"Name", "Access", "Usable", "Parameter", "Values", "Default", "Description",
	)
	for _, summary := range summaries {
		usable := "unknown"
		if summary.IsUsable != nil {
			usable = "no"
			if *summary.IsUsable {
				usable = "yes"
			}
		}
		cells := []any{summary.Name, string(summary.Access), usable}
		if len(summary.Parameters) == 0 {
			printer.AddRow(table, append(cells, printer.OrNone(""), "", "", "")...)
		}
		for i := range summary.Parameters {
			parameter := &summary.Parameters[i]
			printer.AddRow(table, append(slices.Clone(cells),
				parameter.Name, parameterValues(parameter), parameterDefault(parameter), parameterDescription(parameter))...)
			cells = []any{"", "", ""}
		}
	}
	return table
}

func parameterValues(parameter *v1alpha1.TemplateParameter) string {
	return cmp.Or(strings.Join(parameter.Enum, ", "), parameter.Pattern, "<any>")
}

func parameterDefault(parameter *v1alpha1.TemplateParameter) string {
	switch {
	case parameter.Required:
		return "<required>"
	case parameter.Default != nil:
		return printer.OrNone(*parameter.Default)
	}
	return printer.OrNone("")
}

func parameterDescription(parameter *v1alpha1.TemplateParameter) string {
	text := strings.Join(strings.Fields(parameter.Description), " ")
	if text != "" {
		text = printer.Sentence(text)
	}
	if parameter.LabelKey != "" {
		text += fmt.Sprintf(" Set the label %s.", parameter.LabelKey)
	}
	if templateset.IsList(parameter) {
		text += fmt.Sprintf(" A list of at most %d elements, separated by commas.", templateset.MaxItems(parameter))
	}
	if parameter.Immutable {
		text += " Immutable."
	}
	return strings.TrimSpace(text)
}
