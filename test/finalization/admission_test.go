// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"net/http"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// denyingWebhook denies deletions until allow is called.
type denyingWebhook struct {
	*webhook

	allowed atomic.Bool
	denials atomic.Int32
}

// denyDeletions registers a webhook for deletions in one namespace. denialReason returns the reason
// to deny a deletion with the given code, or "" to allow it.
func denyDeletions(
	ctx context.Context, namespace string, code int32, denialReason func(*admissionv1.AdmissionRequest) string,
) *denyingWebhook {
	GinkgoHelper()
	webhook := &denyingWebhook{}
	everything := admissionregistrationv1.Rule{
		APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"},
		Scope: new(admissionregistrationv1.NamespacedScope),
	}
	webhook.webhook = startWebhook(ctx, namespace, admissionregistrationv1.Delete, everything, code,
		func(request *admissionv1.AdmissionRequest) string {
			reason := denialReason(request)
			if reason == "" || webhook.allowed.Load() {
				return ""
			}
			webhook.denials.Add(1)
			return reason
		})
	return webhook
}

func (w *denyingWebhook) allow() { w.allowed.Store(true) }

// expectDenied waits until the API server calls the webhook, and then resets the number of denials.
func (w *denyingWebhook) expectDenied(ctx context.Context, object client.Object) {
	GinkgoHelper()
	expectDenied(ctx, object)
	w.denials.Store(0)
}

// expectDenied waits until the deletion of an object is denied.
func expectDenied(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Eventually(func() error {
		return admin.Delete(ctx, object, client.DryRunAll)
	}).WithContext(ctx).ShouldNot(Succeed())
}

var _ = Describe("A denied deletion", func() {
	DescribeTable("is reported and does not block other deletions if a webhook denies it:", func(ctx context.Context, code int) {
		namespace := createNamespace(ctx, "webhook")
		content := makeContent(namespace.Name)
		create(ctx, content...)
		protected := wrappers.MakeConfigMap(namespace.Name, "protected")
		create(ctx, protected)
		webhook := denyDeletions(ctx, namespace.Name, int32(code), func(request *admissionv1.AdmissionRequest) string {
			if request.Name == protected.Name {
				return "deletion is protected"
			}
			return ""
		})
		webhook.expectDenied(ctx, protected)

		deleteObject(ctx, namespace)
		expectContentDeleted(ctx, content)
		eventuallyNamespace(ctx, namespace.Name, And(
			HaveRemaining("configmaps. has 1 resource instances"),
			HaveContentFailure(`failed to delete configmaps "protected"`, "deletion is protected"),
		))
		expectEvent(ctx, namespace, corev1.EventTypeWarning, "ContentDeletionFailed", "deletion is protected")
		expectKept(ctx, protected)
		expectNamespaceFinalizerKept(ctx, namespace)
		GinkgoWriter.Println("denials:", webhook.denials.Load())
		webhook.allow()
		expectDeleted(ctx, namespace)
		expectNoObjects(ctx, namespace.Name)
	},
		Entry("Forbidden", http.StatusForbidden),
		// The API server returns the same codes if the object was deleted or replaced in the meantime.
		Entry("NotFound", http.StatusNotFound),
		Entry("Conflict", http.StatusConflict),
	)

	It("is reported if the webhook is unavailable", func(ctx context.Context) {
		namespace := createNamespace(ctx, "webhook-down")
		settings := wrappers.MakeConfigMap(namespace.Name, "settings")
		create(ctx, settings)
		webhook := denyDeletions(ctx, namespace.Name, http.StatusForbidden,
			func(*admissionv1.AdmissionRequest) string { return "denied" })
		webhook.expectDenied(ctx, settings)
		webhook.server.Close()

		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, And(
			HaveRemaining("configmaps. has 1 resource instances"),
			HaveContentFailure(`failed to delete configmaps "settings"`, "failed calling webhook", "webhook.test.example.com"),
		))
		expectEvent(ctx, namespace, corev1.EventTypeWarning, "ContentDeletionFailed", "failed calling webhook")
		expectKept(ctx, settings)
		expectNamespaceFinalizerKept(ctx, namespace)
		deleteObject(ctx, webhook.configuration)
		expectDeleted(ctx, namespace)
		expectNoObjects(ctx, namespace.Name)
	})

	It("is reported and does not block other deletions if a policy denies it", func(ctx context.Context) {
		namespace := createNamespace(ctx, "policy")
		content := makeContent(namespace.Name)
		create(ctx, content...)
		protected := wrappers.MakeConfigMap(namespace.Name, "protected")
		create(ctx, protected)
		binding := denyByPolicy(ctx, namespace.Name, protected.Name, "the policy protects the object")
		expectDenied(ctx, protected)

		deleteObject(ctx, namespace)
		expectContentDeleted(ctx, content)
		eventuallyNamespace(ctx, namespace.Name, And(
			HaveRemaining("configmaps. has 1 resource instances"),
			HaveContentFailure(`failed to delete configmaps "protected"`, "the policy protects the object"),
		))
		expectEvent(ctx, namespace, corev1.EventTypeWarning, "ContentDeletionFailed", "the policy protects the object")
		expectKept(ctx, protected)
		expectNamespaceFinalizerKept(ctx, namespace)
		deleteObject(ctx, binding)
		expectDeleted(ctx, namespace)
		expectNoObjects(ctx, namespace.Name)
	})

	It("does not block the deletion of RBAC objects if the denied object is a custom resource", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "webhook-custom")
		content := makeContent(namespace.Name)
		create(ctx, content...)
		protected := custom.object(namespace.Name, "protected")
		createCustom(ctx, custom, protected)
		webhook := denyDeletions(ctx, namespace.Name, http.StatusConflict, func(request *admissionv1.AdmissionRequest) string {
			if request.Resource.Resource == custom.plural {
				return "deletion is protected"
			}
			return ""
		})
		webhook.expectDenied(ctx, protected)
		deleteObject(ctx, namespace)
		expectContentDeleted(ctx, content)
		eventuallyNamespace(ctx, namespace.Name, And(
			HaveRemaining(custom.remaining(1)),
			HaveContentFailure("failed to delete "+custom.plural+"."+custom.group+` "protected"`, "deletion is protected"),
		))
		expectKept(ctx, protected)
		webhook.allow()
		expectDeleted(ctx, namespace)
		expectNoObjects(ctx, namespace.Name)
	})
})

// expectContentDeleted removes the finalizers of PersistentVolumeClaims and waits until all objects
// are deleted.
func expectContentDeleted(ctx context.Context, objects []client.Object) {
	GinkgoHelper()
	removeClaimFinalizersWhenTerminating(ctx, objects)
	for _, object := range objects {
		expectDeleted(ctx, object)
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

// denyByPolicy creates a policy that denies the deletion of objects with the given name in a
// namespace, and returns its binding.
func denyByPolicy(
	ctx context.Context, namespace, name, message string,
) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	GinkgoHelper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	policy.Name = unique("denial")
	policy.Spec = admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
				corev1.LabelMetadataName: namespace,
			}},
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"},
					},
				},
			}},
		},
		Validations: []admissionregistrationv1.Validation{{
			Expression: `request.name != "` + name + `"`, Message: message,
		}},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	binding.Name = policy.Name
	binding.Spec.PolicyName = policy.Name
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	create(ctx, policy, binding)
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(admin.Delete(ctx, binding))).To(Succeed())
		Expect(client.IgnoreNotFound(admin.Delete(ctx, policy))).To(Succeed())
	})
	return binding
}
