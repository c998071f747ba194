// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestCheckCount(t *testing.T) {
	g := NewWithT(t)
	g.Expect(CheckCount(MaxObjects)).To(Succeed())
	g.Expect(ToProblem("", "", CheckCount(MaxObjects+1)).Reason).To(Equal(v1alpha1.ReasonTooManyObjects))
}

func TestRetention(t *testing.T) {
	g := NewWithT(t)
	tmpl := &v1alpha1.NamespaceTemplate{}
	quota := schema.GroupKind{Kind: "ResourceQuota"}
	g.Expect(MayRemove(tmpl, quota, 1)).To(BeTrue())
	g.Expect(MayRemove(tmpl, quota, 0)).To(BeFalse(), "the template contains no object")
	g.Expect(MayRemove(tmpl, KindLabel, 0)).To(BeTrue())
	tmpl.Spec.ObjectRetentionPolicy.WhenRemoved = "unknown"
	g.Expect(MayRemove(tmpl, quota, 1)).To(BeFalse())
	tmpl.Spec.ObjectRetentionPolicy = v1alpha1.TemplateObjectRetentionPolicy{
		WhenRemoved: v1alpha1.RetentionRetain, WhenDeselected: "deselected", WhenDeleted: "deleted",
	}
	g.Expect(MayRemove(tmpl, quota, 1)).To(BeFalse())
	g.Expect(MayRemove(tmpl, KindLabel, 1)).To(BeFalse())
	g.Expect(RetentionPolicy(tmpl)).To(BeEquivalentTo("deselected"))
	tmpl.DeletionTimestamp = &metav1.Time{}
	g.Expect(RetentionPolicy(tmpl)).To(BeEquivalentTo("deleted"))
}

func TestIsKept(t *testing.T) {
	g := NewWithT(t)
	tmpl, applied := &v1alpha1.NamespaceTemplate{}, Entry{Revision: "a"}
	namespace, initializing := namespaceWith("1", ""), namespaceWith("1", "")
	initializing.Annotations = map[string]string{v1alpha1.AnnotationPendingInitializers: v1alpha1.TemplatesInitializer}
	g.Expect(IsKept(tmpl, namespace, applied)).To(BeFalse())
	tmpl.Spec.Sync.Mode = v1alpha1.SyncOnce
	g.Expect(IsKept(tmpl, namespace, applied)).To(BeTrue())
	g.Expect(IsKept(tmpl, namespace, Entry{Target: "a"})).To(BeFalse(), "it was never applied completely")
	g.Expect(IsKept(tmpl, initializing, applied)).To(BeFalse())
}

func TestResourceOf(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(configMaps, meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	for kind, reason := range map[string]string{
		"ConfigMap": "", "Node": v1alpha1.ReasonInvalidObject, "Unknown": v1alpha1.ReasonKindNotFound,
	} {
		g := NewWithT(t)
		resource, err := ResourceOf(mapper, corev1.SchemeGroupVersion.WithKind(kind))
		if reason == "" {
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(resource).To(Equal(corev1.SchemeGroupVersion.WithResource("configmaps")))
			continue
		}
		g.Expect(ToProblem("", "", err).Reason).To(Equal(reason), kind)
	}
}
