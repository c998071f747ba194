// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// asOf matches the time in the message of a finding.
var asOf = regexp.MustCompile(` \(as of [^)]+\)`)

const progressDeadline = 30 * time.Second

// reconcilerTest tests a DiagnosisReconciler. It also acts as its Diagnoser and as a fake API
// server with one Namespace. Written conditions are in the cache immediately. The specs in
// test/diagnosis cover how the API server handles the writes.
type reconcilerTest struct {
	*DiagnosisReconciler
	// namespace is nil once the Namespace is deleted.
	namespace *corev1.Namespace
	// cached is the Namespace in a stale cache. If nil, the field namespace is used.
	cached *corev1.Namespace
	// findings are the findings that each diagnosis returns.
	findings []diagnosis.Finding
	// These are the errors that requests return.
	getError, statusError, diagnosisError error
	// foundUID is the UID of the diagnosed Namespace. If empty, the UID of the field namespace is used.
	foundUID types.UID
	// onDiagnose is called in each diagnosis.
	onDiagnose func()

	clock     *clocktesting.FakePassiveClock
	recorder  *events.FakeRecorder
	diagnoses int
	writes    []string
}

func newReconcilerTest(namespace *corev1.Namespace, findings ...diagnosis.Finding) *reconcilerTest {
	w := &reconcilerTest{
		namespace: namespace, findings: findings,
		clock: clocktesting.NewFakePassiveClock(now), recorder: events.NewFakeRecorder(10),
	}
	w.DiagnosisReconciler = &DiagnosisReconciler{
		Client:    newFakeClient(interceptor.Funcs{Get: w.get, SubResourcePatch: w.patchStatus}),
		Diagnoser: w, Recorder: w.recorder, Clock: w.clock, ProgressDeadline: progressDeadline, Budget: fixedBudget(0),
	}
	w.tracker.reset()
	return w
}

func (w *reconcilerTest) get(
	_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption,
) error {
	switch {
	case w.getError != nil:
		return w.getError
	case w.namespace == nil:
		return errNotFound
	case w.cached != nil:
		w.cached.DeepCopyInto(object.(*corev1.Namespace))
		return nil
	}
	w.namespace.DeepCopyInto(object.(*corev1.Namespace))
	return nil
}

func (w *reconcilerTest) patchStatus(
	_ context.Context, _ client.Client, _ string, object client.Object, patch client.Patch,
	_ ...client.SubResourcePatchOption,
) error {
	body, err := bodyOf[corev1.Namespace](object, patch)
	if err != nil {
		return err
	}
	if body.ResourceVersion != "" && body.ResourceVersion != w.namespace.ResourceVersion {
		return apierrors.NewConflict(corev1.Resource("namespaces"), body.Name, errors.New("outdated"))
	}
	for _, condition := range body.Status.Conditions {
		if condition.Type != v1alpha1.ConditionReady { // See TestWithTerminating and test/diagnosis.
			w.writes = append(w.writes, asOf.ReplaceAllString(fmt.Sprintf("%s: %s=%s/%s: %s",
				body.UID, condition.Type, condition.Status, condition.Reason, condition.Message), ""))
		}
		if w.statusError != nil {
			continue
		}
		if have := nsobject.FindCondition(w.namespace, condition.Type); have != nil {
			*have = condition
		} else {
			w.namespace.Status.Conditions = append(w.namespace.Status.Conditions, condition)
		}
	}
	return w.statusError
}

func (w *reconcilerTest) Diagnose(_ context.Context, name string) (*diagnosis.Diagnosis, error) {
	w.diagnoses++
	if w.onDiagnose != nil {
		w.onDiagnose()
	}
	if w.diagnosisError != nil {
		return nil, w.diagnosisError
	}
	found := &diagnosis.Diagnosis{Namespace: name, UID: w.namespace.UID, State: diagnosis.StateInitializing, Findings: w.findings}
	if w.foundUID != "" {
		found.UID = w.foundUID
	}
	if w.namespace.DeletionTimestamp != nil {
		found.State = diagnosis.StateTerminating
	}
	return found, nil
}

