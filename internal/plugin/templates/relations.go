// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// Relation is how a NamespaceTemplate relates to a Namespace.
type Relation struct {
	Template string `json:"template"`
	// Match is whether the template is applied; nil if the template could not be read.
	*template.Match `json:",inline"`
	// Revision is the revision that the Namespace contains, and Target that which is being applied; empty if there is
	// none.
	Revision string `json:"revision,omitempty"`
	Target   string `json:"targetRevision,omitempty"`
	// UpdateRevision is the latest revision; empty if it is not known.
	UpdateRevision string `json:"updateRevision,omitempty"`
	// IsOutdated is true if the operator must still update the Namespace.
	IsOutdated bool `json:"outdated,omitempty"`
	// Failures are why objects are not applied to the Namespace.
	Failures []v1alpha1.TemplateFailure `json:"failures,omitempty"`
	// Problem is why the template, whose objects the Namespace does not contain, is applied to no Namespace.
	Problem string `json:"problem,omitempty"`
	// IsUnknown is true if it is not known whether the template fails in the Namespace.
	IsUnknown bool `json:"unknown,omitempty"`
	// Note is why the operator does not update the Namespace, or what is not known; empty if there is nothing.
	Note string `json:"note,omitempty"`
}

// IsFailing reports whether the Namespace does not contain what the template specifies, for a reason that is known.
func (r *Relation) IsFailing() bool { return len(r.Failures) > 0 || r.Problem != "" }

// ComputeRelations returns how templates relate to a Namespace, sorted by name. Without the templates, it contains
// what the Namespace records.
func ComputeRelations(all []v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) []Relation {
	state, stateErr := template.ParseRecord(namespace)
	var relations []Relation
	for i := range all {
		relation := computeRelation(&all[i], namespace, state, all)
		if stateErr != nil && relation.Result == template.MatchSelected {
			relation.Problem = stateErr.Error()
		}
		relations = append(relations, relation)
		delete(state, all[i].Name)
	}
	for name, entry := range state {
		relations = append(relations, Relation{Template: name, Revision: entry.Revision, Target: entry.Target})
	}
	slices.SortFunc(relations, func(a, b Relation) int { return cmp.Compare(a.Template, b.Template) })
	return relations
}

func computeRelation(
	tmpl *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, state template.Record, all []v1alpha1.NamespaceTemplate,
) Relation {
	recorded, status := state[tmpl.Name], &tmpl.Status
	relation := Relation{
		Template: tmpl.Name, Match: ptr.To(template.ComputeMatch(tmpl, namespace, state, all)),
		Revision: recorded.Revision, Target: recorded.Target, UpdateRevision: status.UpdateRevision,
	}
	if relation.Result != template.MatchSelected {
		return relation
	}
	relation.IsOutdated = template.IsOutdated(tmpl, namespace, state, status.UpdateRevision)
	for _, failure := range status.Failures {
		if failure.Namespace == namespace.Name {
			relation.Failures = append(relation.Failures, failure)
		}
	}
	problem := problemOf(status)
	if recorded.Revision == "" || recorded.Target != "" {
		relation.Problem, problem = problem, ""
	}
	progressing := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionProgressing)
	switch {
	case len(status.Conditions) == 0:
		relation.IsUnknown, relation.Note = true, "The operator has not observed the template yet."
	case relation.IsFailing():
	case mayOmit(status, namespace.Name):
		relation.IsUnknown = true
		relation.Note = "The template fails in more namespaces than its status lists: see the Events of the namespace."
	case problem != "":
		relation.Note = problem
	case relation.IsOutdated && progressing != nil && slices.Contains([]string{
		v1alpha1.ReasonPaused, v1alpha1.ReasonPausedAfterFailures, v1alpha1.ReasonWaitingForMinReadySeconds,
	}, progressing.Reason):
		relation.Note = progressing.Message
	}
	return relation
}

// UnusedSettings returns sentences about the label and the annotations with which a Namespace chooses a template that
// does not exist, or parameters that no template with one of these relations has.
func UnusedSettings(
	all []v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, relations []Relation,
) []string {
	var unused []string
	names, parameters := sets.Set[string]{}, sets.Set[string]{}
	for i := range all {
		names.Insert(all[i].Name)
		isSelected := slices.ContainsFunc(relations, func(relation Relation) bool {
			return relation.Template == all[i].Name && relation.Result == template.MatchSelected
		})
		for _, parameter := range all[i].Spec.Parameters {
			if isSelected && parameter.LabelKey == "" {
				parameters.Insert(v1alpha1.PrefixParameter + parameter.Name)
			}
		}
	}
	if chosen := namespace.Labels[v1alpha1.LabelTemplate]; chosen != "" && !names.Has(chosen) {
		unused = append(unused, fmt.Sprintf("Label %s: NamespaceTemplate %q does not exist.", v1alpha1.LabelTemplate, chosen))
	}
	for _, key := range slices.Sorted(maps.Keys(namespace.Annotations)) {
		if strings.HasPrefix(key, v1alpha1.PrefixParameter) && !parameters.Has(key) {
			unused = append(unused, fmt.Sprintf("Annotation %s: no template that is applied has this parameter.", key))
		}
	}
	return unused
}

// problemOf returns why a template is invalid or unauthorized, without the RBAC objects; empty if it is neither.
func problemOf(status *v1alpha1.NamespaceTemplateStatus) string {
	for _, name := range []string{v1alpha1.ConditionValid, v1alpha1.ConditionAuthorized} {
		if found := meta.FindStatusCondition(status.Conditions, name); found != nil && found.Status == metav1.ConditionFalse {
			message, _, _ := strings.Cut(found.Message, "\n")
			return fmt.Sprintf("%s: %s", found.Reason, message)
		}
	}
	return ""
}

// mayOmit reports whether the status of a template may omit the failures of a Namespace: it lists only the first
// failures, sorted by Namespace.
func mayOmit(status *v1alpha1.NamespaceTemplateStatus, namespace string) bool {
	listed := sets.Set[string]{}
	for _, failure := range status.Failures {
		if listed.Insert(failure.Namespace); failure.Namespace >= namespace {
			return false
		}
	}
	counts := ptr.Deref(status.Namespaces, v1alpha1.TemplateNamespaceCounts{})
	return int(counts.Failed+counts.Conflicted) > listed.Len()
}
