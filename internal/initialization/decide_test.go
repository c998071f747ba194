// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// action describes whether a decision skips initializers, sets a failure result or deletes the
// namespace, and when the decision changes.
type action struct {
	skip, reason string // The skipped initializers and the reason.
	fails        bool
	deletes      bool
	requeueAfter time.Duration
}

func actionOf(decision Decision) action {
	result := action{fails: decision.Fail != nil, deletes: decision.Delete, requeueAfter: decision.RequeueAfter}
	if decision.Skip != nil {
		result.skip, result.reason = joinNames(decision.Skip.Initializers), decision.Skip.Reason
	}
	return result
}

func TestDecideAction(t *testing.T) {
	const timedOut, deregistered = v1alpha1.ReasonTimedOut, v1alpha1.ReasonDeregistered
	waiting := func() *wrappers.NamespaceWrapper {
		return wrappers.MakeNamespace("x").Initializers(rbac, quota, mesh)
	}
	const started = v1alpha1.AnnotationTurnStartedAt
	since := func(ago time.Duration) string { return FormatTurnStart(rbac, now.Add(-ago)) }
	// missing maps initializers to the time since which they have been deregistered.
	missing := func(ago time.Duration, names ...string) map[string]time.Time {
		result := map[string]time.Time{}
		for _, name := range names {
			result[name] = now.Add(-ago)
		}
		return result
	}
	all := missing(DeregistrationDelay, rbac, quota, mesh)
	unlimited := map[string]Registration{rbac: {}, quota: {}, mesh: {}}
	ignore := map[string]Registration{
		rbac: {"c", settings(30, v1alpha1.FailurePolicyIgnore)}, quota: {"c", settings(1, "")}, mesh: {},
	}
	fail := map[string]Registration{rbac: {"c", settings(30, v1alpha1.FailurePolicyFail)}, quota: {}, mesh: {}}
	unset := map[string]Registration{rbac: {"c", settings(30, "")}, quota: {}, mesh: {}}

	tests := map[string]struct {
		namespace     *wrappers.NamespaceWrapper
		registrations map[string]Registration
		missing       map[string]time.Time
		want          action
	}{
		"nothing to do": {namespace: waiting(), registrations: unlimited, missing: all},
		"initializers have just become deregistered": {
			namespace: waiting(), registrations: map[string]Registration{rbac: {}},
			want: action{requeueAfter: DeregistrationDelay},
		},
		"initializers have not been deregistered for long enough": {
			namespace: waiting(), registrations: map[string]Registration{rbac: {}},
			missing: missing(DeregistrationDelay-1, quota, mesh), want: action{requeueAfter: 1},
		},
		"the first initializer is deregistered": {
			namespace: waiting(), registrations: map[string]Registration{quota: {}, mesh: {}}, missing: all,
			want: action{skip: rbac, reason: deregistered},
		},
		"an initializer in the middle is deregistered": {
			namespace: waiting(), registrations: map[string]Registration{rbac: {}, mesh: {}}, missing: all,
			want: action{skip: quota, reason: deregistered},
		},
		"the last initializer is deregistered": {
			namespace: waiting(), registrations: map[string]Registration{rbac: {}, quota: {}}, missing: all,
			want: action{skip: mesh, reason: deregistered},
		},
		"all initializers are deregistered": {
			namespace: waiting(), missing: all,
			want: action{skip: joinNames([]string{rbac, quota, mesh}), reason: deregistered},
		},
		"only initializers that have been deregistered for long enough are skipped": {
			namespace: waiting(), missing: missing(DeregistrationDelay, mesh),
			want: action{skip: mesh, reason: deregistered, requeueAfter: DeregistrationDelay},
		},
		"a deregistered initializer that has completed is not skipped": {
			namespace: waiting().Pending(quota, mesh), registrations: map[string]Registration{quota: {}, mesh: {}},
			missing: all,
		},
		"no initializer is skipped in a terminating namespace": {namespace: waiting().Terminating(now), missing: all},
		"no initializer is skipped in a failed namespace": {
			namespace: waiting().Result(`{"status":"Failure"}`), missing: all, want: action{deletes: true},
		},
		"no initializer is skipped before the label is repaired": {
			namespace: waiting().Label(v1alpha1.LabelInitializing, "no"), missing: all,
		},
		"no initializer is pending": {namespace: waiting().Pending(), missing: all},

		"a timeout that has not started": {
			namespace: waiting(), registrations: ignore, want: action{requeueAfter: 31 * time.Second},
		},
		"a timeout that has not expired": {
			namespace: waiting().Annotation(started, since(10*time.Second)), registrations: ignore,
			want: action{requeueAfter: 21 * time.Second},
		},
		"just before a timeout expires": {
			namespace: waiting().Annotation(started, since(30*time.Second)), registrations: ignore,
			want: action{requeueAfter: time.Second},
		},
		"an expired timeout with failurePolicy Ignore": {
			namespace: waiting().Annotation(started, since(31*time.Second)), registrations: ignore,
			want: action{skip: rbac, reason: timedOut},
		},
		"an expired timeout with failurePolicy Fail": {
			namespace: waiting().Annotation(started, since(31*time.Second)), registrations: fail, want: action{fails: true},
		},
		"an expired timeout without a policy": {
			namespace: waiting().Annotation(started, since(31*time.Second)), registrations: unset, want: action{fails: true},
		},
		"an expired timeout of another initializer": {
			namespace: waiting().Pending(quota, mesh).Annotation(started, since(time.Hour)), registrations: ignore,
			want: action{requeueAfter: 2 * time.Second},
		},
		"the timeout was removed": {namespace: waiting().Annotation(started, since(time.Hour)), registrations: unlimited},
		"an expired timeout in a terminating namespace": {
			namespace: waiting().Annotation(started, since(time.Hour)).Terminating(now), registrations: ignore,
		},
		"an expired timeout in a failed namespace": {
			namespace: waiting().Annotation(started, since(time.Hour)).Result(`{"status":"Failure"}`), registrations: ignore,
			want: action{deletes: true},
		},
		"a deregistered initializer is skipped before one that timed out": {
			namespace:     waiting().Annotation(started, since(time.Hour)),
			registrations: map[string]Registration{rbac: ignore[rbac], mesh: {}}, missing: all,
			want: action{skip: quota, reason: deregistered},
		},
		"the decision changes at the deregistration or the timeout, whichever is earlier": {
			namespace:     waiting().Annotation(started, since(30*time.Second)),
			registrations: map[string]Registration{rbac: ignore[rbac], mesh: {}},
			want:          action{requeueAfter: time.Second},
		},

		"failed, and protected from deletion": {
			namespace: waiting().Result(`{"status":"Failure"}`).Label(v1alpha1.LabelDeletionProtection, ""),
		},
		"failed, and exempt from initialization": {
			namespace: wrappers.MakeNamespace(systemNamespace).Initializers(rbac).Result(`{"status":"Failure"}`),
		},
		"not required": {namespace: wrappers.MakeNamespace("x")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := test.namespace.Obj()
			registry := Registry{Registrations: test.registrations, DeregisteredSince: test.missing}
			decision := Decide(namespace, registry, exempt, now)
			g.Expect(actionOf(decision)).To(Equal(test.want))
			g.Expect(decision.RequiresLiveRead()).To(Equal(test.want.skip != "" || test.want.fails || test.want.deletes))
			g.Expect(namespace).To(Equal(test.namespace.Obj()), "the argument must not change")
			g.Expect(Decide(namespace, registry, exempt, now)).To(Equal(decision), "Decide must be deterministic")
		})
	}
}

