// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// MatchResult states whether a template is applied to a Namespace.
type MatchResult string

const (
	// MatchSelected means that the template is applied to the Namespace.
	MatchSelected MatchResult = "Selected"
	// MatchNotApplied means that the template selects the Namespace, but is not applied to it.
	MatchNotApplied MatchResult = "NotApplied"
	// MatchNearlySelected means that the template would select the Namespace if one label had no typing error.
	MatchNearlySelected MatchResult = "NearlySelected"
	// MatchNotSelected means that the template does not select the Namespace.
	MatchNotSelected MatchResult = "NotSelected"
)

// Match is whether a template is applied to a Namespace and, if not, why not.
type Match struct {
	Result MatchResult `json:"selection"`
	// Reason is a clause that states why the template is not applied; empty if it is.
	Reason string `json:"reason,omitempty"`
}

// ComputeMatch returns whether a template is applied to a Namespace with a recorded state. A label that the selector of
// another one of all templates requires has no typing error. ComputeMatch does not know which Namespaces are exempt.
func ComputeMatch(
	template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, state Record, all []v1alpha1.NamespaceTemplate,
) Match {
	switch {
	case template.DeletionTimestamp != nil:
		return Match{MatchNotSelected, "the template is being deleted"}
	case IsLate(template, namespace, state):
		return Match{MatchNotApplied, reasonNotApplied(template, namespace)}
	case Selects(template, namespace):
		return Match{Result: MatchSelected}
	}
	if reason := reasonNearlySelected(template, namespace.Labels, all); reason != "" {
		return Match{MatchNearlySelected, reason}
	}
	return Match{MatchNotSelected, reasonNotSelected(template, namespace.Labels)}
}

// reasonNotApplied returns why a template that selects a Namespace is not applied to it, see Applies.
func reasonNotApplied(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) string {
	reason := "the template did not select the namespace when the namespace was created"
	switch {
	case namespace.CreationTimestamp.Before(&template.CreationTimestamp):
		reason = "the namespace is older than the template"
	case HasSelected(template, namespace):
		reason = "the namespace was initialized without the template"
	}
	if template.Spec.Scope == v1alpha1.ScopeAllNamespaces {
		return reason + "; the template is applied after the initialization"
	}
	return reason + ", and spec.scope is not " + string(v1alpha1.ScopeAllNamespaces)
}

// maxReasons is the maximum number of requirements that reasonNotSelected describes.
const maxReasons = 3

// reasonNotSelected returns why a template does not select a Namespace with these labels.
func reasonNotSelected(template *v1alpha1.NamespaceTemplate, labels map[string]string) string {
	selector := template.Spec.NamespaceSelector
	if selector == nil {
		return fmt.Sprintf("the template has no namespaceSelector, and the namespace has no label %s=%s",
			v1alpha1.LabelTemplate, template.Name)
	}
	unmet := slices.SortedFunc(initialization.UnmetRequirements(selector, labels),
		func(a, b v1alpha1.NamespaceSelectorRequirement) int { return strings.Compare(a.Key, b.Key) })
	var reasons []string
	for _, requirement := range unmet[:min(len(unmet), maxReasons)] {
		reason := "the template requires " + requirementText(requirement)
		if value, ok := labels[requirement.Key]; ok && requirement.Operator == metav1.LabelSelectorOpIn {
			reason += fmt.Sprintf(", and the value is %q", value)
		}
		reasons = append(reasons, reason)
	}
	if more := len(unmet) - len(reasons); more > 0 {
		reasons = append(reasons, "not met: "+printable.Count(more, "more requirement"))
	}
	return strings.Join(reasons, "; ")
}

func requirementText(requirement v1alpha1.NamespaceSelectorRequirement) string {
	values := make([]string, 0, len(requirement.Values))
	for _, value := range requirement.Values {
		values = append(values, string(value))
	}
	switch list := strings.Join(values, ", "); {
	case requirement.Operator == metav1.LabelSelectorOpIn && len(values) == 1:
		return fmt.Sprintf("label %s=%s", requirement.Key, list)
	case requirement.Operator == metav1.LabelSelectorOpIn:
		return fmt.Sprintf("label %s in (%s)", requirement.Key, list)
	case requirement.Operator == metav1.LabelSelectorOpNotIn:
		return fmt.Sprintf("label %s not in (%s)", requirement.Key, list)
	case requirement.Operator == metav1.LabelSelectorOpExists:
		return "label " + requirement.Key
	}
	return "no label " + requirement.Key
}

