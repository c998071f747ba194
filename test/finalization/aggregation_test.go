// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const minute = time.Minute

// errBroken is the error of a broken server.
var errBroken = errors.New("the storage of this server is broken")

var _ = Describe("The types of an aggregated API server", func() {
	for name, isLegacy := range map[string]bool{"aggregated": false, "legacy": true} {
		It("are deleted according to their verbs, with "+name+" discovery", func(ctx context.Context) {
			server := startAggregatedServer(ctx, isLegacy, map[string][]string{
				"ones":      {"delete", "list"},             // no deletecollection, no watch
				"unseens":   {"delete", "deletecollection"}, // no list
				"untouched": {"list", "create"},             // no delete
				"stuck":     {"delete"},                     // neither list nor deletecollection
			})
			namespace, neighbour := createNamespace(ctx, "verbs"), createNamespace(ctx, "verbs")
			for resource := range server.resources {
				server.add(resource, namespace.Name, "a", "b", "c")
				server.add(resource, neighbour.Name, "a")
			}
			begin := time.Now()
			deleteObject(ctx, namespace)
			expectGone(ctx, namespace)
			measured("a namespace with aggregated types", time.Since(begin))
			Expect(server.count("ones", namespace.Name)).To(BeZero())
			Expect(server.count("unseens", namespace.Name)).To(BeZero())
			// Nobody can tell that something is there, or take it away.
			Expect(server.count("untouched", namespace.Name)).To(Equal(3))
			Expect(server.count("stuck", namespace.Name)).To(Equal(3))
			for resource := range server.resources {
				Expect(server.count(resource, neighbour.Name)).To(Equal(1), "%s of another namespace", resource)
			}
		})
	}

	It("are waited for although they were created during the deletion", func(ctx context.Context) {
		server := startAggregatedServer(ctx, false, map[string][]string{"ones": {"delete", "list"}})
		namespace := createNamespace(ctx, "late-type")
		needed := wrappers.MakeConfigMap(namespace.Name, "needed")
		create(ctx, needed)
		server.add("ones", namespace.Name, "early")
		server.onDelete("ones", func(resource *aggregatedResource, deleted types.NamespacedName) {
			if deleted.Name == "early" {
				resource.put(namespace.Name, "late", testFinalizer)
			}
		})
		deleteObject(ctx, namespace)
		expectSays(ctx, namespace, And(
			HaveRemaining("ones."+server.group+" has 1 resource instances", "configmaps. has 1 resource instances"),
			HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"),
		))
		expectKept(ctx, needed)
		server.release("ones", namespace.Name, "late")
		expectGone(ctx, namespace)
	})

	It("block finalization while they cannot be listed", func(ctx context.Context) {
		server := startAggregatedServer(ctx, false, map[string][]string{
			"brokens": {"delete", "deletecollection", "list"}, "ones": {"delete", "list"},
		})
		namespace := createNamespace(ctx, "broken")
		// Deployments and the like go; what others need in order to go has to wait.
		deployment := others(namespace.Name)[5]
		Expect(deployment.GetObjectKind().GroupVersionKind().Kind).To(Equal("Deployment"))
		settings := wrappers.MakeConfigMap(namespace.Name, "settings")
		create(ctx, deployment, settings)
		server.add("brokens", namespace.Name, "a", "b")
		server.add("ones", namespace.Name, "a", "b")
		server.setFailsToList("brokens", true)

		deleteObject(ctx, namespace)
		expectGone(ctx, deployment)
		Eventually(func() int { return server.count("ones", namespace.Name) }).WithContext(ctx).Should(BeZero())
		expectSays(ctx, namespace, And(
			HaveContentFailure("failed to list brokens."+server.group, errBroken.Error()),
			HaveRemaining("configmaps. has 1 resource instances"),
		))
		expectEvent(ctx, namespace, corev1.EventTypeWarning, "ContentDeletionFailed", errBroken.Error())
		expectTokenStays(ctx, namespace)
		expectKept(ctx, settings)
		Expect(server.count("brokens", namespace.Name)).To(Equal(2))

		server.setFailsToList("brokens", false)
		expectGoneWithin(ctx, namespace, minute, "a type can be listed again -> namespace deleted")
		Expect(server.count("brokens", namespace.Name)).To(BeZero())
		expectNothingLeft(ctx, namespace.Name)
	})

	DescribeTable("block only their namespace while their server is down",
		func(ctx context.Context, isServerGone bool, back func(context.Context, *aggregatedServer), isBack bool) {
			server := startAggregatedServer(ctx, false, map[string][]string{"ones": {"delete", "list"}})
			namespace := createNamespace(ctx, "down")
			gone := others(namespace.Name)
			create(ctx, gone...)
			server.add("ones", namespace.Name, "a", "b")
			if isServerGone {
				server.stop()
			} else {
				deleteObject(ctx, server.service)
			}
			began := time.Now()
			deleteObject(ctx, namespace)
			releaseWhenDeleted(ctx, gone)
			for _, object := range gone {
				expectGone(ctx, object)
			}
			measured("an API server is down: everything else is gone after", time.Since(began))
			expectSays(ctx, namespace, Or(HaveDiscoveryFailure(server.group), HaveContentFailure(server.group)))
			By("waiting until the API server knows as well")
			expectAvailable(ctx, server.apiService(), "False")
			Eventually(func(g Gomega) {
				g.Expect(get(g, ctx, namespace.Name)).To(Or(
					HaveDiscoveryFailure(server.group), HaveContentFailure(server.group)))
			}).WithContext(ctx).Should(Succeed())
			expectTokenStays(ctx, namespace)
			GinkgoWriter.Println("it says:", messageOf(get(Default, ctx, namespace.Name), corev1.NamespaceDeletionDiscoveryFailure),
				"and:", messageOf(get(Default, ctx, namespace.Name), corev1.NamespaceDeletionContentFailure))

			back(ctx, server)
			begin := time.Now()
			if isBack {
				expectAvailable(ctx, server.apiService(), "True")
				measured("an API server is back -> its APIService says so", time.Since(begin))
			}
			known := time.Now()
			expectGoneWithin(ctx, namespace, 2*minute, "then -> namespace deleted")
			GinkgoWriter.Println("after the APIService was right:", time.Since(known), "in all:", time.Since(begin))
			if isBack {
				Expect(server.count("ones", namespace.Name)).To(BeZero())
			}
			expectNothingLeft(ctx, namespace.Name)
		},
		Entry("until it is back", NodeTimeout(4*minute), true, func(_ context.Context, server *aggregatedServer) {
			server.start()
		}, true),
		Entry("until its Service is back", NodeTimeout(4*minute), false, func(ctx context.Context, server *aggregatedServer) {
			service := &corev1.Service{}
			service.Namespace, service.Name = server.service.Namespace, server.service.Name
			service.Spec.Type, service.Spec.ExternalName = corev1.ServiceTypeExternalName, "localhost"
			create(ctx, service)
		}, true),
		Entry("until its APIService is removed", NodeTimeout(4*minute), true, func(ctx context.Context, server *aggregatedServer) {
			deleteObject(ctx, server.apiService())
		}, false),
	)
})
