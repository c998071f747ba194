// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nscondition finds conditions of a Namespace, for whose type apimachinery has no
// functions. It also escapes and truncates text for conditions and Events.
package nscondition

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Find returns the condition of a type, or nil if the Namespace has none.
func Find(namespace *corev1.Namespace, conditionType corev1.NamespaceConditionType) *corev1.NamespaceCondition {
	for i := range namespace.Status.Conditions {
		if namespace.Status.Conditions[i].Type == conditionType {
			return &namespace.Status.Conditions[i]
		}
	}
	return nil
}

// Complete sets the transition time of a condition, and reports whether it differs from the current
// condition, which is nil if the Namespace has none. The transition time is now, or that of the
// current condition if the status does not change.
func Complete(current, want *corev1.NamespaceCondition, now metav1.Time) (changed bool) {
	want.LastTransitionTime = now
	if current == nil || current.Status != want.Status {
		return true
	}
	want.LastTransitionTime = current.LastTransitionTime
	return current.Reason != want.Reason || current.Message != want.Message
}

// Message returns text for a condition or an Event: one line of printable characters, since users
// can choose the names and errors in it. Compare a computed message with the one of a condition in
// this form.
func Message(text string) string { return printable.Escape(text) }

// Shorten is Message for at most some number of bytes. It does not cut in the middle of a
// character: the API server counts a broken one as three bytes.
func Shorten(text string, most int) string {
	const mark = "..."
	text = Message(text)
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(mark)], "") + mark
}
