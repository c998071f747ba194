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
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

func TestNeglected(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	waiting := func(name string, since time.Duration) *wrappers.NamespaceWrapper {
		return wrappers.MakeNamespace(name).Initializers(rbac, quota).
			Condition(whole(yes, v1alpha1.ReasonPending, "waiting", ago(since)))
	}
	done := func(name string, since time.Duration) corev1.NamespaceCondition {
		return one(name, yes, v1alpha1.ReasonCompleted, myDone, ago(since))
	}
	only := func(name string, neglect Neglect) map[string]Neglect { return map[string]Neglect{name: neglect} }

	tests := map[string]struct {
		namespaces []*wrappers.NamespaceWrapper
		want       map[string]Neglect
	}{
		"none": {want: map[string]Neglect{}},
		"just not long enough": {
			namespaces: []*wrappers.NamespaceWrapper{waiting("x", ServePatience-1)}, want: map[string]Neglect{},
		},
		"long enough": {
			namespaces: []*wrappers.NamespaceWrapper{waiting("x", ServePatience)},
			want:       only(rbac, Neglect{"x", ago(ServePatience).Time, 1}),
		},
		"its turn has just come": {
			namespaces: []*wrappers.NamespaceWrapper{
				waiting("x", time.Hour).Pending(quota).Condition(done(rbac, time.Second)),
			},
			want: map[string]Neglect{},
		},
		"its turn came after the first one, or when that was skipped": {
			namespaces: []*wrappers.NamespaceWrapper{
				waiting("x", time.Hour).Pending(quota).Condition(done(rbac, 2*time.Minute)),
				waiting("y", time.Hour).Pending(quota).
					Condition(one(rbac, no, v1alpha1.ReasonTimedOut, "skipped", ago(3*time.Minute))),
			},
			want: only(quota, Neglect{"y", ago(3 * time.Minute).Time, 2}),
		},
		"the operator's word is no sign of life": {
			namespaces: []*wrappers.NamespaceWrapper{
				waiting("x", time.Hour).Condition(one(rbac, no, v1alpha1.ReasonPending, myTurn, ago(time.Hour))),
			},
			want: only(rbac, Neglect{"x", ago(time.Hour).Time, 1}),
		},
		"its own words are": {
			namespaces: []*wrappers.NamespaceWrapper{
				waiting("x", time.Hour).Condition(one(rbac, no, "Creating", "3 of 7", ago(time.Hour))),
			},
			want: map[string]Neglect{},
		},
		"the one that has waited for longest is named": {
			namespaces: []*wrappers.NamespaceWrapper{
				waiting("b", time.Hour), waiting("c", 2*time.Hour), waiting("a", 2*time.Hour), waiting("d", time.Minute),
			},
			want: only(rbac, Neglect{"a", ago(2 * time.Hour).Time, 4}),
		},
		"not those that have failed, are deleted, are done or were never seen": {
			namespaces: []*wrappers.NamespaceWrapper{
				waiting("a", time.Hour).Result(`{"status":"Failure"}`), waiting("b", time.Hour).Terminating(now),
				waiting("c", time.Hour).Pending(), wrappers.MakeNamespace("d").Initializers(rbac),
				wrappers.MakeNamespace("e").Initializers(rbac).
					Condition(whole(no, v1alpha1.ReasonNotRequired, noneAsked, ago(time.Hour))),
			},
			want: map[string]Neglect{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var namespaces []corev1.Namespace
			for _, namespace := range test.namespaces {
				namespaces = append(namespaces, *namespace.Obj())
			}
			NewWithT(t).Expect(Neglected(namespaces, now)).To(Equal(test.want))
		})
	}
}

func TestServedCondition(t *testing.T) {
	neglected := map[string]Neglect{quota: {"shop", now, 3}, mesh: {"x", now, 1}}
	const (
		quotaWaits = `quota.corp.com has had its turn in namespace "shop" since 2026-03-01T12:00:00Z, and in 2 more, and ` +
			"has neither removed its name nor said anything: see whether its controller runs"
		meshWaits = `mesh.corp.com has had its turn in namespace "x" since 2026-03-01T12:00:00Z, and ` +
			"has neither removed its name nor said anything: see whether its controller runs"
		nobody = "nobody but the control plane and cluster administrators may do the work of rbac.corp.com and " +
			"quota.corp.com: create a ClusterRole with the verbs get, list, watch, patch and initialize on namespaces, and " +
			"a ClusterRoleBinding of it to whoever runs the initializer; a Role or a RoleBinding does not count"
		served = "somebody may do the work, and no namespace has waited for longer than 1m0s without a sign of life"
	)
	tests := map[string]struct {
		initializers []string
		service      Service
		status       metav1.ConditionStatus
		reason       string
		message      string
	}{
		"empty, whatever is known": {
			service: Service{WhyUnknown: "?", Neglected: neglected}, status: metav1.ConditionTrue,
			reason: v1alpha1.ReasonHealthy, message: "this configuration names no initializer",
		},
		"served": {
			initializers: []string{rbac}, service: Service{IsPossible: true, Neglected: neglected},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonHealthy, message: served,
		},
		"nobody may": {
			initializers: []string{rbac, quota}, service: Service{Neglected: neglected},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonInitializerUnauthorized, message: nobody,
		},
		"nobody acts": {
			initializers: []string{rbac, quota}, service: Service{IsPossible: true, Neglected: neglected},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonInitializerUnresponsive, message: quotaWaits,
		},
		"nobody acts for two of them": {
			initializers: []string{mesh, quota}, service: Service{IsPossible: true, Neglected: neglected},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonInitializerUnresponsive, message: meshWaits + "; " + quotaWaits,
		},
		"nobody acts, and who may is not known": {
			initializers: []string{quota}, service: Service{WhyUnknown: "no", Neglected: neglected},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonInitializerUnresponsive, message: quotaWaits,
		},
		"who may is not known": {
			initializers: []string{rbac}, service: Service{WhyUnknown: "forbidden", Neglected: neglected},
			status: metav1.ConditionUnknown, reason: v1alpha1.ReasonAuthorizationUnknown,
			message: "it is not known who may do the work of the initializers: forbidden",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			configuration := wrappers.MakeConfiguration("c").Generation(3).Initializers(test.initializers...).Obj()
			NewWithT(t).Expect(ServedCondition(configuration, test.service)).To(Equal(metav1.Condition{
				Type: v1alpha1.ConditionHealthy, Status: test.status, Reason: test.reason, Message: test.message,
				ObservedGeneration: 3,
			}))
		})
	}
}
