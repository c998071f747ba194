// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestCacheOptions(t *testing.T) {
	g := NewWithT(t)
	// An informer for a kind that is not served would prevent the cache from starting.
	g.Expect(CacheOptions(Controllers{Finalization: true, Diagnosis: true}).ByObject).To(HaveLen(2))
	// The ServiceAccount of the other controllers has no permissions for webhook configurations.
	g.Expect(CacheOptions(Controllers{Initialization: true, Templates: true}).ByObject).To(HaveLen(2))
	options := CacheOptions(nil)
	g.Expect(options.ByObject).To(HaveLen(6))
	for object, cached := range options.ByObject {
		if _, isWebhooks := object.(*admissionv1.MutatingWebhookConfiguration); isWebhooks {
			g.Expect(cached.Field.String()).To(Equal("metadata.name=" + internalv1alpha1.HoldConfiguration))
			continue
		}
		if _, isWebhooks := object.(*admissionv1.ValidatingWebhookConfiguration); isWebhooks {
			g.Expect(cached.Field.String()).To(Equal("metadata.name=" + internalv1alpha1.TemplatesConfiguration))
			continue
		}
		if _, isNamespace := object.(*corev1.Namespace); isNamespace {
			namespace := wrappers.MakeNamespace("x").Label("app", "web").Obj()
			namespace.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
			kept, err := cached.Transform(namespace)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(kept).To(Equal(wrappers.MakeNamespace("x").Label("app", "web").Obj()))
			continue
		}
		if _, isLease := object.(*coordinationv1.Lease); isLease {
			inSystem := cached.Namespaces[metav1.NamespaceSystem].LabelSelector
			g.Expect(inSystem.Matches(labels.Set{"apiserver.kubernetes.io/identity": "kube-apiserver"})).To(BeTrue())
			g.Expect(inSystem.Matches(labels.Set{})).To(BeFalse())
			continue
		}
		g.Expect(cached.Label.Matches(labels.Set{internalv1alpha1.LabelPolicy: "any"})).To(BeTrue(), "%T", object)
		g.Expect(cached.Label.Matches(labels.Set{"app": "other"})).To(BeFalse(), "%T", object)
	}

	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{}}}}
	kept, err := options.DefaultTransform(lease)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kept).To(Equal(&coordinationv1.Lease{}))
}
