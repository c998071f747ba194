// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestFindUnresponsive(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	waiting := func(name string, since time.Duration) *wrappers.NamespaceWrapper {
		return wrappers.MakeNamespace(name).Initializers(rbac, quota).
			Condition(whole(yes, v1alpha1.ReasonInitializing, "waiting", ago(since)))
	}
	done := func(name string, since time.Duration) corev1.NamespaceCondition {
		return one(name, yes, v1alpha1.ReasonInitialized, messageInitializerDone, ago(since))
	}
	only := func(name string, unresponsive Unresponsive) map[string]Unresponsive {
		return map[string]Unresponsive{name: unresponsive}
	}

	tests := map[string]struct {
		namespaces []*wrappers.NamespaceWrapper
		want       map[string]Unresponsive
	}{
		"none": {want: map[string]Unresponsive{}},
		"just before the interval": {
			namespaces: []*wrappers.NamespaceWrapper{waiting("x", UnresponsiveAfter-1)}, want: map[string]Unresponsive{},
		},
		"at the end of the interval": {
			namespaces: []*wrappers.NamespaceWrapper{waiting("x", UnresponsiveAfter)},
			want:       only(rbac, Unresponsive{"x", ago(UnresponsiveAfter).Time, 1}),
		},
		"the turn of the initializer has just started": {
			namespaces: []*wrappers.NamespaceWrapper{
				waiting("x", time.Hour).Pending(quota).Condition(done(rbac, time.Second)),
			},
			want: map[string]Unresponsive{},
		},
		"the turn started when the first initializer completed or was skipped": {
			namespaces: []*wrappers.NamespaceWrapper{
				waiting("x", time.Hour).Pending(quota).Condition(done(rbac, 2*time.Minute)),
				waiting("y", time.Hour).Pending(quota).
					Condition(one(rbac, no, v1alpha1.ReasonTimedOut, "skipped", ago(3*time.Minute))),
			},
			want: only(quota, Unresponsive{"y", ago(3 * time.Minute).Time, 2}),
		},
		"a condition that the operator has set is not a response": {
			namespaces: []*wrappers.NamespaceWrapper{
				waiting("x", time.Hour).Condition(one(rbac, no, v1alpha1.ReasonPending, messageInitializerPending, ago(time.Hour))),
			},
			want: only(rbac, Unresponsive{"x", ago(time.Hour).Time, 1}),
		},
		"a condition that the initializer has set is a response": {
			namespaces: []*wrappers.NamespaceWrapper{
				waiting("x", time.Hour).Condition(one(rbac, no, "Creating", "3 of 7", ago(time.Hour))),
			},
			want: map[string]Unresponsive{},
		},
		"the result names the namespace that has waited longest": {
			namespaces: []*wrappers.NamespaceWrapper{
				waiting("b", time.Hour), waiting("c", 2*time.Hour), waiting("a", 2*time.Hour), waiting("d", time.Minute),
			},
			want: only(rbac, Unresponsive{"a", ago(2 * time.Hour).Time, 4}),
		},
		"failed, terminating, completed and unreconciled namespaces are ignored": {
			namespaces: []*wrappers.NamespaceWrapper{
				waiting("a", time.Hour).Result(`{"status":"Failure"}`), waiting("b", time.Hour).Terminating(now),
				waiting("c", time.Hour).Pending(), wrappers.MakeNamespace("d").Initializers(rbac),
				wrappers.MakeNamespace("e").Initializers(rbac).
					Condition(whole(no, v1alpha1.ReasonInitialized, messageWithoutInitializers, ago(time.Hour))),
			},
			want: map[string]Unresponsive{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var namespaces []corev1.Namespace
			for _, namespace := range test.namespaces {
				namespaces = append(namespaces, *namespace.Obj())
			}
			NewWithT(t).Expect(FindUnresponsive(namespaces, now)).To(Equal(test.want))
		})
	}
}

func TestHealthyCondition(t *testing.T) {
	quotaWaits, meshWaits := Unresponsive{"shop", now, 3}, Unresponsive{"x", now, 1}
	unresponsive := map[string]Unresponsive{quota: quotaWaits, mesh: meshWaits}
	tests := map[string]struct {
		initializers []string
		health       Health
		status       metav1.ConditionStatus
		reason       string
		message      string
	}{
		"no initializers, while other initializers are unhealthy": {
			health: Health{AuthorizationError: "?", Unresponsive: unresponsive}, status: metav1.ConditionTrue,
			reason: v1alpha1.ReasonHealthy, message: messageNothingToServe,
		},
		"healthy": {
			initializers: []string{rbac}, health: Health{IsAuthorized: true, Unresponsive: unresponsive},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonHealthy, message: healthyMessage(),
		},
		"unauthorized": {
			initializers: []string{rbac, quota}, health: Health{Unresponsive: unresponsive},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonInitializerUnauthorized,
			message: unauthorizedMessage([]string{rbac, quota}),
		},
		"unauthorized, next to the initializer of templates": {
			initializers: []string{v1alpha1.TemplatesInitializer, rbac},
			status:       metav1.ConditionFalse, reason: v1alpha1.ReasonInitializerUnauthorized,
			message: unauthorizedMessage([]string{rbac}),
		},
		"only the initializer of templates": {
			initializers: []string{v1alpha1.TemplatesInitializer},
			status:       metav1.ConditionTrue, reason: v1alpha1.ReasonHealthy, message: healthyMessage(),
		},
		"one initializer is unresponsive": {
			initializers: []string{rbac, quota}, health: Health{IsAuthorized: true, Unresponsive: unresponsive},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonInitializerUnresponsive,
			message: unresponsiveMessage(quota, quotaWaits),
		},
		"two initializers are unresponsive": {
			initializers: []string{mesh, quota}, health: Health{IsAuthorized: true, Unresponsive: unresponsive},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonInitializerUnresponsive,
			message: unresponsiveMessage(mesh, meshWaits) + "; " + unresponsiveMessage(quota, quotaWaits),
		},
		"one initializer is unresponsive, and the authorization is unknown": {
			initializers: []string{quota}, health: Health{AuthorizationError: "no", Unresponsive: unresponsive},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonInitializerUnresponsive,
			message: unresponsiveMessage(quota, quotaWaits),
		},
		"the authorization is unknown": {
			initializers: []string{rbac}, health: Health{AuthorizationError: "forbidden", Unresponsive: unresponsive},
			status: metav1.ConditionUnknown, reason: v1alpha1.ReasonAuthorizationUnknown,
			message: messageHealthUnknown + "forbidden",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			configuration := wrappers.MakeConfiguration("c").Generation(3).Initializers(test.initializers...).Obj()
			NewWithT(t).Expect(HealthyCondition(configuration, test.health)).To(Equal(metav1.Condition{
				Type: v1alpha1.ConditionHealthy, Status: test.status, Reason: test.reason, Message: test.message,
				ObservedGeneration: 3,
			}))
		})
	}
}
