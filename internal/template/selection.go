// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

// Selects reports whether a template selects a Namespace, by name or by its selector. The cache does not know all
// labels of a partial Namespace, which the template then may select.
func Selects(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) bool {
	return nscache.IsPartial(namespace) ||
		initialization.SelectsTemplate(template.Name, template.Spec.NamespaceSelector, namespace.Labels)
}

// IsInitializedHere reports whether the templates of a Namespace are applied before it opens.
func IsInitializedHere(namespace *corev1.Namespace) bool {
	return slices.Contains(initialization.ParseState(namespace).Pending, v1alpha1.TemplatesInitializer)
}

// hasSelected reports whether a template with this name selected a Namespace in the request that created it.
// Only for that request and for later ones, the templates policy has checked that the user may use the
// template.
func hasSelected(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) bool {
	selected := initialization.SplitNames(namespace.Annotations[v1alpha1.AnnotationSelectedTemplates])
	return slices.Contains(selected, template.Name)
}

// Applies reports whether a template is applied to a Namespace that it selects: while the Namespace is
// initializing, only if it was created with the template; afterwards, if it contains the template or has opened
// without it, or if the template extends to existing Namespaces.
func Applies(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, state State) bool {
	if !Selects(template, namespace) {
		return false
	}
	if IsInitializedHere(namespace) {
		return hasSelected(template, namespace)
	}
	_, isRecorded := state[template.Name]
	return isRecorded || template.Spec.ExistingNamespaces || hasTimedOut(template, namespace)
}

// hasTimedOut reports whether the initializer for templates timed out in a Namespace that was created with the
// template. A template that was created after the timeout is another one with the same name.
func hasTimedOut(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) bool {
	condition := nscondition.Find(namespace, v1alpha1.TemplatesInitializer+v1alpha1.ConditionInitializedSuffix)
	return condition != nil && condition.Reason == v1alpha1.ReasonTimedOut && hasSelected(template, namespace) &&
		!condition.LastTransitionTime.Before(&template.CreationTimestamp)
}

// IsOutdated reports whether the operator must still update a Namespace to a revision of a template.
func IsOutdated(
	template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, state State, revision string,
) bool {
	recorded, isRecorded := state[template.Name]
	if nscache.IsPartial(namespace) && !isRecorded {
		return false // The rollout does not wait for a Namespace that the template may not select.
	}
	isKept := recorded.Revision != "" && template.Spec.Sync.Mode == v1alpha1.SyncOnce && !IsInitializedHere(namespace)
	return namespace.DeletionTimestamp == nil && !isKept && recorded.Revision != revision &&
		Applies(template, namespace, state)
}

// applicable returns the templates to apply to a Namespace, sorted by name. A template that does not fit into the set
// is not added to a Namespace, because the admission policies do not check who selects it.
func (a *Applier) applicable(
	templates []v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, state State,
) []*v1alpha1.NamespaceTemplate {
	// Most passes add no template.
	omitted := sync.OnceValue(func() sets.Set[string] { return a.Programs.Omitted(templates) })
	var found []*v1alpha1.NamespaceTemplate
	for i := range templates {
		template := &templates[i]
		_, isRecorded := state[template.Name]
		if template.DeletionTimestamp == nil && Applies(template, namespace, state) &&
			(isRecorded || !omitted().Has(template.Name)) {
			found = append(found, template)
		}
	}
	slices.SortFunc(found, func(a, b *v1alpha1.NamespaceTemplate) int { return cmp.Compare(a.Name, b.Name) })
	return found
}
