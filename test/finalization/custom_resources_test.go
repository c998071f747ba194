// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"fmt"
	"time"

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
	It("are deleted with their namespace while their CRD is deleted", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "crd-going")
		for i := range 50 {
			createCustom(ctx, custom, custom.object(namespace.Name, fmt.Sprint("plain-", i)))
		}
		deleteObject(ctx, custom.definition())
		deleteObject(ctx, namespace)
		expectGone(ctx, namespace)
		expectGone(ctx, custom.definition())
		expectNothingStored(ctx, custom, namespace.Name)
	})

	It("block finalization by their finalizers while their CRD is deleted", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "crd-held")
		held := hold(custom.object(namespace.Name, "held"))
		createCustom(ctx, custom, held)
		deleteObject(ctx, custom.definition())
		deleteObject(ctx, namespace)
		expectSays(ctx, namespace, And(
			HaveRemaining(custom.inMessage(1)),
			HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"),
		))
		expectTokenStays(ctx, namespace)
		release(ctx, held)
		begin := time.Now()
		expectGoneWithin(ctx, namespace, 30*time.Second, "the last custom resource of a CRD that goes -> namespace deleted")
		expectGone(ctx, custom.definition())
		GinkgoWriter.Println("CRD gone after", time.Since(begin))
		expectNothingStored(ctx, custom, namespace.Name)
	})

	It("cannot be created in a terminating namespace after their CRD is created", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "crd-again")
		other := wrappers.MakeConfigMap(namespace.Name, "other")
		held := hold(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, other, held)
		deleteObject(ctx, custom.definition())
		expectGone(ctx, custom.definition())
		deleteObject(ctx, namespace)
		expectSays(ctx, namespace, HaveFinalizersRemaining(testFinalizer))
		custom.install(ctx)
		custom.expectServed(ctx)
		_, err := newDynamic().Resource(custom.resource()).Namespace(namespace.Name).
			Create(ctx, custom.object(namespace.Name, "late"), metav1.CreateOptions{})
		Expect(err).To(Satisfy(apierrors.IsForbidden))
		expectTokenStays(ctx, namespace)
		release(ctx, held)
		expectGone(ctx, namespace)
		expectNothingLeft(ctx, namespace.Name)
	})

	It("are found though their CRD came a moment before", func(ctx context.Context) {
		// The API server holds the first objects of a CRD back for two seconds, which closes
		// much of the race: many at a time make it as tight as it gets.
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
				_, err := resource.Create(ctx, types[i].object(namespaces[i].Name, "young"), metav1.CreateOptions{})
				if err == nil { // it is perhaps not in discovery yet
					return admin.Delete(ctx, namespaces[i])
				}
				if !apierrors.IsNotFound(err) || ctx.Err() != nil {
					return err
				}
			}
		})).To(Succeed())
		for i := range rounds {
			expectGone(ctx, namespaces[i])
			Expect(namesOf(ctx, types[i].resource(), sets.New(namespaces[i].Name))).To(BeEmpty(), "orphaned in storage")
		}
	})

	It("are found though their CRD is served again only now", func(ctx context.Context) {
		custom := createCustomType(ctx, "v1")
		namespace := createNamespace(ctx, "crd-served-again")
		keeper := hold(wrappers.MakeConfigMap(namespace.Name, "keeper"))
		create(ctx, keeper)
		createCustom(ctx, custom, custom.object(namespace.Name, "hidden"))
		By("not serving the type, so that its stored objects are invisible")
		hidden := custom.definition()
		setServed(hidden.Object, false)
		updateDefinition(ctx, hidden)
		Eventually(func() error {
			_, err := metadataClient.Resource(custom.resource()).List(ctx, metav1.ListOptions{})
			return err
		}).WithContext(ctx).Should(Satisfy(apierrors.IsNotFound))

		deleteObject(ctx, namespace)
		expectSays(ctx, namespace, HaveRemaining("configmaps. has 1"))
		updateDefinition(ctx, custom.definition())
		custom.expectServed(ctx)
		release(ctx, keeper)
		expectGone(ctx, namespace)
		expectNothingStored(ctx, custom, namespace.Name)
	})
})

// setServed changes the only version of a CRD.
func setServed(definition map[string]any, isServed bool) {
	definition["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)["served"] = isServed
}

// expectNothingStored makes sure that storage has no object of a type for a namespace. If
// its CRD has gone it comes back for that: the paths in storage are the same then.
func expectNothingStored(ctx context.Context, custom customType, namespace string) {
	GinkgoHelper()
	Expect(client.IgnoreAlreadyExists(admin.Create(ctx, custom.definition()))).To(Succeed())
	custom.expectServed(ctx)
	Expect(namesOf(ctx, custom.resource(), sets.New(namespace))).To(BeEmpty(), "orphaned in storage")
	expectNothingLeft(ctx, namespace)
}
