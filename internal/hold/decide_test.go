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
func labeled(n *corev1.Namespace)   { n.Labels[v1alpha1.LabelInitializing] = "" }

func TestDecide(t *testing.T) {
	tests := map[string]struct {
		operation admissionv1.Operation
		namespace *corev1.Namespace
		want      decision
	}{
		"initializing":                         {admissionv1.Create, makeNamespace(), decideHold},
		"initializing, DELETE":                 {admissionv1.Delete, makeNamespace(), decideHold},
		"label without a pending list":         {admissionv1.Create, makeNamespace(initialized, labeled), decideHold},
		"unknown":                              {admissionv1.Create, nil, decideResend},
		"initialized":                          {admissionv1.Create, makeNamespace(initialized), decideResend},
		"initialized and terminating, CREATE":  {admissionv1.Create, makeNamespace(initialized, deleted), decideResend},
		"initialized and terminating, UPDATE":  {admissionv1.Update, makeNamespace(initialized, deleted), decideResend},
		"failed":                               {admissionv1.Create, makeNamespace(withFailure), decideFail},
		"terminating, CREATE":                  {admissionv1.Create, makeNamespace(deleted), decideResend},
		"terminating, UPDATE":                  {admissionv1.Update, makeNamespace(deleted), decideAllow},
		"terminating, DELETE":                  {admissionv1.Delete, makeNamespace(deleted), decideAllow},
		"failed and terminating, another kind": {admissionv1.Connect, makeNamespace(withFailure, deleted), decideAllow},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(decide(test.operation, test.namespace)).To(Equal(test.want))
		})
	}
}

// TestAnswer verifies that no write that was held is allowed.
func TestAnswer(t *testing.T) {
	tests := map[string]struct {
		after    *corev1.Namespace
		want     Outcome
		wantCode int32
	}{
		"initialized":                    {makeNamespace(initialized), OutcomeResend, http.StatusTooManyRequests},
		"initialized, with other labels": {makeNamespace(initialized, relabeled), OutcomeResend, http.StatusTooManyRequests},
		"still initializing":             {makeNamespace(), OutcomeTimedOut, http.StatusTooManyRequests},
		"initializing, other labels":     {makeNamespace(relabeled), OutcomeTimedOut, http.StatusTooManyRequests},
		"failed":                         {makeNamespace(withFailure), OutcomeFailed, http.StatusForbidden},
		"recreated, and failed":          {makeNamespace(recreated, withFailure), OutcomeResend, http.StatusTooManyRequests},
		"recreated":                      {makeNamespace(recreated), OutcomeResend, http.StatusTooManyRequests},
		"terminating":                    {makeNamespace(deleted), OutcomeResend, http.StatusTooManyRequests},
		"no longer exists":               {nil, OutcomeResend, http.StatusTooManyRequests},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			outcome, response := answer(makeNamespace(), test.after, false)
			g.Expect(outcome).To(Equal(test.want))
			g.Expect(response.Allowed).To(BeFalse())
			g.Expect(response.Result.Code).To(Equal(test.wantCode))
			seconds, isRetried := apierrors.SuggestsClientDelay(&apierrors.StatusError{ErrStatus: *response.Result})
			g.Expect(isRetried && seconds > 0).To(Equal(test.wantCode == http.StatusTooManyRequests))
		})
	}
}

func TestMessages(t *testing.T) {
	g := NewWithT(t)
	g.Expect(pendingMessage(makeNamespace())).To(And(
		ContainSubstring(`"shop"`), ContainSubstring("a.example.com, b.example.com."), ContainSubstring("kubectl get namespace shop")))
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