// pass advances the clock, reconciles, and returns RequeueAfter.
func (w *reconcilerTest) pass(g *WithT, t *testing.T, passed time.Duration) time.Duration {
	t.Helper()
	w.clock.SetTime(w.clock.Now().Add(passed))
	result, err := w.Reconcile(t.Context(), requestFor("x"))
	g.Expect(err).NotTo(HaveOccurred())
	return result.RequeueAfter
}

// written returns the writes since the last call.
func (w *reconcilerTest) written() []string {
	writes := w.writes
	w.writes = nil
	return writes
}

// blockedNamespaces returns the values of the gauge, by state and cause.
func blockedNamespaces(g *WithT) map[string]float64 {
	families, err := metrics.Registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "nslifecycle_namespaces_blocked" {
			continue
		}
		for _, metric := range family.GetMetric() {
			// The labels are sorted by name: cause, state.
			counts[metric.GetLabel()[1].GetValue()+"/"+metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	return counts
}

func held1() diagnosis.Finding {
	return diagnosis.Finding{
		Cause: diagnosis.CauseFinalizerOwnerNotFound, Message: "no controller removes finalizer hold",
		Objects: []diagnosis.Object{{Resource: "configmaps", Namespace: "x", Name: "a"}}, Count: 1,
	}
}

func held2() diagnosis.Finding {
	finding := held1()
	finding.Objects = []diagnosis.Object{{Resource: "configmaps", Namespace: "x", Name: "b"}}
	return finding
}

const (
	heldWrite = "x-uid: nslifecycle.dev/DeletionBlocked=True/FinalizerOwnerNotFound: " +
		"no controller removes finalizer hold; objects: configmaps/a"
	explainHint      = "; for details, run: kubectl nslifecycle explain x"
	blockedWrite     = heldWrite + explainHint
	progressingWrite = "x-uid: nslifecycle.dev/DeletionBlocked=False/Progressing: The deletion is making progress again"
	heldEvent        = "Warning FinalizerOwnerNotFound no controller removes finalizer hold; objects: configmaps/a"
)

func TestDiagnosisReconcileOfADeletion(t *testing.T) {
	g := NewWithT(t)
	w := newReconcilerTest(terminating(), held1())

	// Before the progress deadline.
	g.Expect(w.pass(g, t, 0)).To(Equal(progressDeadline))
	g.Expect(w.pass(g, t, progressDeadline-time.Second)).To(Equal(time.Second))
	g.Expect(w.diagnoses).To(BeZero())
	g.Expect(w.pass(g, t, time.Second)).To(Equal(progressDeadline))
	g.Expect(w.diagnoses).To(Equal(1))
	g.Expect(w.written()).To(Equal([]string{blockedWrite}))
	g.Expect(recorded(w.recorder)).To(Equal([]string{heldEvent}))
	g.Expect(blockedNamespaces(g)).To(Equal(map[string]float64{"Terminating/FinalizerOwnerNotFound": 1}))

	// A reconciliation before the next diagnosis is due, for example after the controller's own write.
	g.Expect(w.pass(g, t, 10*time.Second)).To(Equal(20 * time.Second))
	g.Expect(w.diagnoses).To(Equal(1))

	// The interval grows; the controller writes nothing and records no Event.
	for _, want := range []time.Duration{60, 120, 240, 300, 300} {
		g.Expect(w.pass(g, t, w.tracker.namespaces["x"].next.Sub(w.clock.Now()))).To(Equal(want * time.Second))
	}
	g.Expect(w.diagnoses).To(Equal(6))
	g.Expect(w.written()).To(BeEmpty())
	g.Expect(recorded(w.recorder)).To(BeEmpty())

	// A second finding. The controller records no second Event for the first finding.
	w.findings = []diagnosis.Finding{held1(), held2()}
	w.pass(g, t, maxDiagnosisInterval)
	g.Expect(w.written()).To(Equal([]string{heldWrite + "; and 1 more finding" + explainHint}))
	g.Expect(recorded(w.recorder)).To(Equal([]string{
		"Warning FinalizerOwnerNotFound no controller removes finalizer hold; objects: configmaps/b"}))

	// Another cause replaces the first one in the metric.
	forbidden := diagnosis.Finding{Cause: diagnosis.CauseForbidden, Message: "forbidden"}
	w.findings = []diagnosis.Finding{forbidden}
	w.pass(g, t, maxDiagnosisInterval)
	g.Expect(blockedNamespaces(g)).To(Equal(map[string]float64{
		"Terminating/FinalizerOwnerNotFound": 0, "Terminating/Forbidden": 1}))
	g.Expect(w.written()).To(HaveLen(1))
	g.Expect(recorded(w.recorder)).To(Equal([]string{"Warning Forbidden forbidden"}))

	// The controller reports progress immediately and restarts the deadline.
	diagnoses := w.diagnoses
	w.namespace.Status.Conditions = append(w.namespace.Status.Conditions,
		corev1.NamespaceCondition{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue})
	g.Expect(w.pass(g, t, time.Second)).To(Equal(progressDeadline))
	g.Expect(w.written()).To(Equal([]string{progressingWrite}))
	g.Expect(blockedNamespaces(g)).To(HaveKeyWithValue("Terminating/Forbidden", 0.0))
	g.Expect(w.diagnoses).To(Equal(diagnoses))

	// The namespace is stalled again for the same reason: the controller sets the condition but
	// records no Event.
	g.Expect(w.pass(g, t, progressDeadline)).To(Equal(progressDeadline))
	g.Expect(w.written()).To(Equal([]string{"x-uid: nslifecycle.dev/DeletionBlocked=True/Forbidden: forbidden" + explainHint}))
	g.Expect(recorded(w.recorder)).To(BeEmpty())
	g.Expect(blockedNamespaces(g)).To(HaveKeyWithValue("Terminating/Forbidden", 1.0))

	// The Namespace is deleted.
	w.namespace = nil
	g.Expect(w.pass(g, t, time.Second)).To(BeZero())
	g.Expect(blockedNamespaces(g)).To(HaveKeyWithValue("Terminating/Forbidden", 0.0))
	g.Expect(w.tracker.namespaces).To(BeEmpty())
	g.Expect(w.written()).To(BeEmpty())
}

// The API server deletes a terminating Namespace without finalizers with any write, and orphans its content.
func TestDiagnosisReconcileWithoutFinalizers(t *testing.T) {
	g := NewWithT(t)
	w := newReconcilerTest(terminating(withFinalizers()), held1())
	w.pass(g, t, 0)
	g.Expect(w.pass(g, t, progressDeadline)).To(Equal(progressDeadline))
	g.Expect(w.written()).To(BeEmpty())
	g.Expect(recorded(w.recorder)).To(Equal([]string{heldEvent}))
}

func TestDiagnosisReconcileOfAnInitialization(t *testing.T) {
	g := NewWithT(t)
	w := newReconcilerTest(wrappers.MakeNamespace("x").UID("x-uid").Initializers("a.corp.com", "b.corp.com").Obj(),
		diagnosis.Finding{Cause: diagnosis.CauseInitializerNotRunning, Message: "no controller runs for a.corp.com"})
	const blocked = "x-uid: nslifecycle.dev/InitializationBlocked=True/InitializerNotRunning: no controller runs for a.corp.com" + explainHint
	const progressing = "x-uid: nslifecycle.dev/InitializationBlocked=False/Progressing: "
	stuck := func() {
		t.Helper()
		w.pass(g, t, 0)
		w.pass(g, t, progressDeadline)
		g.Expect(w.written()).To(Equal([]string{blocked}))
		g.Expect(blockedNamespaces(g)).To(HaveKeyWithValue("Initializing/InitializerNotRunning", 1.0))
	}
	freed := func(why string) {
		t.Helper()
		w.pass(g, t, time.Second)
		g.Expect(w.written()).To(Equal([]string{progressing + why}))
		g.Expect(blockedNamespaces(g)).To(HaveKeyWithValue("Initializing/InitializerNotRunning", 0.0))
	}
	stuck()
	w.namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = "b.corp.com"
	freed("The initialization is making progress again")
	stuck()
	delete(w.namespace.Annotations, v1alpha1.AnnotationPendingInitializers)
	delete(w.namespace.Labels, v1alpha1.LabelInitializing)
	freed("The initialization is complete")
	g.Expect(w.tracker.namespaces).To(BeEmpty())

	// The Namespace is deleted while its initialization is stuck.
	w.namespace = wrappers.MakeNamespace("x").UID("x-uid").Initializers("a.corp.com").Obj()
	stuck()
	w.namespace.DeletionTimestamp = &metav1.Time{Time: now}
	w.namespace.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	freed("The namespace is being deleted")
	g.Expect(w.tracker.namespaces["x"].reported).To(BeNil(), "the controller records another Event for the cause of the blocked deletion")
}

func TestDiagnosisReconcileAfterAPreviousManager(t *testing.T) {
	tests := map[string]struct {
		message    string
		wantWrites []string
		wantEvents []string
	}{
		"the finding has not changed": {message: "no controller removes finalizer hold; objects: configmaps/a (as of 2026-03-01T11:00:00Z)" + explainHint},
		"the finding has changed":     {message: "old", wantWrites: []string{blockedWrite}, wantEvents: []string{heldEvent}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := terminating()
			namespace.Status.Conditions = []corev1.NamespaceCondition{{
				Type: v1alpha1.ConditionDeletionBlocked, Status: corev1.ConditionTrue,
				Reason: "FinalizerOwnerNotFound", Message: test.message,
			}}
			w := newReconcilerTest(namespace, held1())
			w.pass(g, t, 0)
			g.Expect(w.written()).To(BeEmpty(), "the condition stays until the deadline")
			g.Expect(blockedNamespaces(g)).To(Equal(map[string]float64{"Terminating/FinalizerOwnerNotFound": 1}))
			w.pass(g, t, progressDeadline)
			g.Expect(w.written()).To(Equal(test.wantWrites))
			g.Expect(recorded(w.recorder)).To(Equal(test.wantEvents))
			g.Expect(blockedNamespaces(g)).To(Equal(map[string]float64{"Terminating/FinalizerOwnerNotFound": 1}))
		})
	}
}

func TestDiagnosisReconcileWithoutFindings(t *testing.T) {
	g := NewWithT(t)
	w := newReconcilerTest(terminating())
	w.pass(g, t, 0)
	g.Expect(w.pass(g, t, progressDeadline)).To(Equal(progressDeadline))
	g.Expect(w.pass(g, t, progressDeadline)).To(Equal(2 * progressDeadline))
	g.Expect(w.diagnoses).To(Equal(2))
	g.Expect(w.written()).To(BeEmpty(), "no condition is set if there was never a finding")
	g.Expect(blockedNamespaces(g)).To(BeEmpty())

	w.findings = []diagnosis.Finding{held1()}
	w.pass(g, t, 2*progressDeadline)
	g.Expect(w.written()).To(Equal([]string{blockedWrite}))
	g.Expect(recorded(w.recorder)).To(HaveLen(1))
	w.findings = nil
	w.pass(g, t, maxDiagnosisInterval)
	g.Expect(w.written()).To(Equal([]string{progressingWrite}), "there are no findings, although the namespace makes no progress")
	g.Expect(blockedNamespaces(g)).To(Equal(map[string]float64{"Terminating/FinalizerOwnerNotFound": 0}))

	w.findings = []diagnosis.Finding{held1()}
	w.pass(g, t, maxDiagnosisInterval)
	g.Expect(recorded(w.recorder)).To(HaveLen(1), "the controller records another Event for a finding that occurs again")
}

func TestDiagnosisReconcileIgnoresActiveNamespaces(t *testing.T) {
	g := NewWithT(t)
	w := newReconcilerTest(wrappers.MakeNamespace("x").UID("x-uid").Obj())
	g.Expect(w.pass(g, t, 0)).To(BeZero())
	g.Expect(w.written()).To(BeEmpty())
	g.Expect(w.tracker.namespaces).To(BeEmpty())
}

func TestDiagnosisReconcileErrors(t *testing.T) {
	tests := map[string]struct {
		prepare       func(*reconcilerTest)
		wantError     string
		wantAgain     time.Duration
		wantDiagnoses int
		wantWrites    []string
	}{
		"the namespace cannot be read": {prepare: func(w *reconcilerTest) { w.getError = errOutage }, wantError: errOutage.Error()},
		"the diagnosis fails": {
			prepare: func(w *reconcilerTest) { w.diagnosisError = errOutage }, wantAgain: progressDeadline, wantDiagnoses: 1,
		},
		"the namespace is deleted in the meantime": {
			prepare: func(w *reconcilerTest) { w.diagnosisError = errNotFound }, wantAgain: progressDeadline, wantDiagnoses: 1,
		},
		"the namespace is removed from the cache in the meantime": {
			prepare:   func(w *reconcilerTest) { w.onDiagnose = func() { w.getError = errNotFound } },
			wantAgain: progressDeadline, wantDiagnoses: 1,
		},
		"the namespace makes progress in the meantime": {
			prepare:   func(w *reconcilerTest) { w.onDiagnose = func() { w.namespace.Spec.Finalizers = nil } },
			wantAgain: progressDeadline, wantDiagnoses: 1,
		},
		"the namespace was recreated, and the cache is stale": {
			prepare: func(w *reconcilerTest) { w.foundUID = "other" }, wantAgain: progressDeadline, wantDiagnoses: 1,
		},
		"the condition cannot be written": {
			prepare:   func(w *reconcilerTest) { w.statusError = errOutage },
			wantError: `failed to update the status of namespace "x": ` + errOutage.Error(), wantAgain: progressDeadline,
			wantDiagnoses: 1, wantWrites: []string{blockedWrite},
		},
		"the namespace is deleted before the condition is written": {
			prepare:   func(w *reconcilerTest) { w.statusError = errNotFound },
			wantAgain: progressDeadline, wantDiagnoses: 1, wantWrites: []string{blockedWrite},
		},
		"the request budget is exhausted": {
			prepare: func(w *reconcilerTest) { w.Budget = fixedBudget(2 * time.Second) }, wantAgain: 2 * time.Second,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newReconcilerTest(terminating(), held1())
			w.pass(g, t, 0)
			w.clock.SetTime(now.Add(progressDeadline))
			test.prepare(w)
			result, err := w.Reconcile(t.Context(), requestFor("x"))
			g.Expect(err).To(matchError(test.wantError))
			g.Expect(result.RequeueAfter).To(Equal(test.wantAgain))
			g.Expect(w.diagnoses).To(Equal(test.wantDiagnoses))
			g.Expect(w.written()).To(Equal(test.wantWrites))
			g.Expect(recorded(w.recorder)).To(BeEmpty())
		})
	}
}

