// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

// maxWindow is how long a Namespace may have been open before it got its list and still be
// called new: whatever was put into it meanwhile is not worth more than its initialization.
const maxWindow = time.Minute

// IsSeen tells whether the operator has looked at a Namespace before. One that it has
// seen never gets a list.
func IsSeen(namespace *corev1.Namespace) bool {
	return nscondition.Find(namespace, v1alpha1.ConditionInitializing) != nil
}

// ComputeInjection returns the initializers that a Namespace has to get from the operator,
// in order, or none. It gets each one that was in force when it was created and that selects
// it by the labels it has now: those it was created with are not known. It gets none if the
// operator has looked at it before, it is exempt, it is being deleted, or anything under
// our prefix says that it has had its turn. Where it is not known since when an initializer
// is in force, the Namespace does not get it.
//
// Both times are those of the API server, in whole seconds.
func ComputeInjection(
	namespace *corev1.Namespace, set *v1alpha1.NamespaceInitializerSet, systemNamespace string,
) []v1alpha1.EffectiveInitializer {
	if IsSeen(namespace) || namespace.DeletionTimestamp != nil || IsExempt(namespace.Name, systemNamespace) ||
		hasState(namespace) {
		return nil
	}
	var initializers []v1alpha1.EffectiveInitializer
	for _, initializer := range Selected(set.Initializers, namespace.Labels) {
		since := initializer.InForceSince
		if since != nil && !namespace.CreationTimestamp.Time.Before(since.Time) {
			initializers = append(initializers, initializer)
		}
	}
	return initializers
}

// hasState tells whether a Namespace has anything of its initialization, or of an earlier one.
func hasState(namespace *corev1.Namespace) bool {
	_, isLabelled := namespace.Labels[v1alpha1.LabelInitializing]
	if isLabelled {
		return true
	}
	for _, key := range []string{
		v1alpha1.AnnotationPendingInitializers, v1alpha1.AnnotationInitializers,
		v1alpha1.AnnotationInitializationResult, v1alpha1.AnnotationRequestedBy, v1alpha1.AnnotationInjectedAt,
	} {
		if _, found := namespace.Annotations[key]; found {
			return true
		}
	}
	return false
}

// Inject gives a Namespace a list, and the tokens of its initializers, as policy inject does
// at creation. Who asked for the Namespace is not known any more.
func Inject(namespace *corev1.Namespace, initializers []v1alpha1.EffectiveInitializer, now time.Time) {
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	if namespace.Annotations == nil {
		namespace.Annotations = map[string]string{}
	}
	list := strings.Join(Names(initializers), ",")
	namespace.Labels[v1alpha1.LabelInitializing] = "true"
	namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = list
	namespace.Annotations[v1alpha1.AnnotationInitializers] = list
	namespace.Annotations[v1alpha1.AnnotationInjectedAt] = now.UTC().Format(time.RFC3339Nano)
	namespace.Spec.Finalizers = append(namespace.Spec.Finalizers, MissingTokens(namespace, initializers)...)
}

// Stamp returns the wanted entries with the time from which each is in force: since when it
// has been, where it is there already, and otherwise from.
func Stamp(wanted, have []v1alpha1.EffectiveInitializer, from metav1.Time) []v1alpha1.EffectiveInitializer {
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

// NeedsStamp tells whether Stamp would use the time that it is given.
func NeedsStamp(wanted, have []v1alpha1.EffectiveInitializer) bool {
	for _, entry := range Stamp(wanted, have, metav1.Time{}) {
		if entry.InForceSince.IsZero() {
			return true
		}
	}
	return false
}

// InForceFrom returns when the last of the initializers comes into force; zero if no time
// is known for any.
func InForceFrom(initializers []v1alpha1.EffectiveInitializer) time.Time {
	var last time.Time
	for _, entry := range initializers {
		if entry.InForceSince != nil && entry.InForceSince.After(last) {
			last = entry.InForceSince.Time
		}
	}
	return last
}

// openFor returns how long a Namespace was open before the operator gave it its list. It is
// zero where the API server did that, and maxWindow where the annotation cannot be read.
func openFor(namespace *corev1.Namespace) time.Duration {
	text, found := namespace.Annotations[v1alpha1.AnnotationInjectedAt]
	if !found {
		return 0
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return maxWindow
	}
	return at.Sub(namespace.CreationTimestamp.Time).Truncate(time.Second)
}
