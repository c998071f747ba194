// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nscache

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

func bound(g Gomega, namespace *corev1.Namespace, hasState bool) *corev1.Namespace {
	result, err := BoundNamespace(hasState)(namespace.DeepCopy())
	g.Expect(err).NotTo(HaveOccurred())
	again, err := BoundNamespace(hasState)(result)
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
			change:    func(n *corev1.Namespace) { n.Annotations = map[string]string{v1alpha1.AnnotationTemplates: state} },
			wantState: state,
		},
		"a large record that no policy protects": {
			change:     func(n *corev1.Namespace) { n.Annotations = map[string]string{v1alpha1.AnnotationTemplates: state} },
			lacksState: true, wantPartial: true,
		},
		"an annotation": {
			change: func(n *corev1.Namespace) {
				n.Annotations = map[string]string{"a": large(), v1alpha1.AnnotationTemplates: state}
			},
			wantPartial: true, wantState: state,
		},
		"the name of an annotation of this project": {
			change: func(n *corev1.Namespace) {
				n.Annotations = map[string]string{v1alpha1.PrefixParameter + "size": large(), v1alpha1.AnnotationTTL: large()}
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
			kept := bound(g, namespace, !test.lacksState)
			g.Expect(IsPartial(kept)).To(Equal(test.wantPartial))
			g.Expect(kept.Annotations[v1alpha1.AnnotationTemplates]).To(Equal(test.wantState))
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

// The policy restores the annotations on which decisions depend.
func TestPartialNamespacesKeepTheState(t *testing.T) {
	g := NewWithT(t)
	policy, err := os.ReadFile("../../config/mutating/complete.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	keys := sets.New(regexp.MustCompile(`nslifecycle\.dev/[a-z-]+`).FindAllString(string(policy), -1)...).
		Delete(v1alpha1.LabelInitializing, v1alpha1.LabelPolicy)
	g.Expect(keys.UnsortedList()).To(ContainElement(v1alpha1.AnnotationTemplates))
	namespace := wrappers.MakeNamespace("ns").Obj()
	namespace.Annotations = map[string]string{"a": large()}
	for key := range keys {
		namespace.Annotations[key] = "state"
	}
	kept := bound(g, namespace, true)
	for key := range keys {
		g.Expect(kept.Annotations).To(HaveKeyWithValue(key, "state"))
	}
}

// Predicates compare the labels and annotations of cached Namespaces.
func TestPartialNamespacesShowChanges(t *testing.T) {
	g := NewWithT(t)
	namespace := wrappers.MakeNamespace("ns").Label("app", "web").Obj()
	namespace.Annotations = map[string]string{"a": large()}
	before := bound(g, namespace, true)
	g.Expect(bound(g, namespace, true)).To(Equal(before))
	namespace.Labels["app"] = "db"
	g.Expect(bound(g, namespace, true).Annotations).NotTo(Equal(before.Annotations))
	namespace.Labels["app"] = "web"
	namespace.Annotations["a"] += "x"
	g.Expect(bound(g, namespace, true).Annotations).NotTo(Equal(before.Annotations))
}

func TestPartialNamespacesKeepOwnConditions(t *testing.T) {
	g := NewWithT(t)
	namespace := wrappers.MakeNamespace("ns").Obj()
	own := corev1.NamespaceCondition{Type: v1alpha1.ConditionExpiring, Status: corev1.ConditionTrue}
	namespace.Status.Conditions = []corev1.NamespaceCondition{{Type: "example.com/Large", Message: large()}, own}
	g.Expect(bound(g, namespace, true).Status.Conditions).To(ConsistOf(own))
}