// After a failed write, the next reconciliation writes the condition and records the Event.
func TestDiagnosisReconcileAfterAFailedWrite(t *testing.T) {
	g := NewWithT(t)
	w := newReconcilerTest(terminating(), held1())
	w.pass(g, t, 0)
	w.clock.SetTime(now.Add(progressDeadline))
	w.statusError = errOutage
	_, err := w.Reconcile(t.Context(), requestFor("x"))
	g.Expect(err).To(MatchError(errOutage))
	w.statusError = nil
	w.written()
	w.pass(g, t, progressDeadline)
	g.Expect(w.written()).To(Equal([]string{blockedWrite}))
	g.Expect(recorded(w.recorder)).To(Equal([]string{heldEvent}))
}

// A stale cache does not cause a second report of progress.
func TestDiagnosisReconcileWithAStaleCache(t *testing.T) {
	g := NewWithT(t)
	w := newReconcilerTest(terminating(), held1())
	w.namespace.ResourceVersion = "1"
	w.pass(g, t, 0)
	w.pass(g, t, progressDeadline)
	w.written()
	stale := w.namespace.DeepCopy()
	w.namespace.DeletionTimestamp, w.namespace.ResourceVersion = nil, "2"
	w.pass(g, t, 0)
	g.Expect(w.written()).To(HaveLen(1))
	stale.DeletionTimestamp, w.namespace.ResourceVersion, w.cached = nil, "3", stale
	w.pass(g, t, 0)
	g.Expect(w.written()).To(BeEmpty())
}

