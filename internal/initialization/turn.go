// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// turnPrecision is the precision of the time in v1alpha1.AnnotationTurnStartedAt.
const turnPrecision = time.Second

// TurnStart returns when the turn of an initializer started, according to the annotation. It is zero if
// the annotation does not record the turn of this initializer. Users can write the annotation while the
// policies are not installed, so any other value is ignored. So is a time in the future, so that a timeout
// never expires early.
//
// It is a separate record because no other value shows when a turn starts: the creationTimestamp is
// from the clock of the API server, and initializers can write the conditions of the preceding initializers.
func TurnStart(namespace *corev1.Namespace, initializer string, now time.Time) time.Time {
	text, ok := strings.CutPrefix(namespace.Annotations[v1alpha1.AnnotationTurnStartedAt], initializer+" ")
	if !ok || len(text) > len(time.RFC3339) {
		return time.Time{}
	}
	start, err := time.Parse(time.RFC3339, text)
	if err != nil || start.After(now) {
		return time.Time{}
	}
	return start
}

// FormatTurnStart returns the value of v1alpha1.AnnotationTurnStartedAt.
func FormatTurnStart(initializer string, start time.Time) string {
	return initializer + " " + start.UTC().Format(time.RFC3339)
}

// RemainingSince returns the time until a deadline. The recorded start of a turn can be up to a second early.
func RemainingSince(start time.Time, duration time.Duration, now time.Time) time.Duration {
	return start.Add(turnPrecision + duration).Sub(now)
}

// turnStartChange returns the value that the annotation must get, or nil if it must not change. The API server
// removes an empty annotation.
//
// A failed Namespace keeps the annotation, so that an initializer that sets and withdraws a failure does not restart
// its timeout. The controller of templates records the turns that only templates limit.
func turnStartChange(namespace *corev1.Namespace, state State, timeout *Timeout, now time.Time) *string {
	switch {
	case timeout != nil && TurnStart(namespace, timeout.Initializer, now).IsZero():
		return ptr.To(FormatTurnStart(timeout.Initializer, now))
	case timeout != nil, namespace.Annotations[v1alpha1.AnnotationTurnStartedAt] == "", state.Phase == PhaseFailed:
		return nil
	case len(state.Pending) > 0 && state.Pending[0] == v1alpha1.TemplatesInitializer &&
		!TurnStart(namespace, v1alpha1.TemplatesInitializer, now).IsZero():
		return nil
	}
	return ptr.To("")
}
