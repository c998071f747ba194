// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
		deleteObject(ctx, namespace)
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
	Eventually(finalized).WithContext(ctx).WithTimeout(40 * time.Second).Should(Equal(want))
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
	list, err := newClientset().CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
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
		stopManager()
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
	}, SpecTimeout(4*time.Minute))

	It("are finalized by kube-controller-manager", func(ctx context.Context) {
		startControllerManager(ctx, "namespace-controller")
		expectFinalized(ctx, server, deleteBehaviorNamespaces(ctx, server, behaviors), byUpstream)
	}, SpecTimeout(4*time.Minute))

	It("are finalized by both controllers without a Warning", func(ctx context.Context) {
		startControllerManager(ctx, "namespace-controller")
		startManager(ctx, managerConfig(ctx))
		namespaces := deleteBehaviorNamespaces(ctx, server, behaviors)
		expectFinalized(ctx, server, namespaces, byBoth)
		expectNoWarnings(ctx, namespaces, byManager)
	}, SpecTimeout(4*time.Minute))
})

var _ = Describe("An aggregated API server that requires an unknown permission", func() {
	It("blocks finalization until a ClusterRole grants it", func(ctx context.Context) {
		behaviors := []aggregatedBehavior{{name: "vaulted", behavior: behavior{verbs: collection, authorize: needsGet("vaults")}}}
		server := serveBehaviors(ctx, behaviors)
		namespace := deleteBehaviorNamespaces(ctx, server, behaviors)["vaulted"]
		eventuallyNamespace(ctx, namespace.Name, HaveContentFailure("vaulted."+server.group, "the user cannot get vaults"))
		role := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: unique("vaults")},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"projectcalico.org"}, Resources: []string{"vaults"}, Verbs: []string{"get"}}},
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts"}},
		}
		create(ctx, role, binding)
		DeferCleanup(func(ctx context.Context) {
			deleteObject(ctx, binding)
			deleteObject(ctx, role)
		})
		expectDeleted(ctx, namespace)
		Expect(server.count("vaulted", namespace.Name)).To(BeZero())
	})
})
