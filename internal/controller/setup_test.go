// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// now is what the clocks of these tests show.
var now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func TestCacheOptions(t *testing.T) {
	g := NewWithT(t)
	// One of a kind that is not served would keep the cache from starting.
	g.Expect(CacheOptions(Server{LacksMutatingPolicies: true}, nil).ByObject).To(HaveLen(3))
	g.Expect(CacheOptions(Server{}, Controllers{Finalization: true, Diagnosis: true}).ByObject).To(HaveLen(1))
	g.Expect(CacheOptions(Server{}, Controllers{Expiry: true}).ByObject).To(HaveLen(3))
	options := CacheOptions(Server{}, nil)
	g.Expect(options.ByObject).To(HaveLen(5))
	for object, cached := range options.ByObject {
		if _, isLease := object.(*coordinationv1.Lease); isLease {
			inSystem := cached.Namespaces[metav1.NamespaceSystem].LabelSelector
			g.Expect(inSystem.Matches(labels.Set{"apiserver.kubernetes.io/identity": "kube-apiserver"})).To(BeTrue())
			g.Expect(inSystem.Matches(labels.Set{})).To(BeFalse())
			continue
		}
		g.Expect(cached.Label.Matches(labels.Set{v1alpha1.LabelPolicy: "any"})).To(BeTrue(), "%T", object)
		g.Expect(cached.Label.Matches(labels.Set{"app": "other"})).To(BeFalse(), "%T", object)
	}

	namespace := wrappers.MakeNamespace("x").Label("app", "web").Obj()
	namespace.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	kept, err := options.DefaultTransform(namespace)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kept).To(Equal(wrappers.MakeNamespace("x").Label("app", "web").Obj()))
}

func TestStartOnce(t *testing.T) {
	g := NewWithT(t)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	g.Expect(startOnce().Start(t.Context(), queue)).To(Succeed())
	g.Expect(queue.Len()).To(Equal(1))
	request, _ := queue.Get()
	g.Expect(request.NamespacedName).To(Equal(types.NamespacedName{Name: "effective"}))
}
