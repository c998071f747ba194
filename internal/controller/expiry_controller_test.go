// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/expiry"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestExpiryReconcile(t *testing.T) {
	const (
		statusPatch = "status of x: uid=x-uid "
		record      = statusPatch + "version=7 nslifecycle.dev/Expired=True/Expired"
		deletion    = "delete x: uid=x-uid resourceVersion=8"
		toKeep      = "; to keep it, run: kubectl annotate namespace x nslifecycle.dev/ttl-"
		warn        = statusPatch + "nslifecycle.dev/Expiring=True/ExpiresSoon"
		withdrawn   = " expiry-warned-at="
		onTime      = "the namespace will be deleted at 2026-03-01T12:00:00Z (nslifecycle.dev/ttl=8h)" + toKeep
	)
	// expired returns a namespace that expires now.
	expired := func() *wrappers.NamespaceWrapper {
		wrapper := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Annotation(v1alpha1.AnnotationTTL, "8h")
		wrapper.CreationTimestamp = metav1.NewTime(now.Add(-8 * time.Hour))
		return wrapper
	}
	warned := func() *wrappers.NamespaceWrapper {
		return expired().Condition(corev1.NamespaceCondition{
			Type: v1alpha1.ConditionExpiring, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonExpiresSoon,
			Message: onTime, LastTransitionTime: metav1.NewTime(now.Add(-expiry.WarningPeriod)),
		}).Annotation(v1alpha1.AnnotationExpiryWarnedAt, "2026-03-01T11:00:00Z 2026-03-01T12:00:00Z")
	}
	alreadyRecorded := func(at time.Time) *wrappers.NamespaceWrapper {
		return warned().Condition(corev1.NamespaceCondition{
			Type: v1alpha1.ConditionExpired, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at),
		})
	}
	policies := []client.Object{policytest.ExpiryPolicy(), policytest.ExpiryBinding()}

	tests := map[string]struct {
		// cached is the Namespace in the cache. live is the Namespace in the API server; the default is
		// cached.
		cached, live *wrappers.NamespaceWrapper
		server       fakeServer
		// livePolicies are the policies in the API server; the default is those in the cache.
		livePolicies []client.Object
		// serverTime is the API server's time. The default is now; zero means that it is unknown.
		serverTime *time.Time
		liveError  error
		wantResult ctrl.Result
		wantWrites []string
		wantEvents []string
		wantError  string
	}{
		"the namespace does not exist":                {cached: expired(), server: fakeServer{getError: errNotFound}},
		"the namespace cannot be read from the cache": {cached: expired(), server: fakeServer{getError: errOutage}, wantError: errOutage.Error()},
		"warned and expired": {
			cached: warned(), wantWrites: []string{record, deletion},
			wantEvents: []string{"Normal Expired The namespace expired (nslifecycle.dev/ttl=8h) and was deleted"},
		},
		"warned, expired and recorded": {
			cached: alreadyRecorded(now), wantWrites: []string{"delete x: uid=x-uid resourceVersion=7"},
			wantEvents: []string{"Normal Expired The namespace expired (nslifecycle.dev/ttl=8h) and was deleted"},
		},
		"recorded for an earlier expiry": {
			cached: alreadyRecorded(now.Add(-time.Second)), wantWrites: []string{record, deletion},
			wantEvents: []string{"Normal Expired The namespace expired (nslifecycle.dev/ttl=8h) and was deleted"},
		},
		"extended after the record": {
			cached:     alreadyRecorded(now).Annotation(v1alpha1.AnnotationTTL, "80h"),
			wantResult: ctrl.Result{RequeueAfter: 12 * time.Hour},
			wantWrites: []string{statusPatch + "nslifecycle.dev/Expiring=False/ExpiryScheduled nslifecycle.dev/Expired=False/ExpiryChanged" + withdrawn},
		},
		"no warning yet": {
			cached: expired().Annotation(v1alpha1.AnnotationTTL, "8h1s"), wantResult: ctrl.Result{RequeueAfter: time.Second},
			wantWrites: []string{warn + " expiry-warned-at=2026-03-01T12:00:00Z 2026-03-01T12:00:01Z"},
			wantEvents: []string{"Warning ExpiresSoon the namespace will be deleted at 2026-03-01T12:00:01Z (nslifecycle.dev/ttl=8h1s)" + toKeep},
		},

		// The cache is stale.
		"extended in the meantime": {
			cached: warned(), live: warned().Annotation(v1alpha1.AnnotationTTL, "80h"), wantResult: ctrl.Result{RequeueAfter: 12 * time.Hour},
			wantWrites: []string{statusPatch + "nslifecycle.dev/Expiring=False/ExpiryScheduled" + withdrawn},
		},
		"protected in the meantime": {
			cached: warned(), live: warned().Label(v1alpha1.LabelDeletionProtection, ""),
			wantWrites: []string{statusPatch + "nslifecycle.dev/Expiring=False/DeletionProtected" + withdrawn},
			wantEvents: []string{"Warning DeletionProtected the namespace expired at 2026-03-01T12:00:00Z (nslifecycle.dev/ttl=8h), " +
				"but is not deleted: the operator deletes no namespace with the label nslifecycle.dev/deletion-protection; to allow its deletion, run: " +
				"kubectl label namespace x nslifecycle.dev/deletion-protection-"},
		},
		"terminating in the meantime":                      {cached: warned(), live: warned().Terminating(now)},
		"deleted in the meantime":                          {cached: warned(), liveError: errNotFound},
		"recreated in the meantime":                        {cached: warned(), live: wrappers.MakeNamespace("x").UID("y-uid")},
		"the namespace cannot be read from the API server": {cached: warned(), liveError: errOutage, wantError: errOutage.Error()},
		"warned in the meantime": {
			cached: expired(), live: warned(), wantWrites: []string{record, deletion},
			wantEvents: []string{"Normal Expired The namespace expired (nslifecycle.dev/ttl=8h) and was deleted"},
		},
		"condition removed in the meantime": {
			cached: warned(), live: expired(), wantResult: ctrl.Result{RequeueAfter: time.Second},
			wantWrites: []string{warn + " expiry-warned-at=2026-03-01T12:00:00Z 2026-03-01T12:00:00Z"},
			wantEvents: []string{"Warning ExpiresSoon " + onTime},
		},

		// The clocks differ.
		"local clock ahead of the API server": {
			cached: warned(), serverTime: new(now.Add(-time.Minute)), wantResult: ctrl.Result{RequeueAfter: time.Minute},
		},
		"local clock behind the API server": {
			cached: warned(), serverTime: new(now.Add(time.Hour)), wantWrites: []string{record, deletion},
			wantEvents: []string{"Normal Expired The namespace expired (nslifecycle.dev/ttl=8h) and was deleted"},
		},
		"local clock behind the API server, before the warning": {
			cached: expired().Annotation(v1alpha1.AnnotationTTL, "8h1s"), serverTime: new(now.Add(time.Hour)),
			wantResult: ctrl.Result{RequeueAfter: 2 * time.Hour},
			wantWrites: []string{warn + " since " + now.Add(time.Hour).String() +
				" expiry-warned-at=2026-03-01T13:00:00Z 2026-03-01T12:00:01Z"},
			wantEvents: []string{"Warning ExpiresSoon the namespace has expired (nslifecycle.dev/ttl=8h1s) and will be deleted " +
				"at 2026-03-01T14:00:00Z" + toKeep},
		},
		"no time in the API server's response": {
			cached: warned(), serverTime: new(time.Time{}), wantError: errNoServerTime.Error(),
		},

		// The admission policy.
		"policy deleted in the meantime": {
			cached: warned(), livePolicies: []client.Object{policytest.ExpiryPolicy()},
			wantWrites: []string{statusPatch + "nslifecycle.dev/Expiring=False/ExpiryPolicyMissing" + withdrawn},
			wantEvents: []string{`Warning ExpiryPolicyMissing the namespace is not deleted when it expires: ` + policyverifier.MsgExpiryNotEnforced},
		},

		// Responses to the DELETE request.
		"the deletion conflicts": {
			cached: warned(), server: fakeServer{deleteError: errConflict},
			wantWrites: []string{record, deletion}, wantResult: ctrl.Result{RequeueAfter: conflictRetry},
		},
		"deleted concurrently": {cached: warned(), server: fakeServer{deleteError: errNotFound}, wantWrites: []string{record, deletion}, wantResult: ctrl.Result{RequeueAfter: conflictRetry}},
		"the deletion fails": {
			cached: warned(), server: fakeServer{deleteError: errOutage}, wantWrites: []string{record, deletion},
			wantError: `failed to delete expired namespace "x": ` + errOutage.Error(),
		},
		"a webhook refuses the deletion with the code of a conflict": {
			cached: warned(), server: fakeServer{deleteError: errInUse},
			wantWrites: []string{record, deletion, statusPatch + "nslifecycle.dev/Expiring=True/DeletionRejected since " + now.Add(-time.Hour).String()},
			wantEvents: []string{"Warning DeletionRejected " + onTime + "; the API server refused the deletion, and the operator is retrying it: " + errInUse.Error()},
			wantResult: ctrl.Result{RequeueAfter: 10 * time.Second},
		},
		"a webhook delays the deletion": {
			cached: warned(), server: fakeServer{deleteError: context.DeadlineExceeded},
			wantWrites: []string{record, deletion, statusPatch + "nslifecycle.dev/Expiring=True/DeletionRejected since " + now.Add(-time.Hour).String()},
			wantEvents: []string{"Warning DeletionRejected " + onTime + "; the API server refused the deletion, and the operator is retrying it: " + context.DeadlineExceeded.Error()},
			wantResult: ctrl.Result{RequeueAfter: 10 * time.Second},
		},
		"the deletion is refused": {
			cached: warned(), server: fakeServer{deleteError: errForbidden},
			wantWrites: []string{record, deletion, statusPatch + "nslifecycle.dev/Expiring=True/DeletionRejected since " + now.Add(-time.Hour).String()},
			wantEvents: []string{"Warning DeletionRejected " + onTime + "; the API server refused the deletion, and the operator is retrying it: " + errForbidden.Error()},
			wantResult: ctrl.Result{RequeueAfter: 10 * time.Second},
		},

		"writing the warning fails": {
			cached: expired(), server: fakeServer{statusError: errOutage},
			wantWrites: []string{warn + " expiry-warned-at=2026-03-01T12:00:00Z 2026-03-01T12:00:00Z"},
			wantError:  `failed to update the status of namespace "x": ` + errOutage.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			test.server.cached, test.server.serverTime, test.server.liveError = test.cached.Obj(), test.serverTime, test.liveError
			if test.live != nil {
				test.server.live = test.live.Obj()
			}
			if test.livePolicies == nil {
				test.livePolicies = policies
			}
			recorder := events.NewFakeRecorder(10)
			reconciler := &ExpiryReconciler{
				Client: test.server.client(policies...), Live: test.server.reader(test.livePolicies...),
				Recorder: recorder, Clock: clocktesting.NewFakePassiveClock(now), Exempt: exempt,
			}
			result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
			g.Expect(err).To(matchError(test.wantError))
			g.Expect(result).To(Equal(test.wantResult))
			g.Expect(test.server.writes).To(Equal(test.wantWrites))
			g.Expect(recorded(recorder)).To(Equal(test.wantEvents))
		})
	}
}

