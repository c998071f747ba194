// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"net/http/httptest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/webhooks"
)

// webhook is a validating webhook in the test process.
type webhook struct {
	configuration *admissionregistrationv1.ValidatingWebhookConfiguration
	server        *httptest.Server
}

// startWebhook registers a webhook for an operation in a namespace until the spec ends.
// denialReason returns the reason to deny a request with the given code, or "" to allow it. It must return within 30 s.
func startWebhook(
	ctx context.Context, namespace string, operation admissionregistrationv1.OperationType,
	resources admissionregistrationv1.Rule, code int32, denialReason func(*admissionv1.AdmissionRequest) string,
) *webhook {
	GinkgoHelper()
	server, clientConfig := webhooks.Serve(code, denialReason)
	DeferCleanup(server.Close)

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
	create(ctx, configuration)
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(admin.Delete(ctx, configuration))).To(Succeed())
	})
	return &webhook{configuration: configuration, server: server}
}

func isDryRun(request *admissionv1.AdmissionRequest) bool {
	return request.DryRun != nil && *request.DryRun
}
