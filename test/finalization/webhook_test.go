// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// webhook is a validating webhook in the test process.
type webhook struct {
	configuration *admissionregistrationv1.ValidatingWebhookConfiguration
	server        *httptest.Server
}

// startWebhook registers a webhook for requests of a kind in one namespace, until the end of
// the spec. Why returns why one is refused, or nothing. It may take up to 30 s.
func startWebhook(
	ctx context.Context, namespace string, operation admissionregistrationv1.OperationType,
	resources admissionregistrationv1.Rule, why func(*admissionv1.AdmissionRequest) string,
) *webhook {
	GinkgoHelper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no AdmissionReview", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if text := why(review.Request); text != "" {
			review.Response.Allowed = false
			review.Response.Result = &metav1.Status{Message: text, Code: http.StatusForbidden}
		}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(&review)
	}))
	DeferCleanup(server.Close)

	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	configuration.Name = unique("webhook")
	configuration.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
		Name: "webhook.test.example.com",
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL:      new(server.URL),
			CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
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

// isDryRun tells whether a request changes nothing.
func isDryRun(request *admissionv1.AdmissionRequest) bool {
	return request.DryRun != nil && *request.DryRun
}
