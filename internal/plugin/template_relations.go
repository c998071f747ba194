// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// maxNotSelected is the number of templates that do not select a namespace for which explain prints why.
const maxNotSelected = 3

// relationReader computes how the NamespaceTemplates of a cluster relate to its Namespaces.
type relationReader struct {
	all      []v1alpha1.NamespaceTemplate
	isExempt func(name string) bool
	// isServed is false if the API server serves no templates.
	isServed bool
	// unread is why the templates cannot be read; empty if they can, or if the API server does not serve them.
	unread []string
}

func (s *session) readRelations(ctx context.Context) (*relationReader, error) {
	reader, err := s.templates()
	if err != nil {
		return nil, err
	}
	relations := &relationReader{isExempt: func(string) bool { return false }}
	relations.all, err = reader.list(ctx)
	relations.isServed = !errors.Is(err, errTemplatesNotServed)
	switch {
	case err == nil:
		if len(relations.all) > 0 {
			relations.isExempt = s.isExempt(ctx)
		}
	case relations.isServed:
		relations.unread = []string{err.Error()}
	}
	return relations, ctx.Err()
}

// find returns the template with a name, or nil.
func (r *relationReader) find(name string) *v1alpha1.NamespaceTemplate {
	for i := range r.all {
		if r.all[i].Name == name {
			return &r.all[i]
		}
	}
	return nil
}

func (r *relationReader) of(namespace *corev1.Namespace) []templates.Relation {
	if r.isExempt(namespace.Name) || namespace.DeletionTimestamp != nil {
		return nil
	}
	return templates.ComputeRelations(r.all, namespace)
}

// unusedSettings returns sentences about the settings of a namespace that no template uses; none if the templates are
// not known.
func (r *relationReader) unusedSettings(namespace *corev1.Namespace, relations []templates.Relation) []string {
	if len(r.unread) > 0 || namespace.DeletionTimestamp != nil {
		return nil
	}
	return templates.UnusedSettings(r.all, namespace, relations)
}

// isFailing reports whether a template fails in a namespace.
func isFailing(relations []templates.Relation) bool {
	return slices.ContainsFunc(relations, func(relation templates.Relation) bool { return relation.IsFailing() })
}

// isUnknown reports whether it is not known whether a template fails in a namespace that has these relations.
func (r *relationReader) isUnknown(relations []templates.Relation) bool {
	return len(r.unread) > 0 ||
		slices.ContainsFunc(relations, func(relation templates.Relation) bool { return relation.IsUnknown })
}

// mayFail reports whether a template that can be read fails in a namespace, or may.
func (r *relationReader) mayFail(namespace *corev1.Namespace) bool {
	return slices.ContainsFunc(r.of(namespace), func(relation templates.Relation) bool {
		return relation.IsFailing() || relation.IsUnknown
	})
}

// relationText returns the result of a match and the revision.
func relationText(relation *templates.Relation) string {
	text := "recorded"
	if relation.Match != nil {
		text = matchTexts[relation.Result]
	}
	switch {
	case relation.Revision == "" && relation.Match != nil && relation.Result != template.MatchSelected:
		return text
	case relation.Revision == "":
		return text + ", not applied yet"
	case relation.IsOutdated:
		return fmt.Sprintf("%s, revision %s (outdated; the latest is %s)", text, relation.Revision, relation.UpdateRevision)
	case relation.Revision == relation.UpdateRevision:
		return fmt.Sprintf("%s, revision %s (current)", text, relation.Revision)
	}
	return fmt.Sprintf("%s, revision %s", text, relation.Revision)
}

var matchTexts = map[template.MatchResult]string{
	template.MatchSelected:       "selected",
	template.MatchNotApplied:     "selected, but not applied",
	template.MatchNearlySelected: "nearly selected",
	template.MatchNotSelected:    "not selected",
}

// relationBranches returns what explain prints about templates. Templates that fail come first.
func relationBranches(relations []templates.Relation) []printer.Branch {
	order := []template.MatchResult{
		template.MatchSelected, template.MatchNotApplied, template.MatchNearlySelected, template.MatchNotSelected,
	}
	rank := func(relation *templates.Relation) int {
		if relation.IsFailing() || relation.Match == nil {
			return -1
		}
		return slices.Index(order, relation.Result)
	}
	sorted := slices.SortedStableFunc(slices.Values(relations), func(a, b templates.Relation) int {
		return rank(&a) - rank(&b)
	})
	notSelected := slices.IndexFunc(sorted, func(relation templates.Relation) bool {
		return relation.Match != nil && relation.Result == template.MatchNotSelected && relation.Revision == ""
	})
	omitted := 0
	if notSelected >= 0 && len(sorted)-notSelected > maxNotSelected {
		omitted = len(sorted) - notSelected - maxNotSelected
	}
	branches := make([]printer.Branch, 0, len(sorted))
	for i := range sorted[:len(sorted)-omitted] {
		branches = append(branches, relationBranch(&sorted[i]))
	}
	if omitted > 0 {
		branches = append(branches, printer.Branch{Label: printable.Count(omitted, "more template"), Text: "not selected"})
	}
	return branches
}

func relationBranch(relation *templates.Relation) printer.Branch {
	branch := printer.Branch{Label: relation.Template, Text: relationText(relation)}
	if relation.Match != nil && relation.Reason != "" {
		branch.Children = append(branch.Children, printer.Branch{Text: printer.Sentence(relation.Reason)})
	}
	if relation.Note != "" {
		branch.Children = append(branch.Children, printer.Branch{Text: relation.Note})
	}
	if relation.Problem != "" {
		branch.Children = append(branch.Children, printer.Branch{Label: "Fails", Text: relation.Problem})
	}
	for _, failure := range relation.Failures {
		branch.Children = append(branch.Children, printer.Branch{Label: failureLabel(failure), Text: failureText(failure)})
	}
	return branch
}

// failureTexts returns why templates fail.
func failureTexts(relations []templates.Relation) []string {
	var texts []string
	for i := range relations {
		relation := &relations[i]
		if relation.Problem != "" {
			texts = append(texts, fmt.Sprintf("template %s: %s", relation.Template, relation.Problem))
		}
		for _, failure := range relation.Failures {
			texts = append(texts, fmt.Sprintf("template %s: %s", relation.Template, failureText(failure)))
		}
	}
	return texts
}

func failureLabel(failure v1alpha1.TemplateFailure) string {
	if (template.Problem{Reason: failure.Reason}).IsConflict() {
		return "Conflicts"
	}
	return "Fails"
}

// failureText returns a failure without the namespace and the template.
func failureText(failure v1alpha1.TemplateFailure) string {
	text := failure.Reason + ": " + failure.Message
	if failure.Object == "" {
		return text
	}
	return fmt.Sprintf("object %s: %s", failure.Object, text)
}
