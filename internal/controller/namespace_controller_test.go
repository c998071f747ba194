// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestNamespaceReconcile(t *testing.T) {
	const (
		rbac, quota = "rbac.corp.com", "quota.corp.com"
		failure     = `{"status":"Failure","reason":"Forbidden","message":"no quota left"}`

		statusPatch = "status of x: uid=x-uid version=7 "
		labelPatch  = "status of x by nslifecycle: "
		deletion    = "delete x: uid=x-uid resourceVersion="

		failedPatch = statusPatch +
			"Initializing=False/Failed rbac.corp.com/Initialized=False/Pending " +
			"Ready=False/Failed Stalled=True/Failed"
		// unconditionalPatch is the last attempt after repeated conflicts.
		unconditionalPatch = "status of x: uid=x-uid " +
			"Initializing=False/Failed rbac.corp.com/Initialized=False/Pending " +
			"Ready=False/Failed Stalled=True/Failed"
		failedEvent = "Warning InitializationFailed ... Forbidden: no quota left ... the namespace "
	)
	condition := func(conditionType, status, reason, message string) corev1.NamespaceCondition {
		return corev1.NamespaceCondition{
			Type: corev1.NamespaceConditionType(conditionType), Status: corev1.ConditionStatus(status),
			Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now),
		}
	}
	namespace := func() *wrappers.NamespaceWrapper {
		return wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Label(corev1.LabelMetadataName, "x")
	}
	failed := func() *wrappers.NamespaceWrapper { return namespace().Initializers(rbac).Result(failure) }

	tests := map[string]struct {
		server     fakeServer
		want       time.Duration
		wantWrites []string
		wantEvents []string
		wantError  string
	}{
		"the namespace does not exist": {server: fakeServer{getError: errNotFound}},
		"the namespace cannot be read": {server: fakeServer{getError: errOutage}, wantError: errOutage.Error()},
		"a terminating namespace that would otherwise require every action": {
			server: fakeServer{cached: failed().Label(v1alpha1.LabelInitializing, "yes").Terminating(now).Obj()},
			wantWrites: []string{
				statusPatch + "Initializing=False/Failed rbac.corp.com/Initialized=False/Pending Ready=False/Terminating",
			},
		},
		"initialization is not required": {
			server:     fakeServer{cached: namespace().Obj()},
			wantWrites: []string{statusPatch + "Initializing=False/Initialized Ready=True/Initialized"},
		},
		"nothing has changed": {server: fakeServer{cached: settled(namespace())}},
		"the namespace has just been created": {
			server: fakeServer{cached: namespace().Initializers(rbac, quota).Obj()},
			wantWrites: []string{statusPatch + "Initializing=True/Initializing " +
				"rbac.corp.com/Initialized=False/Pending quota.corp.com/Initialized=False/Pending Ready=False/Initializing"},
		},
		"one initializer has completed; no Event is recorded": {
			server: fakeServer{cached: namespace().Initializers(rbac, quota).Pending(quota).
				Condition(condition(v1alpha1.ConditionInitializing, "True",
					v1alpha1.ReasonPending, "another initializer")).Obj()},
			wantWrites: []string{statusPatch + "Initializing=True/Initializing " +
				"rbac.corp.com/Initialized=True/Initialized quota.corp.com/Initialized=False/Pending Ready=False/Initializing"},
		},
		"all initializers have completed": {
			server: fakeServer{cached: namespace().Initializers(rbac).Pending().Obj()},
			wantWrites: []string{statusPatch + "Initializing=False/Initialized " +
				"rbac.corp.com/Initialized=True/Initialized Ready=True/Initialized"},
		},
		"only the condition of an initializer changes; no Event is recorded": {
			server:     fakeServer{cached: onlyInitializing(settled(namespace().Initializers(rbac).Pending()))},
			wantWrites: []string{statusPatch + "rbac.corp.com/Initialized=True/Initialized"},
		},
		"an invalid result": {
			server: fakeServer{cached: namespace().Initializers(rbac).Result(`{"status":"Success"}`).Obj()},
			wantWrites: []string{statusPatch + "Initializing=True/Initializing " +
				"rbac.corp.com/Initialized=False/Pending Ready=False/Initializing"},
			wantEvents: []string{"Warning InvalidInitializationResult ... annotation nslifecycle.dev/initialization-result is ignored" +
				` ... "Success" ... nslifecycle.dev/pending-initializers`},
		},
		"the status cannot be written": {
			server: fakeServer{cached: failed().Obj(), statusError: errOutage}, wantWrites: []string{failedPatch},
			wantError: `failed to update the status of namespace "x": ` + errOutage.Error(),
		},
		"a webhook denies the status update with the code 409": {
			server: fakeServer{cached: failed().Obj(), statusError: errInUse}, wantWrites: []string{failedPatch},
			wantEvents: []string{"Warning WriteRejected failed to update the status ... " + errInUse.Error()},
			wantError:  `failed to update the status of namespace "x": ` + errInUse.Error(),
		},
		"the namespace was recreated": {
			server: fakeServer{cached: failed().Obj(), statusError: errRecreated}, want: conflictRetry,
			wantWrites: []string{failedPatch, failedPatch, failedPatch, unconditionalPatch},
		},
		"the namespace changes before every attempt": {
			server: fakeServer{cached: failed().Obj(), statusError: errConflict}, want: conflictRetry,
			wantWrites: []string{failedPatch, failedPatch, failedPatch, unconditionalPatch},
		},
		"the namespace was deleted": {
			server: fakeServer{cached: failed().Obj(), statusError: errNotFound}, wantWrites: []string{failedPatch}, want: conflictRetry,
		},

		// Failed initializations.
		"failed; the namespace is deleted at the resource version of the status write": {
			server: fakeServer{cached: failed().Obj()}, wantWrites: []string{failedPatch, deletion + "8"},
			wantEvents: []string{failedEvent + "will be deleted"},
		},
		"failed, and the conditions are already set": {
			server: fakeServer{cached: settled(failed())}, wantWrites: []string{deletion + "7"},
		},
		"failed, and the namespace must not be deleted": {
			server: fakeServer{cached: namespace().Pending(rbac).Result(failure).Obj()}, wantWrites: []string{failedPatch},
			wantEvents: []string{failedEvent + "is not deleted ... annotation nslifecycle.dev/initializers"},
		},
		"failed, and protected from deletion": {
			server:     fakeServer{cached: failed().Label(v1alpha1.LabelDeletionProtection, "enabled").Obj()},
			wantWrites: []string{failedPatch},
			wantEvents: []string{failedEvent + "is not deleted ... kubectl label namespace x nslifecycle.dev/deletion-protection-"},
		},
		"failed, and the namespace changes before every attempt": {
			server:     fakeServer{cached: failed().Obj(), deleteError: errConflict},
			wantWrites: []string{failedPatch, deletion + "8", deletion + "8", deletion + "8", deletion}, want: conflictRetry,
			wantEvents: []string{failedEvent + "will be deleted"},
		},
		"failed, and a webhook denies the deletion with the code 409": {
			server: fakeServer{cached: failed().Obj(), deleteError: errInUse}, wantWrites: []string{failedPatch, deletion + "8"},
			wantEvents: []string{
				failedEvent + "will be deleted", "Warning WriteRejected failed to delete namespace ... " + errInUse.Error(),
			},
			wantError: `failed to delete namespace "x", whose initialization failed: ` + errInUse.Error(),
		},
		"failed, and another client has deleted the namespace": {
			server: fakeServer{cached: failed().Obj(), deleteError: errNotFound}, wantWrites: []string{failedPatch, deletion + "8"},
			wantEvents: []string{failedEvent + "will be deleted"}, want: conflictRetry,
		},
		"failed, and the namespace cannot be deleted": {
			server: fakeServer{cached: failed().Obj(), deleteError: errOutage}, wantWrites: []string{failedPatch, deletion + "8"},
			wantEvents: []string{failedEvent + "will be deleted"},
			wantError:  `failed to delete namespace "x", whose initialization failed: ` + errOutage.Error(),
		},

		// Repair of the label. The watch event for the repair triggers all other actions.
		"the label is inconsistent with the list": {
			server: fakeServer{cached: failed().Label(v1alpha1.LabelInitializing, "yes").Obj()},
			wantWrites: []string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":"true"},"resourceVersion":"7"}}`},
			wantEvents: []string{`Warning InitializationRepaired ... nslifecycle.dev/initializing to "true"`},
		},
		"no labels": {
			server: fakeServer{cached: withoutLabels(failed())},
			wantWrites: []string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":"true"},"resourceVersion":"7"}}`},
			wantEvents: []string{`Warning InitializationRepaired ... nslifecycle.dev/initializing to "true"`},
		},
		"a label without a list": {
			server: fakeServer{cached: namespace().Label(v1alpha1.LabelInitializing, "true").Label("app", "web").Obj()},
			wantWrites: []string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":null},"resourceVersion":"7"}}`},
			wantEvents: []string{"Warning InitializationRepaired ... Removed the label nslifecycle.dev/initializing"},
		},
		"a label with a list that contains only spaces; both are removed": {
			server: fakeServer{cached: namespace().Initializers(rbac).Result(failure).
				Annotation(v1alpha1.AnnotationPendingInitializers, " , ").Obj()},
			wantWrites: []string{labelPatch + `{"metadata":{` +
				`"annotations":{"nslifecycle.dev/initialization-result":null,"nslifecycle.dev/pending-initializers":null},` +
				`"labels":{"nslifecycle.dev/initializing":null},"resourceVersion":"7"}}`},
			wantEvents: []string{"Warning InitializationRepaired ... Removed the label nslifecycle.dev/initializing"},
		},
		// A user who may write Namespaces can remove the policies for a moment.
		"an empty list": {
			server: fakeServer{cached: namespace().Initializers(rbac).Pending("").Label(v1alpha1.LabelInitializing, "true").Obj()},
			wantWrites: []string{labelPatch + `{"metadata":{"annotations":{"nslifecycle.dev/pending-initializers":null},` +
				`"labels":{"nslifecycle.dev/initializing":null},"resourceVersion":"7"}}`},
			wantEvents: []string{"Warning InitializationRepaired"},
		},
		"the label cannot be repaired": {
			server: fakeServer{cached: namespace().Label(v1alpha1.LabelInitializing, "").Obj(), patchError: errOutage},
			wantWrites: []string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":null},"resourceVersion":"7"}}`},
			wantError: `failed to repair label nslifecycle.dev/initializing of namespace "x": ` + errOutage.Error(),
		},
		"the namespace changes before every attempt to repair the label": {
			server: fakeServer{cached: namespace().Label(v1alpha1.LabelInitializing, "").Obj(), patchError: errConflict},
			wantWrites: slices.Repeat([]string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":null},"resourceVersion":"7"}}`}, 4),
			want: conflictRetry,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			recorder := events.NewFakeRecorder(10)
			reconciler := test.server.namespaceReconciler(recorder)
			result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
			g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: test.want}))
			g.Expect(err).To(matchError(test.wantError))
			g.Expect(test.server.writes).To(Equal(test.wantWrites))
			g.Expect(recorded(recorder)).To(matchEvents(test.wantEvents...))
		})
	}
}