func TestDecideSkip(t *testing.T) {
	tests := map[string]struct {
		registrations map[string]Registration
		wantReason    string
		wantEvent     string
		wantCause     string
	}{
		"timed out": {
			registrations: map[string]Registration{rbac: {"c", settings(30, v1alpha1.FailurePolicyIgnore)}, quota: {}},
			wantReason:    v1alpha1.ReasonTimedOut, wantEvent: "InitializerTimedOut",
			wantCause: timedOutMessage(&Timeout{Configuration: "c", Duration: 30 * time.Second}),
		},
		"deregistered": {
			registrations: map[string]Registration{quota: {}},
			wantReason:    v1alpha1.ReasonDeregistered, wantEvent: "InitializerDeregistered",
			wantCause: messageDeregistered,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := wrappers.MakeNamespace("x").Initializers(rbac, quota).
				Annotation(v1alpha1.AnnotationTurnStartedAt, FormatTurnStart(rbac, now.Add(-time.Hour))).Obj()
			registry := Registry{
				Registrations: test.registrations, DeregisteredSince: map[string]time.Time{rbac: now.Add(-time.Hour)},
			}
			NewWithT(t).Expect(Decide(namespace, registry, exempt, now).Skip).To(Equal(&Skip{
				Initializers: []string{rbac}, Reason: test.wantReason, Pending: quota,
				Conditions: []corev1.NamespaceCondition{
					one(rbac, corev1.ConditionFalse, test.wantReason, "skipped: "+test.wantCause, at),
				},
				Event: Event{
					Type: corev1.EventTypeWarning, Reason: test.wantEvent, Action: "Initialize",
					Note: skippedNote([]string{rbac}, test.wantCause),
				},
			}))
		})
	}
}

