// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("Custom resources", func() {
	It("are deleted with their namespace while their CRD is terminating", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "crd-terminating")
		for i := range 50 {
			createCustom(ctx, custom, custom.object(namespace.Name, fmt.Sprint("plain-", i)))
		}
		deleteObject(ctx, custom.definition())
		deleteObject(ctx, namespace)
		expectDeleted(ctx, namespace)
		expectDeleted(ctx, custom.definition())
		expectNothingStored(ctx, custom, namespace.Name)
	})

	It("block finalization with their finalizers while their CRD is terminating", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "crd-held")
		held := withFinalizer(custom.object(namespace.Name, "held"))
		createCustom(ctx, custom, held)
		deleteObject(ctx, custom.definition())
		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, And(
			HaveRemaining(custom.remaining(1)),
			HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"),
		))
		expectNamespaceFinalizerKept(ctx, namespace)
		removeFinalizers(ctx, held)
		expectDeleted(ctx, namespace)
		expectDeleted(ctx, custom.definition())
		expectNothingStored(ctx, custom, namespace.Name)
	})

	It("cannot be created in a terminating namespace if their CRD is created during the deletion", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "crd-again")
		other := wrappers.MakeConfigMap(namespace.Name, "other")
		held := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, other, held)
		deleteObject(ctx, custom.definition())
		expectDeleted(ctx, custom.definition())
		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveFinalizersRemaining(testFinalizer))
		custom.install(ctx)
		custom.expectServed(ctx)
		_, err := newDynamic().Resource(custom.resource()).Namespace(namespace.Name).
			Create(ctx, custom.object(namespace.Name, "late"), metav1.CreateOptions{})
		Expect(err).To(Satisfy(apierrors.IsForbidden))
		expectNamespaceFinalizerKept(ctx, namespace)
		removeFinalizers(ctx, held)
		expectDeleted(ctx, namespace)
		expectNoObjects(ctx, namespace.Name)
	})

	It("are found if their CRD was created immediately before the deletion", func(ctx context.Context) {
		// The API server delays the creation of a CRD's first objects by two seconds, so the race
		// is rare. Many concurrent rounds make the race likely.
		const rounds = 24
		dynamicClient := newDynamic()
		types := make([]customType, rounds)
		namespaces := make([]*corev1.Namespace, rounds)
		for i := range rounds {
			types[i], namespaces[i] = makeCustomType(), createNamespace(ctx, "crd-new")
		}
		DeferCleanup(func(ctx context.Context) {
			for _, custom := range types {
				Expect(client.IgnoreNotFound(admin.Delete(ctx, custom.definition()))).To(Succeed())
			}
		})
		Expect(parallel(rounds, func(i int) error {
			if err := admin.Create(ctx, types[i].definition()); err != nil {
				return err
			}
			resource := dynamicClient.Resource(types[i].resource()).Namespace(namespaces[i].Name)
			for {
				_, err := resource.Create(ctx, types[i].object(namespaces[i].Name, "new"), metav1.CreateOptions{})
				if err == nil { // Discovery might not return the type yet.
					return admin.Delete(ctx, namespaces[i])
				}
				if !apierrors.IsNotFound(err) || ctx.Err() != nil {
					return err
				}
			}
		})).To(Succeed())
		for i := range rounds {
			expectDeleted(ctx, namespaces[i])
			Expect(namesOf(ctx, types[i].resource(), sets.New(namespaces[i].Name))).To(BeEmpty(), "orphaned in storage")
		}
	})

	It("are found if the API server serves their version again", func(ctx context.Context) {
		custom := createCustomType(ctx, "v1")
		namespace := createNamespace(ctx, "crd-served-again")
		keeper := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "keeper"))
		create(ctx, keeper)
		createCustom(ctx, custom, custom.object(namespace.Name, "hidden"))
		By("disabling the version, which hides its stored objects")
		custom.hide(ctx)

		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 1"))
		updateDefinition(ctx, custom.definition())
		custom.expectServed(ctx)
		removeFinalizers(ctx, keeper)
		expectDeleted(ctx, namespace)
		expectNothingStored(ctx, custom, namespace.Name)
	})
})

// expectNothingStored checks that storage contains no object of a custom type in a namespace. If
// the CRD was deleted, it creates the CRD again. The type then has the same path in storage.
func expectNothingStored(ctx context.Context, custom customType, namespace string) {
	GinkgoHelper()
	Expect(client.IgnoreAlreadyExists(admin.Create(ctx, custom.definition()))).To(Succeed())
	custom.expectServed(ctx)
	Eventually(func(g Gomega) {
		// The API server can stop serving the deleted CRD after this one was created.
		names, err := namesOf(ctx, custom.resource(), sets.New(namespace))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(names).To(BeEmpty(), "orphaned in storage")
	}).WithContext(ctx).Should(Succeed())
	expectNoObjects(ctx, namespace)
}