// Watch events have priority over first diagnoses, which have priority over repeated diagnoses.
func TestDiagnosisReconcilePriorities(t *testing.T) {
	g := NewWithT(t)
	w := newReconcilerTest(terminating(), held1())
	first, err := w.Reconcile(t.Context(), requestFor("x"))
	g.Expect(err).NotTo(HaveOccurred())
	w.clock.SetTime(now.Add(progressDeadline))
	repeated, err := w.Reconcile(t.Context(), requestFor("x"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*repeated.Priority).To(BeNumerically("<", *first.Priority))
	g.Expect(*first.Priority).To(BeNumerically("<", 0), "lower than the priority of a watch event")
}

// The API server must not merge Events about two findings with the same cause into a series.
func TestDiagnosisReconcileRelatesEventsToObjects(t *testing.T) {
	g := NewWithT(t)
	g.Expect(relatedObject(held1())).To(Equal(&corev1.ObjectReference{Namespace: "x", Name: "a"}))
	if object := relatedObject(diagnosis.Finding{}); object != nil { // A typed nil pointer is also wrong.
		t.Errorf("the finding has no object, but the Event is related to %v", object)
	}
}

func TestCanStallPredicate(t *testing.T) {
	used := wrappers.MakeNamespace("x").Obj()
	initializing := wrappers.MakeNamespace("x").Initializers("a.corp.com").Obj()
	blocked := func(conditionType corev1.NamespaceConditionType, status corev1.ConditionStatus) *corev1.Namespace {
		return wrappers.MakeNamespace("x").Condition(corev1.NamespaceCondition{Type: conditionType, Status: status}).Obj()
	}
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		want      bool
	}{
		"active":       {namespace: used},
		"terminating":  {namespace: terminating(), want: true},
		"initializing": {namespace: initializing, want: true},
		"active, with a condition that reports it as blocked": {namespace: blocked(v1alpha1.ConditionInitializationBlocked, "True"), want: true},
		"active, and previously blocked":                      {namespace: blocked(v1alpha1.ConditionInitializationBlocked, "False")},
		"restored from a backup":                              {namespace: blocked(v1alpha1.ConditionDeletionBlocked, "True"), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			passes := canStallPredicate()
			g.Expect(passes.Create(event.CreateEvent{Object: test.namespace})).To(Equal(test.want))
			g.Expect(passes.Update(event.UpdateEvent{ObjectOld: used, ObjectNew: test.namespace})).To(Equal(test.want))
			g.Expect(passes.Update(event.UpdateEvent{ObjectOld: test.namespace, ObjectNew: used})).To(Equal(test.want))
			g.Expect(passes.Delete(event.DeleteEvent{Object: test.namespace})).To(BeTrue())
		})
	}
}

// A new leader in the same process starts with an empty tracker.
func TestStallTrackerReset(t *testing.T) {
	g := NewWithT(t)
	w := newReconcilerTest(terminating(), held1())
	w.pass(g, t, 0)
	w.pass(g, t, progressDeadline)
	w.tracker.reset()
	g.Expect(blockedNamespaces(g)).To(BeEmpty())
	g.Expect(w.pass(g, t, 0)).To(Equal(progressDeadline))
	g.Expect(blockedNamespaces(g)).To(Equal(map[string]float64{"Terminating/FinalizerOwnerNotFound": 1}))
}

// fixedBudget is a RequestBudget that always returns the same delay.
type fixedBudget time.Duration

func (b fixedBudget) Wait(time.Time) time.Duration { return time.Duration(b) }
