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

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// errStorage is the error returned by failing list requests.
var errStorage = errors.New("the storage is unavailable")

var _ = Describe("Objects in an aggregated API server", func() {
	for name, isLegacy := range map[string]bool{"aggregated": false, "legacy": true} {
		It("are deleted if their type supports the verbs, with "+name+" discovery", func(ctx context.Context) {
			server := startAggregatedServer(ctx, isLegacy, map[string][]string{
				"ones":         {"delete", "list"},             // no deletecollection, no watch
				"unlistables":  {"delete", "deletecollection"}, // no list
				"untouched":    {"list", "create"},             // no delete
				"unreachables": {"delete"},                     // neither list nor deletecollection
			})
			namespace, neighbour := createNamespace(ctx, "verbs"), createNamespace(ctx, "verbs")
			for resource := range server.resources {
				server.add(resource, namespace.Name, "a", "b", "c")
				server.add(resource, neighbour.Name, "a")
			}
			deleteObject(ctx, namespace)
			expectDeleted(ctx, namespace)
			Expect(server.count("ones", namespace.Name)).To(BeZero())
			Expect(server.count("unlistables", namespace.Name)).To(BeZero())
			// These types do not support the verbs that the operator needs.
			Expect(server.count("untouched", namespace.Name)).To(Equal(3))
			Expect(server.count("unreachables", namespace.Name)).To(Equal(3))
			for resource := range server.resources {
				Expect(server.count(resource, neighbour.Name)).To(Equal(1), "%s in another namespace", resource)
			}
		})
	}

	It("block finalization if they are created during the deletion", func(ctx context.Context) {
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
		eventuallyNamespace(ctx, namespace.Name, And(
			HaveRemaining("ones."+server.group+" has 1 resource instances", "configmaps. has 1 resource instances"),
			HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"),
		))
		expectKept(ctx, needed)
		server.remove("ones", namespace.Name, "late")
		expectDeleted(ctx, namespace)
	})

	It("block finalization while they cannot be listed", func(ctx context.Context) {
		server := startAggregatedServer(ctx, false, map[string][]string{
			"failings": {"delete", "deletecollection", "list"}, "ones": {"delete", "list"},
		})
		namespace := createNamespace(ctx, "broken")
		// Deployments are deleted. Objects that other controllers require to finish are kept.
		deployment := makeContent(namespace.Name)[5]
		Expect(deployment.GetObjectKind().GroupVersionKind().Kind).To(Equal("Deployment"))
		settings := wrappers.MakeConfigMap(namespace.Name, "settings")
		create(ctx, deployment, settings)
		server.add("failings", namespace.Name, "a", "b")
		server.add("ones", namespace.Name, "a", "b")
		server.setListFails("failings", true)

		deleteObject(ctx, namespace)
		expectDeleted(ctx, deployment)
		Eventually(func() int { return server.count("ones", namespace.Name) }).WithContext(ctx).Should(BeZero())
		eventuallyNamespace(ctx, namespace.Name, And(
			HaveContentFailure("failed to list failings."+server.group, errStorage.Error()),
			HaveRemaining("configmaps. has 1 resource instances"),
		))
		expectEvent(ctx, namespace, corev1.EventTypeWarning, "ContentDeletionFailed", errStorage.Error())
		expectNamespaceFinalizerKept(ctx, namespace)
		expectKept(ctx, settings)
		Expect(server.count("failings", namespace.Name)).To(Equal(2))

		server.setListFails("failings", false)
		expectDeleted(ctx, namespace)
		Expect(server.count("failings", namespace.Name)).To(BeZero())
		expectNoObjects(ctx, namespace.Name)
	})

	DescribeTable("block the finalization of only their own namespaces",
		func(ctx context.Context, stopServer bool, restore func(context.Context, *aggregatedServer), isRestored bool) {
			server := startAggregatedServer(ctx, false, map[string][]string{"ones": {"delete", "list"}})
			namespace := createNamespace(ctx, "down")
			content := makeContent(namespace.Name)
			create(ctx, content...)
			server.add("ones", namespace.Name, "a", "b")
			if stopServer {
				server.stop()
			} else {
				deleteObject(ctx, server.service)
			}
			deleteObject(ctx, namespace)
			removeClaimFinalizersWhenTerminating(ctx, content)
			for _, object := range content {
				expectDeleted(ctx, object)
			}
			eventuallyNamespace(ctx, namespace.Name, Or(HaveDiscoveryFailure(server.group), HaveContentFailure(server.group)))
			By("waiting until the API server reports the APIService as unavailable")
			expectAvailable(ctx, server.apiService(), "False")
			Eventually(func(g Gomega) {
				g.Expect(get(g, ctx, namespace.Name)).To(Or(
					HaveDiscoveryFailure(server.group), HaveContentFailure(server.group)))
			}).WithContext(ctx).Should(Succeed())
			expectNamespaceFinalizerKept(ctx, namespace)
			GinkgoWriter.Println("conditions:", framework.ConditionMessage(get(Default, ctx, namespace.Name), corev1.NamespaceDeletionDiscoveryFailure),
				framework.ConditionMessage(get(Default, ctx, namespace.Name), corev1.NamespaceDeletionContentFailure))

			restore(ctx, server)
			if isRestored {
				expectAvailable(ctx, server.apiService(), "True")
			}
			expectDeleted(ctx, namespace)
			if isRestored {
				Expect(server.count("ones", namespace.Name)).To(BeZero())
			}
			expectNoObjects(ctx, namespace.Name)
		},
		Entry("until the server is restored", NodeTimeout(5*time.Minute), true, func(_ context.Context, server *aggregatedServer) {
			server.start()
		}, true),
		Entry("until its Service is restored", NodeTimeout(5*time.Minute), false, func(ctx context.Context, server *aggregatedServer) {
			service := &corev1.Service{}
			service.Namespace, service.Name = server.service.Namespace, server.service.Name
			service.Spec.Type, service.Spec.ExternalName = corev1.ServiceTypeExternalName, "localhost"
			create(ctx, service)
		}, true),
		Entry("until its APIService is removed", NodeTimeout(5*time.Minute), true, func(ctx context.Context, server *aggregatedServer) {
			deleteObject(ctx, server.apiService())
		}, false),
	)
})
