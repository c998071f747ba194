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
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// Two moments: when a condition was set, and when it is computed again.
var (
	before = metav1.NewTime(now.Add(-time.Hour))
	at     = metav1.NewTime(now)
)

// What the operator says.
const (
	myTurn    = "the initializer has not removed its name from the list yet"
	notMyTurn = "the initializer waits for its turn"
	myDone    = "the initializer has done its work"
	allDone   = "all initializers have done their work"
	noneAsked = "this namespace has no initializers to wait for"
)

func TestComputeConditions(t *testing.T) {
	const (
		yes     = corev1.ConditionTrue
		no      = corev1.ConditionFalse
		unknown = corev1.ConditionUnknown
	)
	type conditions = []corev1.NamespaceCondition

	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		have      conditions
		want      conditions
	}{
		"a namespace that never had to be initialized": {
			namespace: wrappers.MakeNamespace("x"),
			want:      conditions{whole(no, v1alpha1.ReasonNotRequired, noneAsked, at)},
		},
		"a new namespace": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota, mesh),
			want: conditions{
				whole(yes, v1alpha1.ReasonPending, "waiting for rbac.corp.com (1 of 3)", at),
				one(rbac, no, v1alpha1.ReasonPending, myTurn, at),
				one(quota, no, v1alpha1.ReasonPending, notMyTurn, at),
				one(mesh, no, v1alpha1.ReasonPending, notMyTurn, at),
			},
		},
		"the first initializer is done, and its condition becomes True": {
			namespace: wrappers.MakeNamespace("x").Initializers(quota, rbac, mesh).Pending(rbac, mesh),
			have: conditions{
				whole(yes, v1alpha1.ReasonPending, "waiting for quota.corp.com (1 of 3)", before),
				one(quota, no, v1alpha1.ReasonPending, myTurn, before),
				one(rbac, no, v1alpha1.ReasonPending, notMyTurn, before),
				one(mesh, no, v1alpha1.ReasonPending, notMyTurn, before),
			},
			want: conditions{
				whole(yes, v1alpha1.ReasonPending, "waiting for rbac.corp.com (2 of 3)", before),
				one(quota, yes, v1alpha1.ReasonCompleted, myDone, at),
				one(rbac, no, v1alpha1.ReasonPending, myTurn, before),
			},
		},
		"one that is not first is done before its turn": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota, mesh).Pending(rbac, mesh),
			have: conditions{
				whole(yes, v1alpha1.ReasonPending, "waiting for rbac.corp.com (1 of 3)", before),
				one(rbac, no, v1alpha1.ReasonPending, myTurn, before),
				one(quota, no, v1alpha1.ReasonPending, notMyTurn, before),
				one(mesh, no, v1alpha1.ReasonPending, notMyTurn, before),
			},
			want: conditions{
				whole(yes, v1alpha1.ReasonPending, "waiting for rbac.corp.com (2 of 3)", before),
				one(quota, yes, v1alpha1.ReasonCompleted, myDone, at),
			},
		},
		"the last initializer is done": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(),
			have: conditions{
				whole(yes, v1alpha1.ReasonPending, "waiting for rbac.corp.com (1 of 1)", before),
				one(rbac, no, v1alpha1.ReasonPending, myTurn, before),
			},
			want: conditions{
				whole(no, v1alpha1.ReasonCompleted, allDone, at),
				one(rbac, yes, v1alpha1.ReasonCompleted, myDone, at),
			},
		},
		"it was initialized while the operator was away": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(),
			want: conditions{
				whole(no, v1alpha1.ReasonCompleted, allDone, at),
				one(rbac, yes, v1alpha1.ReasonCompleted, myDone, at),
				one(quota, yes, v1alpha1.ReasonCompleted, myDone, at),
			},
		},
		"a condition that is right already is not written again": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(),
			have: conditions{
				whole(no, v1alpha1.ReasonCompleted, allDone, before),
				one(quota, yes, v1alpha1.ReasonCompleted, myDone, before),
			},
			want: conditions{one(rbac, yes, v1alpha1.ReasonCompleted, myDone, at)},
		},
		"the reason changes and the status does not": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(),
			have: conditions{
				whole(no, v1alpha1.ReasonNotRequired, noneAsked, before),
				one(rbac, yes, v1alpha1.ReasonCompleted, "an older release said this", before),
			},
			want: conditions{
				whole(no, v1alpha1.ReasonCompleted, allDone, before),
				one(rbac, yes, v1alpha1.ReasonCompleted, myDone, before),
			},
		},
		"somebody set Initializing to something else": {
			namespace: wrappers.MakeNamespace("x"),
			have:      conditions{whole(unknown, "Whatever", "who knows", before)},
			want:      conditions{whole(no, v1alpha1.ReasonNotRequired, noneAsked, at)},
		},
		"an initializer was put on the list by hand": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(mesh, rbac),
			want: conditions{
				whole(yes, v1alpha1.ReasonPending, "waiting for mesh.corp.com (1 of 2)", at),
				one(rbac, no, v1alpha1.ReasonPending, notMyTurn, at),
				one(mesh, no, v1alpha1.ReasonPending, myTurn, at),
			},
		},
		"an initializer was put on the list twice by hand": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(rbac, rbac),
			want: conditions{
				whole(yes, v1alpha1.ReasonPending, "waiting for rbac.corp.com (1 of 1)", at),
				one(rbac, no, v1alpha1.ReasonPending, myTurn, at),
			},
		},

		// What initializers say themselves.
		"an initializer's own words stay while it is pending": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota, mesh),
			have: conditions{
				one(rbac, no, "CopyingRoles", "3 of 7 roles copied", before),
				one(quota, unknown, "Undecided", "", before),
				one(mesh, no, "", "", before),
			},
			want: conditions{whole(yes, v1alpha1.ReasonPending, "waiting for rbac.corp.com (1 of 3)", at)},
		},
		"an initializer's own words stay when it is done": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(),
			have:      conditions{one(rbac, yes, "RolesCopied", "7 roles copied", before)},
			want:      conditions{whole(no, v1alpha1.ReasonCompleted, allDone, at)},
		},
		"an initializer's own words end with its work": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(),
			have: conditions{
				one(rbac, no, "CopyingRoles", "3 of 7 roles copied", before),
				one(quota, unknown, "Undecided", "", before),
			},
			want: conditions{
				whole(no, v1alpha1.ReasonCompleted, allDone, at),
				one(rbac, yes, v1alpha1.ReasonCompleted, myDone, at),
				one(quota, yes, v1alpha1.ReasonCompleted, myDone, at),
			},
		},
		"an initializer says that it is done and does not leave the list": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac),
			have:      conditions{one(rbac, yes, "RolesCopied", "7 roles copied", before)},
			want: conditions{
				whole(yes, v1alpha1.ReasonPending, "waiting for rbac.corp.com (1 of 1)", at),
				one(rbac, no, v1alpha1.ReasonPending, myTurn, at),
			},
		},
		"an initializer uses the operator's words": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(quota),
			have: conditions{
				one(rbac, yes, v1alpha1.ReasonPending, "", before),
				one(quota, unknown, v1alpha1.ReasonCompleted, "", before),
			},
			want: conditions{
				whole(yes, v1alpha1.ReasonPending, "waiting for quota.corp.com (2 of 2)", at),
				one(rbac, yes, v1alpha1.ReasonCompleted, myDone, before),
				one(quota, no, v1alpha1.ReasonPending, myTurn, at),
			},
		},

		// Others.
		"conditions of others are not touched": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(),
			have: conditions{
				{Type: corev1.NamespaceDeletionContentFailure, Status: yes, Reason: "ContentDeletionFailed"},
				{Type: "corp.com/Ready", Status: no, Reason: v1alpha1.ReasonPending},
				one(mesh, no, v1alpha1.ReasonPending, notMyTurn, before), // Not on this namespace's list.
			},
			want: conditions{
				whole(no, v1alpha1.ReasonCompleted, allDone, at),
				one(rbac, yes, v1alpha1.ReasonCompleted, myDone, at),
			},
		},

		// Failures.
		"failed with reason and message": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(quota).Result(failureResult),
			have: conditions{
				whole(yes, v1alpha1.ReasonPending, "waiting for quota.corp.com (2 of 2)", before),
				one(rbac, yes, v1alpha1.ReasonCompleted, myDone, before),
			},
			want: conditions{
				whole(no, v1alpha1.ReasonFailed, "Forbidden: no quota left", at),
				one(quota, no, v1alpha1.ReasonPending, myTurn, at),
			},
		},
		"failed with a message": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).
				Result(`{"status":"Failure","message":"no quota left"}`),
			want: conditions{
				whole(no, v1alpha1.ReasonFailed, "no quota left", at),
				one(rbac, no, v1alpha1.ReasonPending, myTurn, at),
			},
		},
		"failed with a reason": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).
				Result(`{"status":"Failure","reason":"Forbidden"}`),
			want: conditions{
				whole(no, v1alpha1.ReasonFailed, "Forbidden", at),
				one(rbac, no, v1alpha1.ReasonPending, myTurn, at),
			},
		},
		"failed, and protected from deletion": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Failure","message":"no quota left"}`).
				Label(v1alpha1.LabelDeletionProtection, "enabled"),
			want: conditions{
				whole(no, v1alpha1.ReasonFailed, "no quota left; the namespace is not deleted: "+
					"label nslifecycle.dev/deletion-protection protects it; to let it go, run: "+
					"kubectl label namespace x nslifecycle.dev/deletion-protection-", at),
				one(rbac, no, v1alpha1.ReasonPending, myTurn, at),
			},
		},
		"failed without a word": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Failure"}`),
			want: conditions{
				whole(no, v1alpha1.ReasonFailed, "an initializer reported failure without saying why", at),
				one(rbac, no, v1alpha1.ReasonPending, myTurn, at),
			},
		},
		"a result that is ignored": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Success"}`),
			have: conditions{
				whole(yes, v1alpha1.ReasonPending, "waiting for rbac.corp.com (1 of 1)", before),
				one(rbac, no, v1alpha1.ReasonPending, myTurn, before),
			},
			want: conditions{
				whole(yes, v1alpha1.ReasonPending, `waiting for rbac.corp.com (1 of 1); annotation `+
					`nslifecycle.dev/initialization-result is ignored because its status is "Success" and not "Failure"; `+
					`to report success, remove the initializer's name from nslifecycle.dev/pending-initializers instead`,
					before),
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			test.namespace.Status.Conditions = test.have
			namespace := test.namespace.Obj()
			changed := ComputeConditions(namespace, Observe(namespace), at)
			g.Expect(changed).To(Equal(test.want))
			g.Expect(namespace).To(Equal(test.namespace.Obj()), "the namespace that was looked at")
			expectConditionsToSettle(t, namespace)
		})
	}
}