// Progress writes must not slow down fast initializers.
func TestNamespaceReconcileWritesProgressAtIntervals(t *testing.T) {
	const interval = time.Second
	g := NewWithT(t)
	waitingFor := func(names ...string) *corev1.Namespace {
		return wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").
			Initializers("a.corp.com", "b.corp.com", "c.corp.com", "d.corp.com").Pending(names...).Obj()
	}
	server := &fakeServer{cached: waitingFor("a.corp.com")}
	clock := clocktesting.NewFakePassiveClock(now)
	reconciler := server.namespaceReconciler(events.NewFakeRecorder(10))
	reconciler.ServerClock, reconciler.ProgressInterval = servertime.NewClock(clock), interval
	// reconcile returns the number of writes, and RequeueAfter.
	reconcile := func(elapsed time.Duration, namespace *corev1.Namespace) (int, time.Duration) {
		clock.SetTime(clock.Now().Add(elapsed))
		namespace.Status = server.cached.Status
		server.cached, server.writes = namespace, nil
		reconciler.tracker.record(namespace, false, clock.Now())
		result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
		g.Expect(err).NotTo(HaveOccurred())
		if len(server.writes) > 0 {
			state := initialization.ParseState(namespace)
			namespace.Status.Conditions = initialization.ComputeConditions(&corev1.Namespace{}, state, metav1.NewTime(now))
		}
		return len(server.writes), result.RequeueAfter
	}
	expect := func(elapsed time.Duration, namespace *corev1.Namespace, writes int, again time.Duration) {
		t.Helper()
		gotWrites, gotAgain := reconcile(elapsed, namespace)
		g.Expect(gotWrites).To(Equal(writes))
		g.Expect(gotAgain).To(Equal(again))
	}
	all := waitingFor("a.corp.com", "b.corp.com", "c.corp.com", "d.corp.com")
	three := waitingFor("b.corp.com", "c.corp.com", "d.corp.com")
	two := waitingFor("c.corp.com", "d.corp.com")
	expect(0, all, 1, 0)
	expect(interval/4, three, 0, interval*3/4)
	expect(interval/4, two, 0, interval/2)
	expect(interval/2, two, 1, 0)
	expect(interval*3, waitingFor("d.corp.com"), 1, 0)
	expect(0, waitingFor(), 1, 0)
	g.Expect(reconciler.tracker.byUID).To(BeEmpty())
}