func TestDecideConditions(t *testing.T) {
	isPending := whole(corev1.ConditionTrue, v1alpha1.ReasonInitializing, waitingFor(rbac, 1, 2), before)
	notReady := corev1.NamespaceCondition{Type: v1alpha1.ConditionReady, Status: corev1.ConditionFalse}
	limited := map[string]Registration{rbac: {"c", settings(30, "")}, quota: {"c", settings(30, "")}}
	tests := map[string]struct {
		namespace     *wrappers.NamespaceWrapper
		registrations map[string]Registration
		want          []corev1.NamespaceConditionType
		wantThrottled bool
		wantTurn      *string
		wantEvents    []Event
	}{
		"a new namespace": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota),
			want:      []corev1.NamespaceConditionType{"Initializing", rbac + "/Initialized", quota + "/Initialized", "Ready"},
		},
		"a new namespace that waits only for templates": {
			namespace: wrappers.MakeNamespace("x").Initializers(v1alpha1.TemplatesInitializer),
			want: []corev1.NamespaceConditionType{
				"Initializing", v1alpha1.TemplatesInitializer + "/Initialized", "Ready",
			},
			wantThrottled: true,
		},
		"a new namespace that waits for templates first": {
			namespace: wrappers.MakeNamespace("x").Initializers(v1alpha1.TemplatesInitializer, rbac),
			want: []corev1.NamespaceConditionType{
				"Initializing", v1alpha1.TemplatesInitializer + "/Initialized", rbac + "/Initialized", "Ready",
			},
		},
		"progress": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(quota).Condition(isPending).
				Condition(notReady),
			want:          []corev1.NamespaceConditionType{"Initializing", rbac + "/Initialized", quota + "/Initialized", "Ready"},
			wantThrottled: true,
		},
		// The start is written immediately, because timeouts are counted from it.
		"the turn of an initializer with a timeout": {
			namespace:     wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(quota).Condition(isPending),
			registrations: limited,
			want: []corev1.NamespaceConditionType{
				"Initializing", rbac + "/Initialized", quota + "/Initialized", "Ready",
			},
			wantTurn: ptr.To(quota + " 2026-03-01T12:00:00Z"),
		},
		"completed": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending().Condition(isPending),
			want:      []corev1.NamespaceConditionType{"Initializing", rbac + "/Initialized", "Ready"},
		},
		"an invalid result": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Success"}`),
			want:      []corev1.NamespaceConditionType{"Initializing", rbac + "/Initialized", "Ready"},
			wantEvents: []Event{{
				corev1.EventTypeWarning, "InvalidInitializationResult", "Initialize", ignoredResultMessage(nil, "Success"),
			}},
		},
		"the label is repaired first": {
			namespace: unlabeled(wrappers.MakeNamespace("x").Initializers(rbac)),
			wantEvents: []Event{{
				corev1.EventTypeWarning, "InitializationRepaired", "Repair", messageLabelSet,
			}},
		},
		"terminating": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Terminating(now),
			want:      []corev1.NamespaceConditionType{"Initializing", rbac + "/Initialized", "Ready"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := test.namespace.Obj()
			decision := Decide(namespace, Registry{Registrations: test.registrations}, exempt, now)
			var types []corev1.NamespaceConditionType
			for _, condition := range decision.Conditions {
				types = append(types, condition.Type)
			}
			g.Expect(types).To(Equal(test.want))
			g.Expect(decision.IsThrottled).To(Equal(test.wantThrottled))
			g.Expect(decision.TurnStart).To(Equal(test.wantTurn))
			g.Expect(decision.Events).To(Equal(test.wantEvents))

			// After these conditions are written, no further changes are expected.
			for _, condition := range decision.Conditions {
				if current := nsobject.FindCondition(namespace, condition.Type); current != nil {
					*current = condition
				} else {
					namespace.Status.Conditions = append(namespace.Status.Conditions, condition)
				}
			}
			if decision.TurnStart != nil {
				namespace.Annotations[v1alpha1.AnnotationTurnStartedAt] = *decision.TurnStart
			}
			again := Decide(namespace, Registry{Registrations: test.registrations}, exempt, now.Add(time.Hour))
			g.Expect(again.HasReport()).To(BeFalse())
		})
	}
}

