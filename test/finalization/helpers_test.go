// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// testFinalizer is a finalizer that only the specs remove.
const testFinalizer = "test.example.com/hold"

// unique returns a name that no other call in this process returns.
var unique = framework.Unique

// createNamespace creates a namespace with additional namespace finalizers. The spec must delete
// the namespace.
func createNamespace(ctx context.Context, prefix string, finalizers ...corev1.FinalizerName) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(unique(prefix)).Obj()
	namespace.Spec.Finalizers = finalizers
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	return namespace
}

func create(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(admin.Create(ctx, object)).To(Succeed())
	}
}

func deleteObject(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Expect(admin.Delete(ctx, object)).To(Succeed())
}

func get(g Gomega, ctx context.Context, name string) *corev1.Namespace {
	namespace := &corev1.Namespace{}
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
	return namespace
}

// expectDeleted waits until an object is deleted.
func expectDeleted(ctx context.Context, object client.Object) {
	GinkgoHelper()
	framework.ExpectDeleted(ctx, admin, object)
}

// expectKept checks that objects exist without a deletionTimestamp.
func expectKept(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		for _, object := range objects {
			now := object.DeepCopyObject().(client.Object)
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), now)).To(Succeed())
			g.Expect(now.GetDeletionTimestamp()).To(BeNil(), "%T %s is being deleted", object, object.GetName())
		}
	}).WithContext(ctx).Should(Succeed())
}

// withFinalizer adds testFinalizer to an object before its creation.
func withFinalizer[T client.Object](object T) T {
	controllerutil.AddFinalizer(object, testFinalizer)
	return object
}

// removeFinalizers removes all finalizers of an object.
func removeFinalizers(ctx context.Context, object client.Object) {
	GinkgoHelper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	Expect(client.IgnoreNotFound(admin.Patch(ctx, object, patch))).To(Succeed())
}

// countOf returns the number of objects of a type in a namespace.
func countOf(g Gomega, ctx context.Context, gvr schema.GroupVersionResource, namespace string) int {
	list, err := metadataClient.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	return len(list.Items)
}

var HaveCondition = matchers.HaveCondition

// HaveRemaining matches a namespace whose conditions report remaining objects.
func HaveRemaining(texts ...string) types.GomegaMatcher {
	return HaveCondition(corev1.NamespaceContentRemaining, corev1.ConditionTrue, "SomeResourcesRemain", texts...)
}

// HaveFinalizersRemaining matches a namespace whose conditions report remaining finalizers.
func HaveFinalizersRemaining(texts ...string) types.GomegaMatcher {
	return HaveCondition(corev1.NamespaceFinalizersRemaining, corev1.ConditionTrue, "SomeFinalizersRemain", texts...)
}

// HaveContentFailure matches a namespace whose conditions report failed deletions.
func HaveContentFailure(texts ...string) types.GomegaMatcher {
	return HaveCondition(corev1.NamespaceDeletionContentFailure, corev1.ConditionTrue, "ContentDeletionFailed", texts...)
}

// HaveDiscoveryFailure matches a namespace whose conditions report failed discovery.
func HaveDiscoveryFailure(texts ...string) types.GomegaMatcher {
	return HaveCondition(corev1.NamespaceDeletionDiscoveryFailure, corev1.ConditionTrue, "DiscoveryFailed", texts...)
}