// A mass creation must leave the capacity of the API server to the initializers.
func TestNamespaceReconcileLimitsReportsOfProgress(t *testing.T) {
	notReady := corev1.NamespaceCondition{Type: v1alpha1.ConditionReady, Status: corev1.ConditionFalse}
	const initializer = "a.corp.com"
	for name, test := range map[string]struct {
		namespace *wrappers.NamespaceWrapper
		again     time.Duration
		writes    int
	}{
		// Until then, clients cannot know that the Namespace is not ready.
		"the start": {namespace: wrappers.MakeNamespace("x").Initializers(initializer), writes: 1},
		"the start, if only templates are pending": {
			namespace: wrappers.MakeNamespace("x").Initializers(v1alpha1.TemplatesInitializer), again: busyDelay,
		},
		"the progress":   {namespace: wrappers.MakeNamespace("x").Initializers(initializer).Condition(notReady), again: busyDelay},
		"the completion": {namespace: wrappers.MakeNamespace("x").Initializers(initializer).Pending(), writes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &fakeServer{cached: test.namespace.UID("x-uid").ResourceVersion("7").Obj()}
			reconciler := server.namespaceReconciler(events.NewFakeRecorder(10))
			reconciler.HasTemplates, reconciler.ProgressLimiter = true, flowcontrol.NewFakeNeverRateLimiter()
			result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.RequeueAfter).To(Equal(test.again))
			g.Expect(server.writes).To(HaveLen(test.writes))
		})
	}
}

