// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

// isCandidate reports whether the operator can have to add initializers to a Namespace: it has not
// reconciled the Namespace before, and the Namespace is not exempt or terminating, and has no labels or
// annotations that record an initialization.
func isCandidate(namespace *corev1.Namespace, systemNamespace string) bool {
	return !isReconciled(namespace) && !hasState(namespace) && namespace.DeletionTimestamp == nil &&
		!initialization.IsExempt(namespace.Name, systemNamespace)
}

// isReconciled reports whether the operator has reconciled a Namespace before. The operator never
// adds initializers to such a Namespace.
func isReconciled(namespace *corev1.Namespace) bool {
	return nscondition.Find(namespace, v1alpha1.ConditionInitializing) != nil
}

// computeInjection returns the initializers that the operator must add to a Namespace, in order.
// These are the initializers that were enforced when the Namespace was created and whose selectors
// match its current labels; the labels in the create request are not known. An initializer without
// InForceSince is not added. computeInjection returns nil if the Namespace is not a candidate.
//
// InForceSince and the creation timestamp are both from the API server, in whole seconds.
func computeInjection(
	namespace *corev1.Namespace, set *v1alpha1.NamespaceInitializerSet, systemNamespace string,
) []v1alpha1.EffectiveInitializer {
	if !isCandidate(namespace, systemNamespace) {
		return nil
	}
	var initializers []v1alpha1.EffectiveInitializer
	for _, initializer := range initialization.Selected(set, namespace.Labels) {
		since := initializer.InForceSince
		if since != nil && !namespace.CreationTimestamp.Time.Before(since.Time) {
			initializers = append(initializers, initializer)
		}
	}
	return initializers
}

// hasState reports whether a Namespace has labels or annotations that record an initialization.
func hasState(namespace *corev1.Namespace) bool {
	if _, ok := namespace.Labels[v1alpha1.LabelInitializing]; ok {
		return true
	}
	for _, key := range []string{
		v1alpha1.AnnotationPendingInitializers, v1alpha1.AnnotationInitializers,
		v1alpha1.AnnotationInitializationResult, v1alpha1.AnnotationRequestedBy, v1alpha1.AnnotationInjectedAt,
	} {
		if _, ok := namespace.Annotations[key]; ok {
			return true
		}
	}
	return false
}

// inject adds the pending list, the selected templates and the namespace finalizers of the initializers, like
// the inject policy. It does not record the requester, who is no longer known.
func inject(
	namespace *corev1.Namespace, set *v1alpha1.NamespaceInitializerSet, initializers []v1alpha1.EffectiveInitializer,
	now time.Time,
) {
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	if namespace.Annotations == nil {
		namespace.Annotations = map[string]string{}
	}
	names := initialization.Names(initializers)
	if slices.Contains(names, v1alpha1.TemplatesInitializer) {
		namespace.Annotations[v1alpha1.AnnotationSelectedTemplates] = strings.Join(
			initialization.SelectedTemplates(set, namespace.Labels), ",")
	}
	list := strings.Join(names, ",")
	namespace.Labels[v1alpha1.LabelInitializing] = "true"
	namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = list
	namespace.Annotations[v1alpha1.AnnotationInitializers] = list
	namespace.Annotations[v1alpha1.AnnotationInjectedAt] = now.UTC().Format(time.RFC3339Nano)
	namespace.Spec.Finalizers = append(namespace.Spec.Finalizers,
		initialization.MissingFinalizers(namespace, initializers)...)
}

// stamp sets the time since which each wanted entry has been enforced, and returns the entries. An
// existing entry keeps its time; an entry without a time gets the value of from.
func stamp(wanted, have []v1alpha1.EffectiveInitializer, from metav1.Time) []v1alpha1.EffectiveInitializer {
	since := map[string]*metav1.Time{}
	for _, entry := range have {
		since[entry.Name] = entry.InForceSince
	}
	stamped := make([]v1alpha1.EffectiveInitializer, 0, len(wanted))
	for _, entry := range wanted {
		entry.InForceSince = since[entry.Name]
		if entry.InForceSince == nil {
			entry.InForceSince = from.DeepCopy()
		}
		stamped = append(stamped, entry)
	}
	return stamped
}

// needsStamp reports whether any entry would get the value of from.
func needsStamp(wanted, have []v1alpha1.EffectiveInitializer) bool {
	for _, entry := range stamp(wanted, have, metav1.Time{}) {
		if entry.InForceSince.IsZero() {
			return true
		}
	}
	return false
}

// latestEnforcement returns the time since which all initializers have been enforced. It is zero if
// no initializer has a time.
func latestEnforcement(initializers []v1alpha1.EffectiveInitializer) time.Time {
	var last time.Time
	for _, entry := range initializers {
		if entry.InForceSince != nil && entry.InForceSince.After(last) {
			last = entry.InForceSince.Time
		}
	}
	return last
}