// If each rejection has a different text, the condition changes each time, which triggers a watch event.
func TestExpiryBacksOffAfterRejection(t *testing.T) {
	g := NewWithT(t)
	namespace := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Annotation(v1alpha1.AnnotationTTL, "8h")
	namespace.CreationTimestamp = metav1.NewTime(now.Add(-8 * time.Hour))
	namespace.Condition(corev1.NamespaceCondition{
		Type: v1alpha1.ConditionExpiring, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonExpiresSoon,
		Message: "the namespace will be deleted at 2026-03-01T12:00:00Z (nslifecycle.dev/ttl=8h); to keep it, run: " +
			"kubectl annotate namespace x nslifecycle.dev/ttl-", LastTransitionTime: metav1.NewTime(now.Add(-expiry.WarningPeriod)),
	}).Annotation(v1alpha1.AnnotationExpiryWarnedAt, "2026-03-01T11:00:00Z 2026-03-01T12:00:00Z")
	server := &fakeServer{cached: namespace.Obj(), deleteError: errForbidden, serverTime: new(now.Add(time.Hour))}
	clock, policies := clocktesting.NewFakePassiveClock(now), []client.Object{policytest.ExpiryPolicy(), policytest.ExpiryBinding()}
	reconciler := &ExpiryReconciler{
		Client: server.client(policies...), Live: server.reader(policies...), Recorder: events.NewFakeRecorder(10), Clock: clock,
		Exempt: exempt,
	}
	reconcile := func(wait time.Duration, writes int) {
		result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
		g.ExpectWithOffset(1, err).NotTo(HaveOccurred())
		g.ExpectWithOffset(1, result).To(Equal(ctrl.Result{RequeueAfter: wait}))
		g.ExpectWithOffset(1, server.writes).To(HaveLen(writes))
		server.live, server.writes = nil, nil // The server does not keep the record, the first write.
	}
	reconcile(10*time.Second, 3)
	reconcile(10*time.Second, 0)
	clock.SetTime(now.Add(4 * time.Second))
	reconcile(6*time.Second, 0)
	clock.SetTime(now.Add(time.Minute))
	reconcile(time.Minute, 3)
	server.getError = errNotFound
	reconcile(0, 0)
	server.getError = nil
	reconcile(time.Minute, 3) // The Namespace was recreated.
}