func TestNamespaceReconcileDoesNotLimitSkips(t *testing.T) {
	g := NewWithT(t)
	server := &fakeServer{
		cached: wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Initializers("a.corp.com").
			Condition(corev1.NamespaceCondition{Type: v1alpha1.ConditionReady, Status: corev1.ConditionFalse}).Obj(),
		configurations: []*wrappers.ConfigurationWrapper{wrappers.MakeConfiguration("c").Initializers("b.corp.com")},
	}
	passive := clocktesting.NewFakePassiveClock(now)
	reconciler := server.namespaceReconciler(events.NewFakeRecorder(10))
	reconciler.ServerClock, reconciler.ProgressLimiter = servertime.NewClock(passive), flowcontrol.NewFakeNeverRateLimiter()
	_, err := reconciler.Reconcile(t.Context(), requestFor("x"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.writes).To(BeEmpty())

	passive.SetTime(now.Add(initialization.DeregistrationDelay))
	_, err = reconciler.Reconcile(t.Context(), requestFor("x"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.writes).To(ContainElement(ContainSubstring("a.corp.com/Initialized=False/Deregistered")))
}

// Exempt namespaces are required by the cluster or the operator.
func TestNamespaceReconcileNeverDeletesExemptNamespaces(t *testing.T) {
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease", systemNamespace} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &fakeServer{cached: wrappers.MakeNamespace(name).UID("x-uid").ResourceVersion("7").
				Initializers("rbac.corp.com").Result(`{"status":"Failure","message":"no"}`).Obj()}
			recorder := events.NewFakeRecorder(10)
			reconciler := server.namespaceReconciler(recorder)
			_, err := reconciler.Reconcile(t.Context(), requestFor(name))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(server.writes).To(ConsistOf(ContainSubstring("Initializing=False/Failed")))
			g.Expect(recorded(recorder)).To(matchEvents("Warning InitializationFailed no; ... not deleted ... exempt"))
		})
	}
}

func TestRecordEvents(t *testing.T) {
	g, recorder := NewWithT(t), events.NewFakeRecorder(1)
	recordEvents(recorder, wrappers.MakeNamespace("x").Obj(), []initialization.Event{{
		Type: corev1.EventTypeNormal, Reason: "Reason", Note: "100 %d" + strings.Repeat("x", nsobject.MaxEventNote),
	}})
	g.Expect(recorded(recorder)).To(ConsistOf(And(HavePrefix("Normal Reason 100 %d"), HaveLen(len("Normal Reason ")+1024))))
}

