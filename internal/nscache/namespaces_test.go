// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nscache

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func bound(g Gomega, namespace *corev1.Namespace, state ...string) *corev1.Namespace {
	result, err := BoundNamespace(state)(namespace.DeepCopy())
	g.Expect(err).NotTo(HaveOccurred())
	again, err := BoundNamespace(state)(result)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(Equal(result), "the cache transforms objects again")
	return result.(*corev1.Namespace)
}

// large returns text that is too large for the cache.
func large() string { return strings.Repeat("x", 250<<10) }

func TestBoundNamespace(t *testing.T) {
	state := strings.Repeat("s", 60<<10)
	tests := map[string]struct {
		change      func(*corev1.Namespace)
		lacksState  bool
		wantPartial bool
		wantState   string
	}{
		"small": {change: func(n *corev1.Namespace) { n.Annotations = map[string]string{"a": "b"} }},
		"managed fields": {change: func(n *corev1.Namespace) {
			n.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(large())}}
		}},
		"a large record of the operator": {
			change: func(n *corev1.Namespace) {
				n.Annotations = map[string]string{v1alpha1.AnnotationAppliedTemplates: state}
			},
			wantState: state,
		},
		"a large record that no policy protects": {
			change: func(n *corev1.Namespace) {
				n.Annotations = map[string]string{v1alpha1.AnnotationAppliedTemplates: state}
			},
			lacksState: true, wantPartial: true,
		},
		"an annotation": {
			change: func(n *corev1.Namespace) {
				n.Annotations = map[string]string{"a": large(), v1alpha1.AnnotationAppliedTemplates: state}
			},
			wantPartial: true, wantState: state,
		},
		"the name of an annotation of this project": {
			change: func(n *corev1.Namespace) {
				n.Annotations = map[string]string{v1alpha1.PrefixParameter + "size": large()}
			},
			wantPartial: true,
		},
		"labels": {
			change: func(n *corev1.Namespace) {
				for i := range 2000 {
					n.Labels[fmt.Sprintf("%s.%d/x", strings.Repeat("x", 200), i)] = strings.Repeat("v", 63)
				}
			},
			wantPartial: true,
		},
		"finalizers": {
			change: func(n *corev1.Namespace) {
				for i := range 4000 {
					n.Finalizers = append(n.Finalizers, fmt.Sprintf("example.com/%d", i))
					n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerName(fmt.Sprintf("example.com/%d", i)))
				}
			},
			wantPartial: true,
		},
		"owners": {
			change: func(n *corev1.Namespace) {
				for range 1000 {
					n.OwnerReferences = append(n.OwnerReferences, metav1.OwnerReference{Name: strings.Repeat("x", 253)})
				}
			},
			wantPartial: true,
		},
		"conditions": {
			change: func(n *corev1.Namespace) {
				for i := range 1000 {
					n.Status.Conditions = append(n.Status.Conditions, corev1.NamespaceCondition{
						Type:    corev1.NamespaceConditionType(fmt.Sprintf("%d%s", i, v1alpha1.ConditionInitializedSuffix)),
						Message: strings.Repeat("x", 1000),
					})
				}
			},
			wantPartial: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := wrappers.MakeNamespace("ns").Label(v1alpha1.LabelInitializing, "true").Label("app", "web").Obj()
			test.change(namespace)
			var protected []string
			if !test.lacksState {
				protected = []string{v1alpha1.AnnotationAppliedTemplates}
			}
			kept := bound(g, namespace, protected...)
			g.Expect(IsPartial(kept)).To(Equal(test.wantPartial))
			g.Expect(kept.Annotations[v1alpha1.AnnotationAppliedTemplates]).To(Equal(test.wantState))
			g.Expect(kept.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
			g.Expect(kept.ManagedFields).To(BeEmpty())
			if !test.wantPartial {
				namespace.ManagedFields = nil
				g.Expect(kept).To(Equal(namespace))
				return
			}
			encoded, err := json.Marshal(kept)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(len(encoded) - len(test.wantState)).To(BeNumerically("<", maxSize))
			for key, value := range kept.Annotations {
				g.Expect(value).To(Or(Equal(namespace.Annotations[key]), Equal("(omitted)"), HaveLen(32)), key)
			}
			g.Expect(kept.Finalizers).To(HaveLen(min(len(namespace.Finalizers), maxFinalizers)))
		})
	}
}

// Decisions depend on these annotations.
func TestPartialNamespacesKeepTheState(t *testing.T) {
	g := NewWithT(t)
	namespace := wrappers.MakeNamespace("ns").Obj()
	namespace.Annotations = map[string]string{"a": large()}
	keys := []string{v1alpha1.AnnotationAppliedTemplates, v1alpha1.AnnotationInitializers}
	for _, key := range keys {
		namespace.Annotations[key] = "state"
	}
	kept := bound(g, namespace, keys...)
	for _, key := range keys {
		g.Expect(kept.Annotations).To(HaveKeyWithValue(key, "state"))
	}
}

// Predicates compare the labels and annotations of cached Namespaces.
func TestPartialNamespacesShowChanges(t *testing.T) {
	g := NewWithT(t)
	namespace := wrappers.MakeNamespace("ns").Label("app", "web").Obj()
	namespace.Annotations = map[string]string{"a": large()}
	before := bound(g, namespace)
	g.Expect(bound(g, namespace)).To(Equal(before))
	namespace.Labels["app"] = "db"
	g.Expect(bound(g, namespace).Annotations).NotTo(Equal(before.Annotations))
	namespace.Labels["app"] = "web"
	namespace.Annotations["a"] += "x"
	g.Expect(bound(g, namespace).Annotations).NotTo(Equal(before.Annotations))
}

func TestPartialNamespacesKeepOwnConditions(t *testing.T) {
	g := NewWithT(t)
	namespace := wrappers.MakeNamespace("ns").Obj()
	var own []corev1.NamespaceCondition
	for _, conditionType := range []corev1.NamespaceConditionType{
		v1alpha1.ConditionInitializing, v1alpha1.ConditionReady, v1alpha1.ConditionStalled, v1alpha1.ConditionDeletionBlocked,
	} {
		own = append(own, corev1.NamespaceCondition{Type: conditionType, Status: corev1.ConditionTrue})
	}
	namespace.Status.Conditions = append(own, corev1.NamespaceCondition{Type: "example.com/Large", Message: large()})
	g.Expect(bound(g, namespace).Status.Conditions).To(Equal(own))
}