func TestExpiryNeverDeletesExemptNamespaces(t *testing.T) {
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease", systemNamespace, "own"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reconciler := &ExpiryReconciler{Exempt: exempt, OwnNamespace: "own"}
			namespace := wrappers.MakeNamespace(name).Annotation(v1alpha1.AnnotationExpiresAt, "2020-01-01T00:00:00Z").Obj()
			decision, err := reconciler.decide(t.Context(),
				newFakeClient(interceptor.Funcs{}, policytest.ExpiryPolicy(), policytest.ExpiryBinding()), namespace, clockRange{now, now})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(decision.ShouldDelete).To(BeFalse())
			g.Expect(decision.Condition.Reason).To(Equal(v1alpha1.ReasonNeverExpires))
		})
	}
}

func TestMayExpire(t *testing.T) {
	g := NewWithT(t)
	g.Expect(mayExpire(wrappers.MakeNamespace("x").Obj())).To(BeFalse())
	g.Expect(mayExpire(wrappers.MakeNamespace("x").Annotation(v1alpha1.AnnotationTTL, "").Obj())).To(BeTrue())
	g.Expect(mayExpire(wrappers.MakeNamespace("x").Annotation(v1alpha1.AnnotationExpiresAt, "").Obj())).To(BeTrue())
	g.Expect(mayExpire(wrappers.MakeNamespace("x").Condition(corev1.NamespaceCondition{
		Type: v1alpha1.ConditionExpiring,
	}).Obj())).To(BeTrue())
}
