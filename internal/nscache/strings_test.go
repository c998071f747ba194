// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nscache

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unsafe"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestShare(t *testing.T) {
	g := NewWithT(t)
	var shared sharedStrings
	build := func() *corev1.Namespace {
		text := func(text string) string { return strings.Clone(text) }
		return &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name:        text("one"),
				Labels:      map[string]string{text("app"): text("web"), corev1.LabelMetadataName: text("one")},
				Annotations: map[string]string{text("owner"): text("a"), text("large"): strings.Repeat("x", maxSharedSize+1)},
				Finalizers:  []string{text("example.com/a")},
			},
			Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerName(text("kubernetes"))}},
			Status: corev1.NamespaceStatus{
				Phase: corev1.NamespacePhase(text("Active")),
				Conditions: []corev1.NamespaceCondition{{
					Type: corev1.NamespaceConditionType(text("Ready")), Status: corev1.ConditionStatus(text("True")),
					Reason: text("Initialized"), Message: text("All initializers have completed"),
				}},
			},
		}
	}
	first, second := build(), build()
	shared.share(first)
	shared.share(second)
	g.Expect(first).To(Equal(build()))
	g.Expect(second).To(Equal(build()))
	firstTexts, secondTexts := texts(first), texts(second)
	g.Expect(firstTexts).To(HaveLen(14))
	for i, text := range firstTexts {
		isSame := unsafe.StringData(text) == unsafe.StringData(secondTexts[i])
		g.Expect(isSame).To(Equal(len(text) <= maxSharedSize), text)
	}
	g.Expect(unsafe.StringData(first.Labels[corev1.LabelMetadataName])).To(Equal(unsafe.StringData(first.Name)))

	for i := range 3 * maxShared {
		shared.share(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Labels: map[string]string{}}})
		g.Expect(len(shared.known)).To(BeNumerically("<=", maxShared), "users choose names")
	}
}

// texts returns the strings of a Namespace in a fixed order.
func texts(namespace *corev1.Namespace) []string {
	result := []string{namespace.Name, namespace.Finalizers[0], string(namespace.Spec.Finalizers[0])}
	for _, entries := range []map[string]string{namespace.Labels, namespace.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			result = append(result, key, entries[key])
		}
	}
	condition := namespace.Status.Conditions[0]
	return append(result, string(condition.Type), condition.Reason, condition.Message)
}
