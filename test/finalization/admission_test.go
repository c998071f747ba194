// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// refusalWebhook is a webhook that refuses deletions.
type refusalWebhook struct {
	*webhook

	isOpen   atomic.Bool
	refusals atomic.Int32
}

// refuseDeletions registers a webhook for the deletions in one namespace. Why returns why
// one is refused, or nothing.
func refuseDeletions(
	ctx context.Context, namespace string, why func(*admissionv1.AdmissionRequest) string,
) *refusalWebhook {
	GinkgoHelper()
	refusal := &refusalWebhook{}
	everything := admissionregistrationv1.Rule{
		APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"},
		Scope: new(admissionregistrationv1.NamespacedScope),
	}
	refusal.webhook = startWebhook(ctx, namespace, admissionregistrationv1.Delete, everything,
		func(request *admissionv1.AdmissionRequest) string {
			text := why(request)
			if text == "" || refusal.isOpen.Load() {
				return ""
			}
			refusal.refusals.Add(1)
			return text
		})
	return refusal
}

func (w *refusalWebhook) stopRefusing() { w.isOpen.Store(true) }

// expectRefused waits until the API server asks the webhook.
func (w *refusalWebhook) expectRefused(ctx context.Context, object client.Object) {
	GinkgoHelper()
	expectRefused(ctx, object)
	w.refusals.Store(0)
}

// expectRefused waits until the deletion of an object is refused.
func expectRefused(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Eventually(func() error {
		return admin.Delete(ctx, object, client.DryRunAll)
	}).WithContext(ctx).ShouldNot(Succeed())
}

var _ = Describe("A refused deletion", func() {
	It("by a webhook is reported and does not block other deletions", func(ctx context.Context) {
		namespace := createNamespace(ctx, "webhook")
		gone := others(namespace.Name)
		create(ctx, gone...)
		precious := wrappers.MakeConfigMap(namespace.Name, "precious")
		create(ctx, precious)
		webhook := refuseDeletions(ctx, namespace.Name, func(request *admissionv1.AdmissionRequest) string {
			if request.Name == precious.Name {
				return "it is precious"
			}
			return ""
		})
		webhook.expectRefused(ctx, precious)

		deleteObject(ctx, namespace)
		expectAllReleased(ctx, gone)
		expectSays(ctx, namespace, And(
			HaveRemaining("configmaps. has 1 resource instances"),
			HaveContentFailure(`failed to delete configmaps "precious"`, "it is precious"),
		))
		expectEvent(ctx, namespace, corev1.EventTypeWarning, "ContentDeletionFailed", "it is precious")
		expectKept(ctx, precious)
		expectTokenStays(ctx, namespace)
		GinkgoWriter.Println("refused", webhook.refusals.Load(), "times")
		webhook.stopRefusing()
		expectGoneWithin(ctx, namespace, time.Minute, "a webhook stops refusing -> namespace deleted")
		expectNothingLeft(ctx, namespace.Name)
	})

	It("by an unavailable webhook is reported", func(ctx context.Context) {
		namespace := createNamespace(ctx, "webhook-down")
		settings := wrappers.MakeConfigMap(namespace.Name, "settings")
		create(ctx, settings)
		webhook := refuseDeletions(ctx, namespace.Name, func(*admissionv1.AdmissionRequest) string { return "not yet" })
		webhook.expectRefused(ctx, settings)
		webhook.server.Close()

		deleteObject(ctx, namespace)
		expectSays(ctx, namespace, And(
			HaveRemaining("configmaps. has 1 resource instances"),
			HaveContentFailure(`failed to delete configmaps "settings"`, "failed calling webhook", "webhook.test.example.com"),
		))
		expectEvent(ctx, namespace, corev1.EventTypeWarning, "ContentDeletionFailed", "failed calling webhook")
		expectKept(ctx, settings)
		expectTokenStays(ctx, namespace)
		deleteObject(ctx, webhook.configuration)
		expectGoneWithin(ctx, namespace, time.Minute, "a dead webhook is removed -> namespace deleted")
		expectNothingLeft(ctx, namespace.Name)
	})

	It("by a policy is reported and does not block other deletions", func(ctx context.Context) {
		namespace := createNamespace(ctx, "policy")
		gone := others(namespace.Name)
		create(ctx, gone...)
		precious := wrappers.MakeConfigMap(namespace.Name, "precious")
		create(ctx, precious)
		binding := refuseByPolicy(ctx, namespace.Name, precious.Name, "the policy finds it precious")
		expectRefused(ctx, precious)

		deleteObject(ctx, namespace)
		expectAllReleased(ctx, gone)
		expectSays(ctx, namespace, And(
			HaveRemaining("configmaps. has 1 resource instances"),
			HaveContentFailure(`failed to delete configmaps "precious"`, "the policy finds it precious"),
		))
		expectEvent(ctx, namespace, corev1.EventTypeWarning, "ContentDeletionFailed", "the policy finds it precious")
		expectKept(ctx, precious)
		expectTokenStays(ctx, namespace)
		deleteObject(ctx, binding)
		expectGoneWithin(ctx, namespace, time.Minute, "a policy stops refusing -> namespace deleted")
		expectNothingLeft(ctx, namespace.Name)
	})

	It("of a custom resource does not block the deletion of RBAC objects", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "webhook-custom")
		gone := others(namespace.Name)
		create(ctx, gone...)
		precious := custom.object(namespace.Name, "precious")
		createCustom(ctx, custom, precious)
		webhook := refuseDeletions(ctx, namespace.Name, func(request *admissionv1.AdmissionRequest) string {
			if request.Resource.Resource == custom.plural {
				return "it is precious"
			}
			return ""
		})
		webhook.expectRefused(ctx, precious)
		deleteObject(ctx, namespace)
		expectAllReleased(ctx, gone)
		expectSays(ctx, namespace, And(
			HaveRemaining(custom.inMessage(1)),
			HaveContentFailure("failed to delete "+custom.plural+"."+custom.group+` "precious"`, "it is precious"),
		))
		expectKept(ctx, precious)
		webhook.stopRefusing()
		expectGoneWithin(ctx, namespace, time.Minute, "a webhook stops refusing a custom resource -> namespace deleted")
		expectNothingLeft(ctx, namespace.Name)
	})
})

// expectAllReleased waits until objects are gone, and releases the claims among them.
func expectAllReleased(ctx context.Context, objects []client.Object) {
	GinkgoHelper()
	releaseWhenDeleted(ctx, objects)
	for _, object := range objects {
		expectGone(ctx, object)
	}
}

// releaseWhenDeleted waits until the claims among the objects are being deleted, and does
// then what kube-controller-manager does with them.
func releaseWhenDeleted(ctx context.Context, objects []client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		if object.GetObjectKind().GroupVersionKind().Kind == "PersistentVolumeClaim" {
			Eventually(func(g Gomega) {
				g.Expect(admin.Get(ctx, keyOf(object), object)).To(Succeed())
				g.Expect(object.GetDeletionTimestamp()).NotTo(BeNil())
			}).WithContext(ctx).Should(Succeed())
		}
	}
	releaseClaims(ctx, objects)
}

// refuseByPolicy puts a policy in force that refuses the deletion of what has a certain
// name in a namespace; it returns the binding.
func refuseByPolicy(
	ctx context.Context, namespace, name, message string,
) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	GinkgoHelper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	policy.Name = unique("refusal")
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