func TestIsInitializing(t *testing.T) {
	tests := map[string]struct {
		conditions []corev1.NamespaceCondition
		want       bool
	}{
		"no condition": {},
		"another condition": {
			conditions: []corev1.NamespaceCondition{{Type: "corp.com/Ready", Status: corev1.ConditionTrue}},
		},
		"True": {
			conditions: []corev1.NamespaceCondition{initializing(corev1.ConditionTrue, v1alpha1.ReasonPending)},
			want:       true,
		},
		"False": {
			conditions: []corev1.NamespaceCondition{initializing(corev1.ConditionFalse, v1alpha1.ReasonCompleted)},
		},
		"Unknown": {
			conditions: []corev1.NamespaceCondition{initializing(corev1.ConditionUnknown, v1alpha1.ReasonPending)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := wrappers.MakeNamespace("x")
			namespace.Status.Conditions = test.conditions
			g.Expect(IsInitializing(namespace.Obj())).To(Equal(test.want))
		})
	}
}

// expectConditionsToSettle expects that the same namespace always yields the same
// conditions, and that it yields none once they were written, also later and when they
// come back in another order: otherwise the operator would write for ever.
func expectConditionsToSettle(t *testing.T, namespace *corev1.Namespace) {
	t.Helper()
	g := NewWithT(t)
	state := Observe(namespace)
	changed := ComputeConditions(namespace, state, at)
	g.Expect(Observe(namespace)).To(Equal(state), "observed again")
	g.Expect(ComputeConditions(namespace, state, at)).To(Equal(changed), "computed again")

	written := namespace.DeepCopy()
	for _, condition := range changed {
		if have := nscondition.Find(written, condition.Type); have != nil {
			*have = condition
		} else {
			written.Status.Conditions = append([]corev1.NamespaceCondition{condition}, written.Status.Conditions...)
		}
	}
	later := metav1.NewTime(now.Add(time.Hour))
	g.Expect(Observe(written)).To(Equal(state), "observed after the conditions were written")
	g.Expect(ComputeConditions(written, Observe(written), later)).To(BeEmpty(), "computed after they were written")
}

// whole is the condition of the whole initialization.
func whole(status corev1.ConditionStatus, reason, message string, since metav1.Time) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{
		Type: v1alpha1.ConditionInitializing, Status: status, Reason: reason, Message: message, LastTransitionTime: since,
	}
}

// one is the condition of one initializer.
func one(
	name string, status corev1.ConditionStatus, reason, message string, since metav1.Time,
) corev1.NamespaceCondition {
	condition := whole(status, reason, message, since)
	condition.Type = corev1.NamespaceConditionType(name + "/Initialized")
	return condition
}
