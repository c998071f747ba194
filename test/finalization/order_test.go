// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// makeContent returns objects of several types. The manager deletes them in the two stages after
// the Pods.
func makeContent(namespace string) []client.Object {
	GinkgoHelper()
	var objects []client.Object
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap"}`,
		`{"apiVersion":"v1","kind":"Secret"}`,
		`{"apiVersion":"v1","kind":"ServiceAccount"}`,
		`{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":80}]}}`,
		`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{},"spec":{"accessModes":["ReadWriteOnce"],` +
			`"resources":{"requests":{"storage":"1Gi"}}}}`,
		`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"selector":{"matchLabels":{"app":"a"}},"template":` + podTemplate + `}}`,
		`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","spec":{"podSelector":{}}}`,
		`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease"}`,
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","rules":[]}`,
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","roleRef":{` +
			`"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"other"}}`,
	} {
		object := fromJSON(text)
		object.SetNamespace(namespace)
		object.SetName("other")
		objects = append(objects, object)
	}
	return objects
}

// removeClaimFinalizers removes the finalizers of PersistentVolumeClaims, as
// kube-controller-manager does if they are unused.
func removeClaimFinalizers(ctx context.Context, objects []client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		if object.GetObjectKind().GroupVersionKind().Kind == "PersistentVolumeClaim" {
			framework.RemoveFinalizers(ctx, admin, object)
		}
	}
}

// makePod returns a Pod. If the Pod is assigned to a node, it exists until it is force-deleted,
// because no kubelet is running.
func makePod(namespace, name, node string, grace int64) *corev1.Pod {
	pod := wrappers.MakePod(namespace, name)
	pod.Spec.NodeName, pod.Spec.TerminationGracePeriodSeconds = node, &grace
	return pod
}

// forceDelete deletes a Pod as the kubelet does after the Pod's containers have stopped.
func forceDelete(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	Expect(admin.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
}

// HaveDeletionOrdered matches a namespace whose conditions report which objects must be deleted
// first.
func HaveDeletionOrdered(texts ...string) OmegaMatcher {
	return HaveCondition(corev1.NamespaceDeletionContentFailure, corev1.ConditionFalse,
		finalization.ReasonContentDeletionOrdered, texts...)
}

var _ = Describe("Pods", func() {
	It("are deleted before everything else", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "pods-first")
		kept := makeContent(namespace.Name)
		admin.Creates(ctx, kept...)
		createCustom(ctx, custom, custom.object(namespace.Name, "other"))
		kept = append(kept, custom.object(namespace.Name, "other"))

		running := makePod(namespace.Name, "running", "nowhere", 600)
		stopping := makePod(namespace.Name, "stopping", "nowhere", 600)
		held := withFinalizer(makePod(namespace.Name, "held", "", 600))
		pending := makePod(namespace.Name, "pending", "", 600)
		done := makePod(namespace.Name, "done", "nowhere", 600)
		admin.Creates(ctx, running, stopping, held, pending, done)
		done.Status.Phase = corev1.PodSucceeded
		Expect(admin.Status().Update(ctx, done)).To(Succeed())
		admin.Deletes(ctx, stopping)

		admin.Deletes(ctx, namespace)
		By("immediately deleting the Pods that do not require a kubelet")
		framework.ExpectDeleted(ctx, admin, pending)
		framework.ExpectDeleted(ctx, admin, done)
		eventuallyNamespace(ctx, namespace.Name, And(
			HaveRemaining("pods. has 3 resource instances", "configmaps. has 1 resource instances",
				"deployments.apps has 1 resource instances", "roles.rbac.authorization.k8s.io has 1 resource instances",
				custom.remaining(1)),
			HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"),
			HaveDeletionOrdered("deletion of pods"),
		))
		expectKept(ctx, kept...)

		By("waiting for the remaining Pods")
		forceDelete(ctx, running)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("pods. has 2 resource instances"))
		framework.RemoveFinalizers(ctx, admin, held)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("pods. has 1 resource instances"))
		expectKept(ctx, kept...)
		now := &corev1.Pod{}
		Expect(admin.Get(ctx, keyOf(stopping), now)).To(Succeed())
		Expect(*now.DeletionGracePeriodSeconds).To(BeEquivalentTo(600), "the manager must not shorten a Pod's grace period")

		forceDelete(ctx, stopping)
		removeClaimFinalizers(ctx, kept)
		framework.ExpectDeleted(ctx, admin, namespace)
		expectNoObjects(ctx, namespace.Name)
	})
})