func TestRemovePending(t *testing.T) {
	const templates = v1alpha1.TemplatesInitializer
	tests := map[string]struct {
		all, pending []string
		wantPending  string
		wantReason   string
	}{
		"the last initializer": {
			all: []string{rbac, templates}, pending: []string{templates}, wantReason: v1alpha1.ReasonInitialized,
		},
		"not the last initializer": {
			all: []string{templates, rbac}, pending: []string{templates, rbac}, wantPending: rbac,
			wantReason: v1alpha1.ReasonInitializing,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := wrappers.MakeNamespace("x").Initializers(test.all...).Pending(test.pending...).Obj()
			before := namespace.DeepCopy()
			removal := RemovePending(namespace, templates, metav1.NewTime(now))
			g.Expect(namespace).To(Equal(before))
			g.Expect(removal.Pending).To(Equal(test.wantPending))
			namespace.Status.Conditions = removal.Conditions
			g.Expect(nsobject.FindCondition(namespace, v1alpha1.ConditionInitializing).Reason).To(Equal(test.wantReason))
			g.Expect(nsobject.FindCondition(namespace, templates+"/Initialized").Status).To(Equal(corev1.ConditionTrue))
		})
	}
}

func TestMessagesContainTheEssentialValues(t *testing.T) {
	timeout := &Timeout{Initializer: rbac, Configuration: "c", Duration: 90 * time.Second}
	many := entries("corp", "a", "b", "c", "d", "e", "f", "g")
	tests := map[string]struct {
		message string
		want    []string
	}{
		"pending":   {pendingMessage(State{All: []string{rbac, quota}, Pending: []string{quota}}), []string{quota, "2 of 2"}},
		"one":       {completedMessage([]string{rbac}), []string{rbac + ", which was skipped"}},
		"several":   {completedMessage([]string{rbac, quota, mesh}), []string{rbac + ", " + quota + " and " + mesh, "were skipped"}},
		"timed out": {timedOutMessage(timeout), []string{"1m30s", `"c"`}},
		"result":    {timeoutResultMessage(timeout), []string{rbac, "1m30s", `"c"`}},
		"skipped":   {skippedNote([]string{rbac, quota}, "because"), []string{rbac + " and " + quota, "because"}},
		"failed": {
			failedMessage(State{Failure: &metav1.Status{Reason: "R", Message: "m"}, ResultProblem: "p"}), []string{"R: m", "p"},
		},
		"kept": {failedOutcome("k"), []string{"not deleted: k"}},
		"ignored result": {
			ignoredResultMessage(nil, "Success"),
			[]string{v1alpha1.AnnotationInitializationResult, `"Success"`, `"Failure"`, v1alpha1.AnnotationPendingInitializers},
		},
		"encoded failure": {
			ignoredResultMessage(nil, metav1.StatusFailure),
			[]string{v1alpha1.AnnotationInitializationResult, `"status":"Failure"`},
		},
		"too many":        {tooManyInitializersMessage(), []string{"256 initializers"}},
		"too large":       {setTooLargeMessage(), []string{"512 KiB"}},
		"overridden":      {overriddenMessage(entries("corp", rbac, quota)), []string{rbac, quota, `"corp"`}},
		"many overridden": {overriddenMessage(many), []string{"a (", "e (", "and 2 more"}},
		"unauthorized": {
			unauthorizedMessage([]string{rbac, quota}),
			[]string{rbac + " and " + quota, v1alpha1.VerbInitialize, "ClusterRoleBinding"},
		},
		"unresponsive": {
			unresponsiveMessage(rbac, Unresponsive{"shop", now, 3}),
			[]string{rbac, `"shop"`, "2026-03-01T12:00:00Z", "2 more"},
		},
		"healthy": {healthyMessage(), []string{"1m0s"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, want := range test.want {
				NewWithT(t).Expect(test.message).To(ContainSubstring(want))
			}
		})
	}
	g := NewWithT(t)
	g.Expect(unresponsiveMessage(rbac, Unresponsive{"x", now, 1})).NotTo(ContainSubstring("more"))
	g.Expect(overriddenMessage(many)).NotTo(ContainSubstring("f ("))
	g.Expect(overriddenMessage(nil)).To(BeEmpty())
}
