// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// before is the transition time of existing conditions, and at is the current time.
var (
	before = metav1.NewTime(now.Add(-time.Hour))
	at     = metav1.NewTime(now)
)

// waitingFor returns the message for a namespace that is waiting for the initializer at the given
// position in the list.
func waitingFor(name string, position, of int) string {
	pending := append([]string{name}, make([]string, of-position)...)
	return pendingMessage(State{All: make([]string, of), Pending: pending})
}

// withoutReady returns the conditions except Ready and Stalled, for which TestReadyConditions has the cases.
func withoutReady(conditions []corev1.NamespaceCondition) []corev1.NamespaceCondition {
	return slices.DeleteFunc(slices.Clone(conditions), func(condition corev1.NamespaceCondition) bool {
		return condition.Type == v1alpha1.ConditionReady || condition.Type == v1alpha1.ConditionStalled
	})
}

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
		"a namespace without initializers": {
			namespace: wrappers.MakeNamespace("x"),
			want:      conditions{whole(no, v1alpha1.ReasonInitialized, messageWithoutInitializers, at)},
		},
		"a new namespace": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota, mesh),
			want: conditions{
				whole(yes, v1alpha1.ReasonInitializing, waitingFor(rbac, 1, 3), at),
				one(rbac, no, v1alpha1.ReasonPending, messageInitializerPending, at),
				one(quota, no, v1alpha1.ReasonPending, messageInitializerWaiting, at),
				one(mesh, no, v1alpha1.ReasonPending, messageInitializerWaiting, at),
			},
		},
		"the first initializer completes": {
			namespace: wrappers.MakeNamespace("x").Initializers(quota, rbac, mesh).Pending(rbac, mesh),
			have: conditions{
				whole(yes, v1alpha1.ReasonInitializing, waitingFor(quota, 1, 3), before),
				one(quota, no, v1alpha1.ReasonPending, messageInitializerPending, before),
				one(rbac, no, v1alpha1.ReasonPending, messageInitializerWaiting, before),
				one(mesh, no, v1alpha1.ReasonPending, messageInitializerWaiting, before),
			},
			want: conditions{
				whole(yes, v1alpha1.ReasonInitializing, waitingFor(rbac, 2, 3), before),
				one(quota, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
				one(rbac, no, v1alpha1.ReasonPending, messageInitializerPending, before),
			},
		},
		"an initializer completes before its turn": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota, mesh).Pending(rbac, mesh),
			have: conditions{
				whole(yes, v1alpha1.ReasonInitializing, waitingFor(rbac, 1, 3), before),
				one(rbac, no, v1alpha1.ReasonPending, messageInitializerPending, before),
				one(quota, no, v1alpha1.ReasonPending, messageInitializerWaiting, before),
				one(mesh, no, v1alpha1.ReasonPending, messageInitializerWaiting, before),
			},
			want: conditions{
				whole(yes, v1alpha1.ReasonInitializing, waitingFor(rbac, 2, 3), before),
				one(quota, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
			},
		},
		"the last initializer completes": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(),
			have: conditions{
				whole(yes, v1alpha1.ReasonInitializing, waitingFor(rbac, 1, 1), before),
				one(rbac, no, v1alpha1.ReasonPending, messageInitializerPending, before),
			},
			want: conditions{
				whole(no, v1alpha1.ReasonInitialized, messageCompleted, at),
				one(rbac, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
			},
		},
		"the namespace was initialized while the operator was not running": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(),
			want: conditions{
				whole(no, v1alpha1.ReasonInitialized, messageCompleted, at),
				one(rbac, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
				one(quota, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
			},
		},
		"a condition that is up to date is not written": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(),
			have: conditions{
				whole(no, v1alpha1.ReasonInitialized, messageCompleted, before),
				one(quota, yes, v1alpha1.ReasonInitialized, messageInitializerDone, before),
			},
			want: conditions{one(rbac, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at)},
		},
		"the reason changes, but the status does not": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(),
			have: conditions{
				whole(no, v1alpha1.ReasonInitialized, messageWithoutInitializers, before),
				one(rbac, yes, v1alpha1.ReasonInitialized, "3 shards", before), // The message of a Result.
			},
			want: conditions{whole(no, v1alpha1.ReasonInitialized, messageCompleted, before)},
		},
		"another client set the Initializing condition": {
			namespace: wrappers.MakeNamespace("x"),
			have:      conditions{whole(unknown, "Other", "other", before)},
			want:      conditions{whole(no, v1alpha1.ReasonInitialized, messageWithoutInitializers, at)},
		},
		"an initializer was added to the pending list manually": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(mesh, rbac),
			want: conditions{
				whole(yes, v1alpha1.ReasonInitializing, waitingFor(mesh, 1, 2), at),
				one(rbac, no, v1alpha1.ReasonPending, messageInitializerWaiting, at),
				one(mesh, no, v1alpha1.ReasonPending, messageInitializerPending, at),
			},
		},
		"an initializer was added to the pending list twice": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(rbac, rbac),
			want: conditions{
				whole(yes, v1alpha1.ReasonInitializing, waitingFor(rbac, 1, 1), at),
				one(rbac, no, v1alpha1.ReasonPending, messageInitializerPending, at),
			},
		},

		// Conditions that the initializers themselves set.
		"the condition of an initializer is kept while it is pending": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota, mesh),
			have: conditions{
				one(rbac, no, "CopyingRoles", "3 of 7 roles copied", before),
				one(quota, unknown, "Undecided", "", before),
				one(mesh, no, "", "", before),
			},
			want: conditions{whole(yes, v1alpha1.ReasonInitializing, waitingFor(rbac, 1, 3), at)},
		},
		"the condition of an initializer is kept after it completes": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(),
			have:      conditions{one(rbac, yes, "RolesCopied", "7 roles copied", before)},
			want:      conditions{whole(no, v1alpha1.ReasonInitialized, messageCompleted, at)},
		},
		"the condition of an initializer that completes without updating it is replaced": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(),
			have: conditions{
				one(rbac, no, "CopyingRoles", "3 of 7 roles copied", before),
				one(quota, unknown, "Undecided", "", before),
			},
			want: conditions{
				whole(no, v1alpha1.ReasonInitialized, messageCompleted, at),
				one(rbac, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
				one(quota, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
			},
		},
		"an initializer sets its condition to True and stays on the pending list": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac),
			have:      conditions{one(rbac, yes, "RolesCopied", "7 roles copied", before)},
			want: conditions{
				whole(yes, v1alpha1.ReasonInitializing, waitingFor(rbac, 1, 1), at),
				one(rbac, no, v1alpha1.ReasonPending, messageInitializerPending, at),
			},
		},
		"an initializer uses reasons that are reserved for the operator": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(quota),
			have: conditions{
				one(rbac, yes, v1alpha1.ReasonPending, "", before),
				one(quota, unknown, v1alpha1.ReasonInitialized, "", before),
			},
			want: conditions{
				whole(yes, v1alpha1.ReasonInitializing, waitingFor(quota, 2, 2), at),
				one(rbac, yes, v1alpha1.ReasonInitialized, messageInitializerDone, before),
				one(quota, no, v1alpha1.ReasonPending, messageInitializerPending, at),
			},
		},

		"conditions of other controllers are not changed": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(),
			have: conditions{
				{Type: corev1.NamespaceDeletionContentFailure, Status: yes, Reason: "ContentDeletionFailed"},
				{Type: "corp.com/Ready", Status: no, Reason: v1alpha1.ReasonPending},
				one(mesh, no, v1alpha1.ReasonPending, messageInitializerWaiting, before), // The initializer is not in the namespace's list.
			},
			want: conditions{
				whole(no, v1alpha1.ReasonInitialized, messageCompleted, at),
				one(rbac, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
			},
		},

		// Namespaces whose initialization has failed.
		"failed with reason and message": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(quota).Result(failureResult),
			have: conditions{
				whole(yes, v1alpha1.ReasonInitializing, waitingFor(quota, 2, 2), before),
				one(rbac, yes, v1alpha1.ReasonInitialized, messageInitializerDone, before),
			},
			want: conditions{
				whole(no, v1alpha1.ReasonFailed, "Forbidden: no quota left", at),
				one(quota, no, v1alpha1.ReasonPending, messageInitializerPending, at),
			},
		},
		"failed with a message": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).
				Result(`{"status":"Failure","message":"no quota left"}`),
			want: conditions{
				whole(no, v1alpha1.ReasonFailed, "no quota left", at),
				one(rbac, no, v1alpha1.ReasonPending, messageInitializerPending, at),
			},
		},
		"failed with a reason": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).
				Result(`{"status":"Failure","reason":"Forbidden"}`),
			want: conditions{
				whole(no, v1alpha1.ReasonFailed, "Forbidden", at),
				one(rbac, no, v1alpha1.ReasonPending, messageInitializerPending, at),
			},
		},
		"failed without reason and message": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Failure"}`),
			want: conditions{
				whole(no, v1alpha1.ReasonFailed, messageNoFailureReason, at),
				one(rbac, no, v1alpha1.ReasonPending, messageInitializerPending, at),
			},
		},
		"an ignored result is reported": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Success"}`),
			have: conditions{
				whole(yes, v1alpha1.ReasonInitializing, waitingFor(rbac, 1, 1), before),
				one(rbac, no, v1alpha1.ReasonPending, messageInitializerPending, before),
			},
			want: conditions{
				whole(yes, v1alpha1.ReasonInitializing,
					withProblem(waitingFor(rbac, 1, 1), ignoredResultMessage(nil, metav1.StatusSuccess)), before),
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			test.namespace.Status.Conditions = test.have
			namespace := test.namespace.Obj()
			changed := ComputeConditions(namespace, ParseState(namespace), at)
			g.Expect(withoutReady(changed)).To(Equal(test.want))
			g.Expect(namespace).To(Equal(test.namespace.Obj()), "the argument must not change")
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
			conditions: []corev1.NamespaceCondition{initializing(corev1.ConditionTrue, v1alpha1.ReasonInitializing)},
			want:       true,
		},
		"False": {
			conditions: []corev1.NamespaceCondition{initializing(corev1.ConditionFalse, v1alpha1.ReasonInitialized)},
		},
		"Unknown": {
			conditions: []corev1.NamespaceCondition{initializing(corev1.ConditionUnknown, v1alpha1.ReasonInitializing)},
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

// expectConditionsToSettle expects the conditions to be deterministic. It also expects no further
// changes after the conditions are written, even at a later time or in another order. Otherwise,
// the operator would write repeatedly.
func expectConditionsToSettle(t *testing.T, namespace *corev1.Namespace) {
	t.Helper()
	g := NewWithT(t)
	state := ParseState(namespace)
	changed := ComputeConditions(namespace, state, at)
	g.Expect(ParseState(namespace)).To(Equal(state), "ParseState must be deterministic")
	g.Expect(ComputeConditions(namespace, state, at)).To(Equal(changed), "ComputeConditions must be deterministic")

	written := namespace.DeepCopy()
	for _, condition := range changed {
		if have := nsobject.FindCondition(written, condition.Type); have != nil {
			*have = condition
		} else {
			written.Status.Conditions = append([]corev1.NamespaceCondition{condition}, written.Status.Conditions...)
		}
	}
	later := metav1.NewTime(now.Add(time.Hour))
	g.Expect(ParseState(written)).To(Equal(state), "the written conditions must not change the state")
	g.Expect(ComputeConditions(written, ParseState(written), later)).To(BeEmpty(), "no further changes are expected")
}

// whole returns the Initializing condition.
func whole(status corev1.ConditionStatus, reason, message string, since metav1.Time) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{
		Type: v1alpha1.ConditionInitializing, Status: status, Reason: reason, Message: message, LastTransitionTime: since,
	}
}

// one returns the condition of one initializer.
func one(
	name string, status corev1.ConditionStatus, reason, message string, since metav1.Time,
) corev1.NamespaceCondition {
	condition := whole(status, reason, message, since)
	condition.Type = corev1.NamespaceConditionType(name + "/Initialized")
	return condition
}
