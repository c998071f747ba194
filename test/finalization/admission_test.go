// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// startWebhook registers a webhook for an operation in a namespace until the spec ends.
// denialReason returns the reason to deny a request with the given code, or "" to allow it. It must return within 30 s.
func startWebhook(
	ctx context.Context, namespace string, operation admissionregistrationv1.OperationType,
	resources admissionregistrationv1.Rule, code int32, denialReason func(*admissionv1.AdmissionRequest) string,
) *admissionregistrationv1.ValidatingWebhookConfiguration {
	GinkgoHelper()
	_, clientConfig := framework.ServeWebhook(code, denialReason)
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	configuration.Name = unique("webhook")
	configuration.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
		Name:         "webhook.test.example.com",
		ClientConfig: clientConfig,
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{operation}, Rule: resources,
		}},
		NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
		FailurePolicy:           new(admissionregistrationv1.Fail),
		TimeoutSeconds:          new(int32(30)),
	}}
	admin.Creates(ctx, configuration)
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(admin.Delete(ctx, configuration))).To(Succeed())
	})
	return configuration
}

func isDryRun(request *admissionv1.AdmissionRequest) bool {
	return request.DryRun != nil && *request.DryRun
}

// expectDenied waits until the deletion of an object is denied.
func expectDenied(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Eventually(func() error {
		return admin.Delete(ctx, object, client.DryRunAll)
	}).WithContext(ctx).ShouldNot(Succeed())
}

// test/diagnosis denies deletions in more ways, TestPass with more codes.
var _ = Describe("A denied deletion", func() {
	It("is reported and does not block other deletions", func(ctx context.Context) {
		namespace := createNamespace(ctx, "denied")
		content := makeContent(namespace.Name)
		admin.Creates(ctx, content...)
		protected := wrappers.MakeConfigMap(namespace.Name, "protected")
		admin.Creates(ctx, protected)
		const reason = "the policy protects the object"
		policy := framework.DenyByPolicy(ctx, admin, framework.RequestsFor("*", "*", admissionregistrationv1.Delete),
			fmt.Sprintf("request.namespace == %q && request.name == %q", namespace.Name, protected.Name), reason)
		expectDenied(ctx, protected)
		admin.Deletes(ctx, namespace)

		expectContentDeleted(ctx, content)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 1 resource instances"),
			HaveContentFailure(`failed to delete configmaps "protected"`, reason))
		expectFailureEvent(ctx, namespace, reason)
		expectKept(ctx, protected)
		expectNamespaceFinalizerKept(ctx, namespace)

		admin.Deletes(ctx, policy)
		framework.ExpectDeleted(ctx, admin, namespace)
		expectNoObjects(ctx, namespace.Name)
	})
})

// expectContentDeleted removes the finalizers of PersistentVolumeClaims and waits until all objects
// are deleted.
func expectContentDeleted(ctx context.Context, objects []client.Object) {
	GinkgoHelper()
	removeClaimFinalizersWhenTerminating(ctx, objects)
	for _, object := range objects {
		framework.ExpectDeleted(ctx, admin, object)
	}
}

// removeClaimFinalizersWhenTerminating waits until the PersistentVolumeClaims among the objects
// have a deletionTimestamp, and removes their finalizers as kube-controller-manager does.
func removeClaimFinalizersWhenTerminating(ctx context.Context, objects []client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		if object.GetObjectKind().GroupVersionKind().Kind == "PersistentVolumeClaim" {
			Eventually(func(g Gomega) {
				g.Expect(admin.Get(ctx, keyOf(object), object)).To(Succeed())
				g.Expect(object.GetDeletionTimestamp()).NotTo(BeNil())
			}).WithContext(ctx).Should(Succeed())
		}
	}
	removeClaimFinalizers(ctx, objects)
}
