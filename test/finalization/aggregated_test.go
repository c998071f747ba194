// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

// deleteBehaviorNamespaces creates a namespace with objects of each behavior, and deletes it.
func deleteBehaviorNamespaces(
	ctx context.Context, server *aggregatedServer, behaviors []aggregatedBehavior,
) map[string]*corev1.Namespace {
	GinkgoHelper()
	namespaces := map[string]*corev1.Namespace{}
	for i := range behaviors {
		name := behaviors[i].name
		namespaces[name] = createNamespace(ctx, name)
		server.add(name, namespaces[name].Name, "a", "b", "c")
	}
	for _, namespace := range namespaces {
		admin.Deletes(ctx, namespace)
	}
	return namespaces
}

// expectFinalized waits until exactly the given behaviors do not block finalization. It then removes the objects of
// the others, and waits until all namespaces are deleted.
func expectFinalized(
	ctx context.Context, server *aggregatedServer, namespaces map[string]*corev1.Namespace, want map[string]bool,
) {
	GinkgoHelper()
	finalized := func(g Gomega) map[string]bool {
		result := map[string]bool{}
		for name, namespace := range namespaces {
			err := admin.Get(ctx, client.ObjectKeyFromObject(namespace), &corev1.Namespace{})
			g.Expect(client.IgnoreNotFound(err)).To(Succeed())
			result[name] = apierrors.IsNotFound(err)
		}
		return result
	}
	// kube-controller-manager starts after 5 s, and retries with a backoff.
	Eventually(finalized).WithContext(ctx).WithTimeout(2 * time.Minute).Should(Equal(want))
	Consistently(finalized).WithContext(ctx).WithTimeout(6 * time.Second).Should(Equal(want))
	for name, namespace := range namespaces {
		if want[name] {
			Expect(server.count(name, namespace.Name)).To(BeZero(), "%s objects are orphaned", name)
		}
		server.removeAll(name, namespace.Name)
	}
	for _, namespace := range namespaces {
		Eventually(func() bool {
			return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(namespace), &corev1.Namespace{}))
		}).WithContext(ctx).WithTimeout(90 * time.Second).Should(BeTrue())
	}
}

// expectNoWarnings checks that no Warning was recorded for the namespaces that are finalized.
func expectNoWarnings(ctx context.Context, namespaces map[string]*corev1.Namespace, finalized map[string]bool) {
	GinkgoHelper()
	list, err := cluster.Admin.Clientset().CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		FieldSelector: "type=" + corev1.EventTypeWarning,
	})
	Expect(err).NotTo(HaveOccurred())
	for name, namespace := range namespaces {
		for i := range list.Items {
			event := &list.Items[i]
			if finalized[name] && event.InvolvedObject.UID == namespace.UID {
				Fail(name + ": " + event.Reason + ": " + event.Message)
			}
		}
	}
}

// These specs take a long time, because kube-controller-manager waits for 5 s, and retries with a backoff.
var _ = Describe("Namespaces with objects in aggregated API servers", func() {
	var behaviors []aggregatedBehavior
	var server *aggregatedServer
	var byManager, byUpstream, byBoth map[string]bool

	BeforeEach(func(ctx context.Context) {
		cluster.PauseManager()
		behaviors = aggregatedBehaviors()
		byManager, byUpstream, byBoth = map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, one := range behaviors {
			byManager[one.name], byUpstream[one.name] = one.byManager, one.byUpstream
			byBoth[one.name] = one.byManager || one.byUpstream
		}
		server = serveBehaviors(ctx, behaviors)
	})

	It("are finalized by the manager with the permissions of its ServiceAccount", func(ctx context.Context) {
		startManager(ctx, managerConfig(ctx))
		namespaces := deleteBehaviorNamespaces(ctx, server, behaviors)
		expectFinalized(ctx, server, namespaces, byManager)
		expectNoWarnings(ctx, namespaces, byManager)
	}, SpecTimeout(6*time.Minute))

	It("are finalized by kube-controller-manager", Label("long"), func(ctx context.Context) {
		startControllerManager(ctx, "namespace-controller")
		expectFinalized(ctx, server, deleteBehaviorNamespaces(ctx, server, behaviors), byUpstream)
	}, SpecTimeout(6*time.Minute))

	It("are finalized by both controllers without a Warning", Label("long"), func(ctx context.Context) {
		startControllerManager(ctx, "namespace-controller")
		startManager(ctx, managerConfig(ctx))
		namespaces := deleteBehaviorNamespaces(ctx, server, behaviors)
		expectFinalized(ctx, server, namespaces, byBoth)
		expectNoWarnings(ctx, namespaces, byManager)
	}, SpecTimeout(6*time.Minute))
})

var _ = Describe("Objects in an aggregated API server", func() {
	It("are deleted if their type supports the verbs", func(ctx context.Context) {
		server := newAggregatedServer(map[string][]string{
			"ones":         {"delete", "list"},             // no deletecollection, no watch
			"unlistables":  {"delete", "deletecollection"}, // no list
			"untouched":    {"list", "create"},             // no delete
			"unreachables": {"delete"},                     // neither list nor deletecollection
		}).serve(ctx)
		namespace, neighbour := createNamespace(ctx, "verbs"), createNamespace(ctx, "verbs")
		for resource := range server.resources {
			server.add(resource, namespace.Name, "a", "b", "c")
			server.add(resource, neighbour.Name, "a")
		}
		admin.Deletes(ctx, namespace)
		framework.ExpectDeleted(ctx, admin, namespace)
		Expect(server.count("ones", namespace.Name)).To(BeZero())
		Expect(server.count("unlistables", namespace.Name)).To(BeZero())
		// These types do not support the verbs that the operator needs.
		Expect(server.count("untouched", namespace.Name)).To(Equal(3))
		Expect(server.count("unreachables", namespace.Name)).To(Equal(3))
		for resource := range server.resources {
			Expect(server.count(resource, neighbour.Name)).To(Equal(1), "%s in another namespace", resource)
		}
	})

	It("block the finalization of only their own namespaces until the server is restored", func(ctx context.Context) {
		server := newAggregatedServer(map[string][]string{"ones": {"delete", "list"}}).serve(ctx)
		namespace := createNamespace(ctx, "down")
		content := makeContent(namespace.Name)
		admin.Creates(ctx, content...)
		server.add("ones", namespace.Name, "a", "b")
		server.Stop()
		admin.Deletes(ctx, namespace)
		// Controllers of these objects may need the permissions and Secrets in the namespace.
		expectKept(ctx, expectUnneededDeleted(ctx, content)...)
		failed := Or(HaveDiscoveryFailure(server.Group), HaveContentFailure(server.Group))
		eventuallyNamespace(ctx, namespace.Name, failed)
		By("waiting until the API server reports the APIService as unavailable")
		server.ExpectAvailable(ctx, "False")
		eventuallyNamespace(ctx, namespace.Name, failed)
		expectNamespaceFinalizerKept(ctx, namespace)

		server.Start()
		server.ExpectAvailable(ctx, "True")
		framework.ExpectDeleted(ctx, admin, namespace)
		Expect(server.count("ones", namespace.Name)).To(BeZero())
		expectNoObjects(ctx, namespace.Name)
	}, SpecPriority(10), NodeTimeout(5*time.Minute))
})
