// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// resendDelay is the Retry-After of a write that will be held or admitted when it is sent again.
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
func tryAgain(namespace string, after time.Duration, message string) admission.Response {
	return denied(metav1.Status{
		Code:    http.StatusTooManyRequests,
		Reason:  metav1.StatusReasonTooManyRequests,
		Message: message,
		Details: &metav1.StatusDetails{
			Kind: "namespaces", Name: namespace, RetryAfterSeconds: int32(after.Round(time.Second).Seconds()),
		},
	})
}

// failed returns the result of the initializer.
func failed(namespace *corev1.Namespace) admission.Response {
	return denied(metav1.Status{
		Code:    http.StatusForbidden,
		Reason:  metav1.StatusReasonForbidden,
		Message: failedMessage(namespace),
		Details: &metav1.StatusDetails{Kind: "namespaces", Name: namespace.Name},
	})
}

// terminating returns the error with which the API server rejects a CREATE in a terminating Namespace.
func terminating(request *admissionv1.AdmissionRequest, namespace *corev1.Namespace) admission.Response {
	resource := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
	status := apierrors.NewForbidden(resource, request.Name, fmt.Errorf("%s", terminatingMessage(namespace.Name))).Status()
	status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", namespace.Name),
		Field:   "metadata.namespace",
	})
	return denied(status)
}

func notFound(namespace string) admission.Response {
	return denied(apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, namespace).Status())
}

func denied(status metav1.Status) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
}