var _ = Describe("Objects that other controllers require to finish", func() {
	It("are kept until a controller in the namespace removes its finalizers", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "in-namespace-controller")
		all := makeContent(namespace.Name)
		admin.Creates(ctx, all...)
		role := &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "widgets"},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{custom.group}, Resources: []string{custom.plural}, Verbs: []string{"list", "patch"}},
				{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: []string{"get"}},
			},
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "widgets"}}
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "widgets"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace.Name, Name: account.Name}},
		}
		settings := wrappers.MakeConfigMap(namespace.Name, "widgets")
		settings.Data = map[string]string{"finalizer": testFinalizer}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "widgets"}}
		secret.StringData = map[string]string{"patch": `{"metadata":{"finalizers":null}}`}
		admin.Creates(ctx, role, account, binding, settings, secret)
		// Request the token before the deletion, because the API server issues no tokens for
		// ServiceAccounts in a terminating namespace.
		config, err := cluster.ServiceAccountConfig(ctx, namespace.Name, account.Name)
		Expect(err).NotTo(HaveOccurred())
		held := withFinalizer(custom.object(namespace.Name, "held"))
		createCustom(ctx, custom, held)

		admin.Deletes(ctx, namespace)
		By("waiting for the deletion of objects that the controller does not require")
		needed := expectUnneededDeleted(ctx, all)
		needed = append(needed, role, account, binding, settings, secret)
		eventuallyNamespace(ctx, namespace.Name, And(
			HaveRemaining(custom.remaining(1), "configmaps. has 2", "secrets. has 2", "serviceaccounts. has 2",
				"roles.rbac.authorization.k8s.io has 2", "rolebindings.rbac.authorization.k8s.io has 2",
				"networkpolicies.networking.k8s.io has 1", "leases.coordination.k8s.io has 1"),
			HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"),
			HaveDeletionOrdered(custom.plural, "ServiceAccounts"),
		))
		expectKept(ctx, needed...)

		By("removing the finalizer as a ServiceAccount in the namespace")
		clientset, err := kubernetes.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		dynamicClient, err := dynamic.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		read, err := clientset.CoreV1().ConfigMaps(namespace.Name).Get(ctx, settings.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(read.Data["finalizer"]).To(Equal(testFinalizer))
		readSecret, err := clientset.CoreV1().Secrets(namespace.Name).Get(ctx, secret.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		widgets := dynamicClient.Resource(custom.resource()).Namespace(namespace.Name)
		list, err := widgets.List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Items).To(HaveLen(1))
		_, err = widgets.Patch(ctx, list.Items[0].GetName(), types.MergePatchType, readSecret.Data["patch"], metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())

		framework.ExpectDeleted(ctx, admin, namespace)
		expectNoObjects(ctx, namespace.Name)
	})
})

// expectUnneededDeleted waits until the objects of makeContent that controllers do not need are deleted. It returns the
// others, which the last stage deletes.
func expectUnneededDeleted(ctx context.Context, objects []client.Object) (needed []client.Object) {
	GinkgoHelper()
	removeClaimFinalizersWhenTerminating(ctx, objects)
	for _, object := range objects {
		switch object.GetObjectKind().GroupVersionKind().Kind {
		case "Deployment", "Service", "PersistentVolumeClaim":
			framework.ExpectDeleted(ctx, admin, object)
		default:
			needed = append(needed, object)
		}
	}
	Expect(needed).To(HaveLen(7), "one object of each type in the last stage")
	return needed
}