// reasonNearlySelected returns which label has a typing error; empty if none has. A correction is one that makes the
// template select the Namespace. A wrong value of the label with the name of a template is none, because the API server
// has rejected it unless it names another template.
func reasonNearlySelected(
	template *v1alpha1.NamespaceTemplate, labels map[string]string, all []v1alpha1.NamespaceTemplate,
) string {
	isSelected := func(key, value string) bool {
		corrected := maps.Clone(labels)
		corrected[key] = value
		return initialization.SelectsTemplate(template.Name, template.Spec.NamespaceSelector, corrected)
	}
	var others []wantedLabel
	for i := range all {
		others = append(others, wantedLabels(&all[i])...)
	}
	required := wantedLabels(template)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value := labels[key]
		isOther := func(other wantedLabel) bool { return other.key == key }
		for _, wanted := range required {
			_, hasKey := labels[wanted.key]
			switch {
			case key == wanted.key && key != v1alpha1.LabelTemplate && isTypo(value, wanted.value) &&
				isSelected(key, wanted.value) && !slices.Contains(others, wantedLabel{key, value}):
				return fmt.Sprintf("label %s has the value %q: the template requires %q", key, value, wanted.value)
			case !hasKey && isTypo(key, wanted.key) && isSelected(wanted.key, value) && !slices.ContainsFunc(others, isOther):
				return fmt.Sprintf("label %s: the template requires the key %s", key, wanted.key)
			}
		}
	}
	return ""
}

// wantedLabel is a label with which a template can select a Namespace. The value is empty if it has no meaning.
type wantedLabel struct{ key, value string }

// wantedLabels returns the label with the name of a template, and then the labels that its selector requires, sorted.
func wantedLabels(template *v1alpha1.NamespaceTemplate) []wantedLabel {
	var wanted []wantedLabel
	if selector := template.Spec.NamespaceSelector; selector != nil {
		for requirement := range initialization.UnmetRequirements(selector, nil) {
			if len(requirement.Values) == 0 {
				wanted = append(wanted, wantedLabel{key: requirement.Key})
			}
			for _, value := range requirement.Values {
				wanted = append(wanted, wantedLabel{requirement.Key, string(value)})
			}
		}
	}
	slices.SortFunc(wanted, func(a, b wantedLabel) int {
		return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.value, b.value))
	})
	return slices.Insert(wanted, 0, wantedLabel{v1alpha1.LabelTemplate, template.Name})
}

const (
	// minTypo is the minimum length of a text, or of a part between separators, that can have a typing error. One of at
	// least minTwoEdits characters can have two, unless the first character differs, as in internal and external.
	minTypo, minTwoEdits = 4, 8

	digits     = "0123456789"
	separators = "-_./"
)

// isTypo reports whether a text is probably another one with a typing error. Texts that differ in numbers or in short
// parts, such as team-a and team-b, are different names.
func isTypo(text, wanted string) bool {
	isNumber := strings.Join(split(text, digits), "") == strings.Join(split(wanted, digits), "")
	if isNumber || !isNear(text, wanted) {
		return false
	}
	parts, wantedParts := split(text, separators), split(wanted, separators)
	if len(parts) != len(wantedParts) {
		return true // A separator is missing, or is too many.
	}
	for i := range parts {
		if parts[i] != wantedParts[i] && !isNear(parts[i], wantedParts[i]) {
			return false
		}
	}
	return true
}

func isNear(text, wanted string) bool {
	length, edits := min(len(text), len(wanted)), 1
	if length >= minTwoEdits && text[0] == wanted[0] {
		edits = 2
	}
	return length >= minTypo && isWithin(text, wanted, edits)
}

func split(text, separators string) []string {
	return strings.FieldsFunc(text, func(char rune) bool { return strings.ContainsRune(separators, char) })
}

// isWithin reports whether at most the given number of insertions, deletions, replacements and swaps of neighboring
// characters change one text to another.
func isWithin(a, b string, edits int) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	switch {
	case max(len(a), len(b))-min(len(a), len(b)) > edits:
		return false
	case a == "" || b == "":
		return true
	case edits == 0:
		return false
	}
	return isWithin(a[1:], b[1:], edits-1) || isWithin(a[1:], b, edits-1) || isWithin(a, b[1:], edits-1) ||
		len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] && isWithin(a[2:], b[2:], edits-1)
}
