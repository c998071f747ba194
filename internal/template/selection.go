// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// IsLate reports whether a template selects a Namespace but is not applied to it, because it was not created with the
// template.
func IsLate(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, state Record) bool {
	return template.DeletionTimestamp == nil && Selects(template, namespace) && !Applies(template, namespace, state)
}

// Selects reports whether a template selects a Namespace, by name or by its selector. The cache does not know all
// labels of a partial Namespace, which the template then may select.
func Selects(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) bool {
	return nscache.IsPartial(namespace) ||
		initialization.SelectsTemplate(template.Name, template.Spec.NamespaceSelector, namespace.Labels)
}

// AwaitsTemplates reports whether a Namespace is not initialized before its templates are applied.
func AwaitsTemplates(namespace *corev1.Namespace) bool {
	return slices.Contains(initialization.ParseState(namespace).Pending, v1alpha1.TemplatesInitializer)
}

// HasSelected reports whether a template with this name selected a Namespace in the request that created it.
// Only for that request and for later ones, the templates policy has checked that the user may use the
// template.
func HasSelected(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) bool {
	selected := initialization.SplitNames(namespace.Annotations[v1alpha1.AnnotationSelectedTemplates])
	return slices.Contains(selected, template.Name)
}

// Applies reports whether a template is applied to a Namespace that it selects: while the Namespace is
// initializing, only if it was created with the template; afterwards, if it contains the template or was initialized
// without it, or if the template extends to existing Namespaces.
func Applies(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, state Record) bool {
	if !Selects(template, namespace) {
		return false
	}
	if AwaitsTemplates(namespace) {
		return HasSelected(template, namespace)
	}
	_, isRecorded := state[template.Name]
	return isRecorded || template.Spec.Scope == v1alpha1.ScopeAllNamespaces || hasTimedOut(template, namespace)
}

// hasTimedOut reports whether the initializer for templates timed out in a Namespace that was created with the
// template. A template that was created after the timeout is another one with the same name.
func hasTimedOut(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) bool {
	condition := nsobject.FindCondition(namespace, v1alpha1.TemplatesInitializer+v1alpha1.ConditionInitializedSuffix)
	return condition != nil && condition.Reason == v1alpha1.ReasonTimedOut && HasSelected(template, namespace) &&
		!condition.LastTransitionTime.Before(&template.CreationTimestamp)
}

// MustApply reports whether a template is applied to a Namespace, as far as the cache knows: it may select a partial
// Namespace that does not record it.
func MustApply(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, state Record) bool {
	_, isRecorded := state[template.Name]
	return (isRecorded || !nscache.IsPartial(namespace)) && Applies(template, namespace, state)
}

// IsKept reports whether a Namespace keeps what it contains of a template that is applied only once.
func IsKept(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, recorded Entry) bool {
	return recorded.Revision != "" && template.Spec.Sync.Mode == v1alpha1.SyncOnce && !AwaitsTemplates(namespace)
}

// IsOutdated reports whether the operator must still update a Namespace to a revision of a template.
func IsOutdated(
	template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, state Record, revision string,
) bool {
	recorded := state[template.Name]
	// The rollout does not wait for a Namespace that the template may not select.
	return namespace.DeletionTimestamp == nil && !IsKept(template, namespace, recorded) && recorded.Revision != revision &&
		MustApply(template, namespace, state)
}
