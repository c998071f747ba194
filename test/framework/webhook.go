// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"

	. "github.com/onsi/ginkgo/v2"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServeWebhook serves a webhook until the spec ends, and returns the client configuration for the API server.
// The server can be closed earlier.
// The why function returns the reason to deny a request with the given code, or "" to allow it.
func ServeWebhook(
	code int32, why func(*admissionv1.AdmissionRequest) string,
) (*httptest.Server, admissionregistrationv1.WebhookClientConfig) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no AdmissionReview", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if text := why(review.Request); text != "" {
			review.Response.Allowed = false
			review.Response.Result = &metav1.Status{Message: text, Code: code}
		}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(&review)
	}))
	DeferCleanup(server.Close)
	return server, admissionregistrationv1.WebhookClientConfig{
		URL:      &server.URL,
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
}
