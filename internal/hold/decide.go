// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"maps"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// phase is what a Namespace means for a held write.
type phase int

const (
	// phasePending: the write must wait.
	phasePending phase = iota
	// phaseWritable: the gate admits writes.
	phaseWritable
	// phaseFailed: the initialization has failed, and the gate never admits the write.
	phaseFailed
	// phaseTerminating: the Namespace is being deleted.
	phaseTerminating
)

// phaseOf returns the phase of a Namespace. Like the gate, it regards only the label as the sign of
// a pending initialization.
func phaseOf(namespace *corev1.Namespace) phase {
	switch {
	case namespace.DeletionTimestamp != nil:
		return phaseTerminating
	case !hasLabel(namespace):
		return phaseWritable
	case initialization.ParseState(namespace).Phase == initialization.PhaseFailed:
		return phaseFailed
	}
	return phasePending
}

func hasLabel(namespace *corev1.Namespace) bool {
	_, ok := namespace.Labels[v1alpha1.LabelInitializing]
	return ok
}

// mustResend reports whether a held write could differ from one that is sent after the
// initialization: the API server has already evaluated plugins and selectors for it.
func mustResend(request *admissionv1.AdmissionRequest, before, after *corev1.Namespace) bool {
	return before.UID != after.UID || !maps.Equal(foreignLabels(before), foreignLabels(after)) ||
		isPod(request.Resource) && request.Operation != admissionv1.Delete
}

// isPod reports whether LimitRanger and ServiceAccount set defaults for a resource.
func isPod(resource metav1.GroupVersionResource) bool {
	return resource.Group == "" && resource.Resource == "pods"
}

// foreignLabels returns the labels that are not part of the state of the initialization.
func foreignLabels(namespace *corev1.Namespace) map[string]string {
	labels := maps.Clone(namespace.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { return strings.HasPrefix(key, v1alpha1.Prefix) })
	return labels
}