func TestInitializationChanged(t *testing.T) {
	// unchanged returns a namespace that requires no action.
	unchanged := func() *wrappers.NamespaceWrapper {
		return &wrappers.NamespaceWrapper{Namespace: *settled(wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("8"))}
	}
	before := unchanged().ResourceVersion("7").Obj()
	failed := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("8").Initializers("rbac.corp.com").
		Result(`{"status":"Failure","message":"no"}`)

	broken := settled(wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Initializers("rbac.corp.com"))
	repaired, later := broken.DeepCopy(), broken.DeepCopy()
	repaired.ResourceVersion, later.ResourceVersion = "8", "9"
	delete(broken.Labels, v1alpha1.LabelInitializing)

	terminating := func(version string) *wrappers.NamespaceWrapper {
		made := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion(version).Terminating(now)
		return &wrappers.NamespaceWrapper{Namespace: *settled(made)}
	}

	tests := map[string]struct {
		before, after client.Object
		want          bool
	}{
		"a condition of a terminating namespace was removed": {
			before: terminating("7").Obj(), after: withoutConditions(terminating("8")), want: true,
		},
		"another condition of a terminating namespace changed": {
			before: terminating("7").Obj(), after: terminating("8").Condition(corev1.NamespaceCondition{Type: "corp.com/A"}).Obj(),
		},
		"the conditions of a terminating namespace are not written yet": {
			before: withoutConditions(terminating("7")), after: withoutConditions(terminating("8")),
		},
		// The reconciliation that repairs the label does nothing else, and it replaces a delayed request.
		"the label was repaired":      {before: broken, after: repaired, want: true},
		"nothing has changed":         {before: repaired, after: later},
		"another label changed":       {after: unchanged().Label("app", "web").Obj()},
		"another condition changed":   {after: unchanged().Condition(corev1.NamespaceCondition{Type: "corp.com/Ready"}).Obj()},
		"a resync":                    {after: before.DeepCopy(), want: true},
		"the namespace was recreated": {after: unchanged().UID("another-uid").Obj(), want: true},
		"the pending list changed":    {after: unchanged().Initializers("rbac.corp.com").Obj(), want: true},
		"the label changed":           {after: unchanged().Label(v1alpha1.LabelInitializing, "true").Obj(), want: true},
		"the condition was removed":   {after: withoutConditions(unchanged()), want: true},
		"the namespace was deleted":   {after: unchanged().Terminating(now).Obj()},
		"the namespace was deleted, and the pending list changed": {after: unchanged().Initializers("rbac.corp.com").Terminating(now).Obj()},
		"another kind": {after: &corev1.Pod{}, want: true},
		"templates completed and set all conditions": {
			before: settled(wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").
				Initializers(v1alpha1.TemplatesInitializer, "rbac.corp.com")),
			after: settled(wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("8").
				Initializers(v1alpha1.TemplatesInitializer, "rbac.corp.com").Pending("rbac.corp.com")), want: true,
		},
		// The namespace is reconciled even if the conditions are already set, because the deletion may have
		// failed.
		"the initialization has failed": {after: settled(failed), want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			passes := initializationChanged().Update(event.UpdateEvent{ObjectOld: cmp.Or(test.before, client.Object(before)), ObjectNew: test.after})
			g.Expect(passes).To(Equal(test.want))
		})
	}
	g := NewWithT(t)
	g.Expect(initializationChanged().Create(event.CreateEvent{Object: before})).To(BeTrue())
	g.Expect(initializationChanged().Generic(event.GenericEvent{Object: before})).To(BeTrue())
	g.Expect(initializationChanged().Delete(event.DeleteEvent{Object: before})).To(BeFalse())
}

// settled returns a Namespace that already has all conditions that the operator sets.
func settled(namespace *wrappers.NamespaceWrapper) *corev1.Namespace {
	result := namespace.Obj()
	computed := initialization.ComputeConditions(result, initialization.ParseState(result), metav1.NewTime(now))
	result.Status.Conditions = append(result.Status.Conditions, computed...)
	return result
}

// onlyInitializing removes all conditions except Initializing.
func onlyInitializing(namespace *corev1.Namespace) *corev1.Namespace {
	namespace.Status.Conditions = slices.DeleteFunc(namespace.Status.Conditions,
		func(condition corev1.NamespaceCondition) bool {
			return condition.Type != v1alpha1.ConditionInitializing && condition.Type != v1alpha1.ConditionReady
		})
	return namespace
}

func withoutLabels(namespace *wrappers.NamespaceWrapper) *corev1.Namespace {
	result := namespace.Obj()
	result.Labels = nil
	return result
}

func withoutConditions(namespace *wrappers.NamespaceWrapper) *corev1.Namespace {
	result := namespace.Obj()
	result.Status.Conditions = nil
	return result
}

func (s *fakeServer) namespaceReconciler(recorder events.EventRecorder) *NamespaceReconciler {
	return &NamespaceReconciler{
		Client: s.client(), Live: s.reader(), Recorder: recorder, ServerClock: servertime.NewClock(clocktesting.NewFakePassiveClock(now)),
		Exempt: exempt,
	}
}
