// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nscondition finds and completes conditions of Namespaces, because apimachinery has no
// functions for their type. It also escapes and truncates text for conditions and Events.
package nscondition

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Find returns the condition with the given type, or nil if the Namespace has none.
func Find(namespace *corev1.Namespace, conditionType corev1.NamespaceConditionType) *corev1.NamespaceCondition {
	for i := range namespace.Status.Conditions {
		if namespace.Status.Conditions[i].Type == conditionType {
			return &namespace.Status.Conditions[i]
		}
	}
	return nil
}

// Complete sets the transition time of the wanted condition. It reports whether the wanted
// condition differs from the current one, which is nil if the Namespace does not have the
// condition. If the status does not change, it keeps the current transition time; otherwise, it
// sets the transition time to now.
func Complete(current, want *corev1.NamespaceCondition, now metav1.Time) (changed bool) {
	want.LastTransitionTime = now
	if current == nil || current.Status != want.Status {
		return true
	}
	want.LastTransitionTime = current.LastTransitionTime
	return current.Reason != want.Reason || current.Message != want.Message
}

// Message returns text for a condition or an Event: one line of printable characters, because users
// control some of the names and errors in the text. A computed message must be converted before it
// is compared with the message of a condition.
func Message(text string) string { return printable.Escape(text) }

// Shorten is like Message, but truncates the text to the given number of bytes. It does not split
// multi-byte characters, because the API server counts an invalid character as three bytes.
func Shorten(text string, most int) string {
	const mark = "..."
	text = Message(text)
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(mark)], "") + mark
}
