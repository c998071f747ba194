// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// resendDelay is the Retry-After of a write that will be held or admitted when it is sent again. The
	// API server sends no shorter one.
	resendDelay = time.Second
	// maxRetryAfter is the longest Retry-After.
	maxRetryAfter = 10 * time.Second
)

// retryAfter returns the Retry-After of a write that is not held because of the limits. It grows with
// the time that the initialization has taken: client-go sends a request up to 10 times again, and
// these must not be used up before an initialization completes that takes a minute.
func retryAfter(namespace *corev1.Namespace, now time.Time) time.Duration {
	return min(max(now.Sub(namespace.CreationTimestamp.Time), resendDelay), maxRetryAfter)
}

// tryAgain asks the client to send the write again. client-go does so by itself.
func tryAgain(namespace string, after time.Duration, message string) *admissionv1.AdmissionResponse {
	response := reject(namespace, message)
	response.Result.Details.RetryAfterSeconds = int32(after.Round(time.Second).Seconds())
	return response
}

// reject does not ask the client to send the write again. client-go returns the error, and a controller works on
// other objects before it tries again.
func reject(namespace, message string) *admissionv1.AdmissionResponse {
	return denied(metav1.Status{
		Code:    http.StatusTooManyRequests,
		Reason:  metav1.StatusReasonTooManyRequests,
		Message: message,
		Details: &metav1.StatusDetails{Kind: "namespaces", Name: namespace},
	})
}

// failed returns the result of the initializer.
func failed(namespace *corev1.Namespace) *admissionv1.AdmissionResponse {
	return denied(metav1.Status{
		Code:    http.StatusForbidden,
		Reason:  metav1.StatusReasonForbidden,
		Message: failedMessage(namespace),
		Details: &metav1.StatusDetails{Kind: "namespaces", Name: namespace.Name},
	})
}

func denied(status metav1.Status) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &status}
}
