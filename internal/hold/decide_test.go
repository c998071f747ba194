// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

const failure = `{"status":"Failure","reason":"QuotaExceeded","message":"no room for another team"}`

// makeNamespace returns an initializing Namespace after the changes.
func makeNamespace(changes ...func(*corev1.Namespace)) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "shop", UID: "1",
		Labels:      map[string]string{v1alpha1.LabelInitializing: "true", "team": "shop"},
		Annotations: map[string]string{v1alpha1.AnnotationPendingInitializers: "a.example.com,b.example.com"},
	}}
	for _, change := range changes {
		change(namespace)
	}
	return namespace
}

func initialized(n *corev1.Namespace) {
	delete(n.Labels, v1alpha1.LabelInitializing)
	delete(n.Annotations, v1alpha1.AnnotationPendingInitializers)
}

func withFailure(n *corev1.Namespace) {
	n.Annotations[v1alpha1.AnnotationInitializationResult] = failure
}
func deleted(n *corev1.Namespace)   { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
func relabeled(n *corev1.Namespace) { n.Labels["istio-injection"] = "enabled" }
func recreated(n *corev1.Namespace) { n.UID = "2" }

func TestDecide(t *testing.T) {
	makeRequest := func(operation admissionv1.Operation, resource string) *admissionv1.AdmissionRequest {
		return &admissionv1.AdmissionRequest{
			Namespace: "shop", Name: "web", Operation: operation,
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: resource},
		}
	}
	create, update, pod := makeRequest(admissionv1.Create, "configmaps"),
		makeRequest(admissionv1.Update, "configmaps"), makeRequest(admissionv1.Create, "pods")
	tests := map[string]struct {
		isSecond bool
		request  *admissionv1.AdmissionRequest
		after    *corev1.Namespace
		want     Outcome
		wantCode int32 // 0 if allowed
	}{
		"initialized": {request: create, after: makeNamespace(initialized), want: OutcomeReleased},
		"initialized, but the API server calls the second webhook": {
			isSecond: true, request: create, after: makeNamespace(initialized),
			want: OutcomeResend, wantCode: http.StatusTooManyRequests,
		},
		"initialized, a Pod": {
			request: pod, after: makeNamespace(initialized), want: OutcomeResend, wantCode: http.StatusTooManyRequests,
		},
		"initialized with other labels": {
			request: create, after: makeNamespace(initialized, relabeled),
			want: OutcomeResend, wantCode: http.StatusTooManyRequests,
		},
		"deleted, created again and initialized": {
			request: create, after: makeNamespace(initialized, recreated),
			want: OutcomeResend, wantCode: http.StatusTooManyRequests,
		},
		"still initializing": {
			request: create, after: makeNamespace(), want: OutcomeTimedOut, wantCode: http.StatusTooManyRequests,
		},
		"label without a pending list": {
			request: create, want: OutcomeTimedOut, wantCode: http.StatusTooManyRequests,
			after: makeNamespace(initialized, func(n *corev1.Namespace) { n.Labels[v1alpha1.LabelInitializing] = "" }),
		},
		"failed": {
			request: create, after: makeNamespace(withFailure), want: OutcomeFailed, wantCode: http.StatusForbidden,
		},
		"terminating, CREATE": {
			request: create, after: makeNamespace(deleted), want: OutcomeFailed, wantCode: http.StatusForbidden,
		},
		"initialized and terminating, CREATE": {
			request: create, after: makeNamespace(initialized, deleted),
			want: OutcomeFailed, wantCode: http.StatusForbidden,
		},
		"terminating, UPDATE": {request: update, after: makeNamespace(deleted), want: OutcomeReleased},
		"no longer exists":    {request: create, want: OutcomeFailed, wantCode: http.StatusNotFound},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			outcome, response := handler{isSecond: test.isSecond}.decide(test.request, makeNamespace(), test.after)
			g.Expect(outcome).To(Equal(test.want))
			g.Expect(response.Allowed).To(Equal(test.wantCode == 0))
			g.Expect(response.Patches).To(BeEmpty())
			if test.wantCode == 0 {
				return
			}
			g.Expect(response.Result.Code).To(Equal(test.wantCode))
			err := &apierrors.StatusError{ErrStatus: *response.Result}
			seconds, isRetried := apierrors.SuggestsClientDelay(err)
			g.Expect(isRetried && seconds > 0).To(Equal(test.wantCode == http.StatusTooManyRequests))
			g.Expect(apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)).To(
				Equal(test.after != nil && test.after.DeletionTimestamp != nil))
		})
	}
}

func TestMessages(t *testing.T) {
	g := NewWithT(t)
	g.Expect(pendingMessage(makeNamespace())).To(And(
		ContainSubstring(`"shop"`), ContainSubstring("a.example.com, b.example.com."), ContainSubstring("namespace/shop")))
	many := makeNamespace(func(n *corev1.Namespace) {
		n.Annotations[v1alpha1.AnnotationPendingInitializers] = "a,b,c,d,e,f,g"
	})
	g.Expect(pendingMessage(many)).To(ContainSubstring("a, b, c, d, e and 2 more"))
	g.Expect(failedMessage(makeNamespace(withFailure))).To(
		ContainSubstring("QuotaExceeded: no room for another team"))
	hostile := makeNamespace(func(n *corev1.Namespace) {
		n.Annotations[v1alpha1.AnnotationInitializationResult] = `{"status":"Failure","message":"\u001b[31m\nspoofed"}`
	})
	g.Expect(failedMessage(hostile)).NotTo(Or(ContainSubstring("\x1b"), ContainSubstring("\n")))
}

func TestRetryAfter(t *testing.T) {
	now := time.Unix(1000, 0)
	tests := map[string]struct{ age, want time.Duration }{
		"new":                     {age: 0, want: time.Second},
		"created by a fast clock": {age: -time.Hour, want: time.Second},
		"4 s old":                 {age: 4 * time.Second, want: 4 * time.Second},
		"an hour old":             {age: time.Hour, want: 10 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := makeNamespace()
			namespace.CreationTimestamp = metav1.NewTime(now.Add(-test.age))
			g.Expect(retryAfter(namespace, now)).To(Equal(test.want))
		})
	}
}

func TestSlots(t *testing.T) {
	g := NewWithT(t)
	held := slots{limits: Limits{PerUser: 2, Total: 3}}
	g.Expect(held.acquire("a")).To(BeTrue())
	g.Expect(held.acquire("a")).To(BeTrue())
	g.Expect(held.acquire("a")).To(BeFalse(), "the limit per user")
	g.Expect(held.acquire("b")).To(BeTrue())
	g.Expect(held.acquire("c")).To(BeFalse(), "the limit of all users")
	held.release("a")
	g.Expect(held.acquire("c")).To(BeTrue())
	held.release("a")
	held.release("b")
	held.release("c")
	g.Expect(held.byUser).To(BeEmpty())
	g.Expect(held.total).To(BeZero())
}
