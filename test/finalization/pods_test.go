// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
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
			removeFinalizers(ctx, object)
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
		create(ctx, kept...)
		createCustom(ctx, custom, custom.object(namespace.Name, "other"))
		kept = append(kept, custom.object(namespace.Name, "other"))

		running := makePod(namespace.Name, "running", "nowhere", 600)
		stopping := makePod(namespace.Name, "stopping", "nowhere", 600)
		held := withFinalizer(makePod(namespace.Name, "held", "", 600))
		pending := makePod(namespace.Name, "pending", "", 600)
		done := makePod(namespace.Name, "done", "nowhere", 600)
		create(ctx, running, stopping, held, pending, done)
		done.Status.Phase = corev1.PodSucceeded
		Expect(admin.Status().Update(ctx, done)).To(Succeed())
		deleteObject(ctx, stopping)

		deleteObject(ctx, namespace)
		By("immediately deleting the Pods that do not require a kubelet")
		expectDeleted(ctx, pending)
		expectDeleted(ctx, done)
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
		removeFinalizers(ctx, held)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("pods. has 1 resource instances"))
		expectKept(ctx, kept...)
		now := &corev1.Pod{}
		Expect(admin.Get(ctx, keyOf(stopping), now)).To(Succeed())
		Expect(*now.DeletionGracePeriodSeconds).To(BeEquivalentTo(600), "the manager must not shorten a Pod's grace period")

		forceDelete(ctx, stopping)
		removeClaimFinalizers(ctx, kept)
		expectDeleted(ctx, namespace)
		expectNoObjects(ctx, namespace.Name)
	})

	It("block the deletion of everything else while their deletion is denied", func(ctx context.Context) {
		namespace := createNamespace(ctx, "pods-denied")
		kept := makeContent(namespace.Name)
		create(ctx, kept...)
		pod := makePod(namespace.Name, "denied", "", 0)
		create(ctx, pod)
		webhook := denyDeletions(ctx, namespace.Name, http.StatusForbidden, func(request *admissionv1.AdmissionRequest) string {
			if request.Resource.Resource == "pods" {
				return "the Pod is protected"
			}
			return ""
		})
		webhook.expectDenied(ctx, pod)
		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, And(
			HaveRemaining("pods. has 1 resource instances", "configmaps. has 1 resource instances"),
			HaveContentFailure("failed to delete pods", `"denied"`, "the Pod is protected"),
		))
		expectKept(ctx, append([]client.Object{pod}, kept...)...)
		webhook.allow()
		expectDeleted(ctx, pod)
		removeClaimFinalizers(ctx, kept)
		expectDeleted(ctx, namespace)
		expectNoObjects(ctx, namespace.Name)
	})
})
