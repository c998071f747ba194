// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const systemNamespace = "nslifecycle-system"

// namespaceServer answers for one Namespace and records in words what is written to it.
// What the API server makes of a write is the business of the integration tests.
type namespaceServer struct {
	namespace *corev1.Namespace
	// The errors that requests are answered with.
	getError, patchError, statusError, deleteError error

	writes []string
}

func (s *namespaceServer) client() client.Client {
	return newFakeClient(interceptor.Funcs{
		Get: s.get, Patch: s.patch, SubResourcePatch: s.patchStatus, Delete: s.delete,
	})
}

func (s *namespaceServer) get(
	_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption,
) error {
	if s.getError == nil {
		s.namespace.DeepCopyInto(object.(*corev1.Namespace))
	}
	return s.getError
}

func (s *namespaceServer) patch(
	_ context.Context, _ client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption,
) error {
	body, err := patch.Data(object)
	if err != nil {
		return err
	}
	options := (&client.PatchOptions{}).ApplyOptions(opts)
	s.writes = append(s.writes, fmt.Sprintf("%s of %s by %s: %s",
		patch.Type(), object.GetName(), options.FieldManager, body))
	return s.patchError
}

func (s *namespaceServer) patchStatus(
	_ context.Context, _ client.Client, subResource string, object client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption,
) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	var body corev1.Namespace
	if err := json.Unmarshal(data, &body); err != nil {
		return err
	}
	options := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	words := []string{fmt.Sprintf("%s of %s/%s by %s: uid=%s",
		patch.Type(), object.GetName(), subResource, options.FieldManager, body.UID)}
	if body.ResourceVersion == "" && (errors.Is(s.statusError, errConflict) || errors.Is(s.statusError, errRecreated)) {
		words = append(words, "without resourceVersion")
	}
	for _, condition := range body.Status.Conditions {
		word := fmt.Sprintf("%s=%s/%s", condition.Type, condition.Status, condition.Reason)
		if !condition.LastTransitionTime.Time.Equal(now) {
			word += " since " + condition.LastTransitionTime.UTC().String()
		}
		words = append(words, word)
	}
	s.writes = append(s.writes, strings.Join(words, " "))
	if s.statusError == nil { // The API server answers with the object as it is now.
		object.SetResourceVersion("8")
		object.(*corev1.Namespace).Status.Conditions = body.Status.Conditions
	}
	return s.statusError
}

func (s *namespaceServer) delete(
	_ context.Context, _ client.WithWatch, object client.Object, opts ...client.DeleteOption,
) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	s.writes = append(s.writes, fmt.Sprintf("delete %s: uid=%s resourceVersion=%s",
		object.GetName(), *options.Preconditions.UID, ptr.Deref(options.Preconditions.ResourceVersion, "")))
	return s.deleteError
}

func TestNamespaceReconcile(t *testing.T) {
	const (
		rbac, quota = "rbac.corp.com", "quota.corp.com"
		failure     = `{"status":"Failure","reason":"Forbidden","message":"no quota left"}`

		statusPatch = "application/strategic-merge-patch+json of x/status by nslifecycle: uid=x-uid "
		labelPatch  = "application/merge-patch+json of x by nslifecycle: "
		deletion    = "delete x: uid=x-uid resourceVersion="

		failedPatch = statusPatch + "Initializing=False/Failed rbac.corp.com/Initialized=False/Pending"
		// The last attempt after conflicts.
		unconditionalPatch = statusPatch + "without resourceVersion " +
			"Initializing=False/Failed rbac.corp.com/Initialized=False/Pending"
		failedEvent = "Warning InitializationFailed Forbidden: no quota left; the namespace is "
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
		server     namespaceServer
		want       time.Duration
		wantWrites []string
		wantEvents []string
		wantError  string
	}{
		"gone": {server: namespaceServer{getError: errGone}},
		"cannot be read": {
			server:    namespaceServer{getError: errOutage},
			wantError: errOutage.Error(),
		},
		"being deleted, whatever else is the matter": {
			server: namespaceServer{namespace: failed().Label(v1alpha1.LabelInitializing, "yes").Terminating(now).Obj()},
		},
		"never had to be initialized": {
			server:     namespaceServer{namespace: namespace().Obj()},
			wantWrites: []string{statusPatch + "Initializing=False/NotRequired"},
		},
		"nothing has changed": {
			server: namespaceServer{namespace: namespace().Condition(condition(v1alpha1.ConditionInitializing, "False",
				v1alpha1.ReasonNotRequired, "this namespace has no initializers to wait for")).Obj()},
		},
		"has just been created": {
			server: namespaceServer{namespace: namespace().Initializers(rbac, quota).Obj()},
			wantWrites: []string{statusPatch + "Initializing=True/Pending " +
				"rbac.corp.com/Initialized=False/Pending quota.corp.com/Initialized=False/Pending"},
			wantEvents: []string{"Normal Initializing waiting for rbac.corp.com (1 of 2)"},
		},
		"one initializer is done, which is no event": {
			server: namespaceServer{namespace: namespace().Initializers(rbac, quota).Pending(quota).
				Condition(condition(v1alpha1.ConditionInitializing, "True",
					v1alpha1.ReasonPending, "waiting for rbac.corp.com (1 of 2)")).Obj()},
			wantWrites: []string{statusPatch + "Initializing=True/Pending " +
				"rbac.corp.com/Initialized=True/Completed quota.corp.com/Initialized=False/Pending"},
		},
		"all are done": {
			server: namespaceServer{namespace: namespace().Initializers(rbac).Pending().Obj()},
			wantWrites: []string{statusPatch + "Initializing=False/Completed " +
				"rbac.corp.com/Initialized=True/Completed"},
			wantEvents: []string{"Normal Initialized all initializers have done their work"},
		},
		"only an initializer's condition is wrong, which is no event": {
			server: namespaceServer{namespace: namespace().Initializers(rbac).Pending().
				Condition(condition(v1alpha1.ConditionInitializing, "False",
					v1alpha1.ReasonCompleted, "all initializers have done their work")).Obj()},
			wantWrites: []string{statusPatch + "rbac.corp.com/Initialized=True/Completed"},
		},
		"a result is of no use": {
			server: namespaceServer{namespace: namespace().Initializers(rbac).Result(`{"status":"Success"}`).Obj()},
			wantWrites: []string{statusPatch + "Initializing=True/Pending " +
				"rbac.corp.com/Initialized=False/Pending"},
			wantEvents: []string{"Warning InvalidInitializationResult annotation nslifecycle.dev/initialization-result " +
				`is ignored because its status is "Success" and not "Failure"; to report success, remove the ` +
				"initializer's name from nslifecycle.dev/pending-initializers instead"},
		},
		"the status cannot be written": {
			server:     namespaceServer{namespace: failed().Obj(), statusError: errOutage},
			wantWrites: []string{failedPatch},
			wantError:  `failed to update the status of namespace "x": ` + errOutage.Error(),
		},
		"it was recreated since it was read": {
			server:     namespaceServer{namespace: failed().Obj(), statusError: errRecreated},
			want:       conflictRetry,
			wantWrites: []string{failedPatch, failedPatch, failedPatch, unconditionalPatch},
		},
		"it changes before every attempt": {
			server:     namespaceServer{namespace: failed().Obj(), statusError: errConflict},
			want:       conflictRetry,
			wantWrites: []string{failedPatch, failedPatch, failedPatch, unconditionalPatch},
		},
		"it went since it was read": {
			server:     namespaceServer{namespace: failed().Obj(), statusError: errGone},
			wantWrites: []string{failedPatch},
		},

		// Failed.
		"failed: it is deleted as the status write has left it": {
			server:     namespaceServer{namespace: failed().Obj()},
			wantWrites: []string{failedPatch, deletion + "8"},
			wantEvents: []string{failedEvent + "deleted"},
		},
		"failed, and the conditions say so already": {
			server: namespaceServer{namespace: failed().
				Condition(condition(v1alpha1.ConditionInitializing, "False",
					v1alpha1.ReasonFailed, "Forbidden: no quota left")).
				Condition(condition("rbac.corp.com/Initialized", "False",
					v1alpha1.ReasonPending, "the initializer has not removed its name from the list yet")).Obj()},
			wantWrites: []string{deletion + "7"},
		},
		"failed, and there is a reason not to delete it": {
			server:     namespaceServer{namespace: namespace().Pending(rbac).Result(failure).Obj()},
			wantWrites: []string{failedPatch},
			wantEvents: []string{failedEvent + "not deleted: it lacks annotation nslifecycle.dev/initializers, " +
				"so it was not created to be initialized"},
		},
		"failed, and protected from deletion": {
			server: namespaceServer{
				namespace: failed().Label(v1alpha1.LabelDeletionProtection, "enabled").Obj(),
			},
			wantWrites: []string{failedPatch},
			wantEvents: []string{failedEvent + "not deleted: label nslifecycle.dev/deletion-protection protects it; " +
				"to let it go, run: kubectl label namespace x nslifecycle.dev/deletion-protection-"},
		},
		"failed, and it changes before every attempt": {
			server:     namespaceServer{namespace: failed().Obj(), deleteError: errConflict},
			wantWrites: []string{failedPatch, deletion + "8", deletion + "7", deletion + "7", deletion},
			wantEvents: []string{failedEvent + "deleted"},
		},
		"failed, and gone since": {
			server:     namespaceServer{namespace: failed().Obj(), deleteError: errGone},
			wantWrites: []string{failedPatch, deletion + "8"},
			wantEvents: []string{failedEvent + "deleted"},
		},
		"failed, and it cannot be deleted": {
			server:     namespaceServer{namespace: failed().Obj(), deleteError: errOutage},
			wantWrites: []string{failedPatch, deletion + "8"},
			wantEvents: []string{failedEvent + "deleted"},
			wantError:  `deleting namespace "x", whose initialization failed: ` + errOutage.Error(),
		},

		// The label. What is to be done next is done when the repair comes back.
		"the label disagrees with the list": {
			server: namespaceServer{namespace: failed().Label(v1alpha1.LabelInitializing, "yes").Obj()},
			wantWrites: []string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":"true"},"resourceVersion":"7"}}`},
			wantEvents: []string{`Warning InitializationRepaired Set label nslifecycle.dev/initializing to "true" again: ` +
				"initializers are pending"},
		},
		"there are no labels at all": {
			server: namespaceServer{namespace: withoutLabels(failed())},
			wantWrites: []string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":"true"},"resourceVersion":"7"}}`},
			wantEvents: []string{`Warning InitializationRepaired Set label nslifecycle.dev/initializing to "true" again: ` +
				"initializers are pending"},
		},
		"the label is there without a list": {
			server: namespaceServer{namespace: namespace().Label(v1alpha1.LabelInitializing, "true").Label("app", "web").Obj()},
			wantWrites: []string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":null},"resourceVersion":"7"}}`},
			wantEvents: []string{"Warning InitializationRepaired Removed label nslifecycle.dev/initializing: " +
				"no initializer is pending, and the label alone would keep the namespace shut for ever"},
		},
		"the label is there with a list of blanks, which goes with it": {
			server: namespaceServer{namespace: namespace().Initializers(rbac).Result(failure).
				Annotation(v1alpha1.AnnotationPendingInitializers, " , ").Obj()},
			wantWrites: []string{labelPatch + `{"metadata":{` +
				`"annotations":{"nslifecycle.dev/initialization-result":null,"nslifecycle.dev/pending-initializers":null},` +
				`"labels":{"nslifecycle.dev/initializing":null},"resourceVersion":"7"}}`},
			wantEvents: []string{"Warning InitializationRepaired Removed label nslifecycle.dev/initializing: " +
				"no initializer is pending, and the label alone would keep the namespace shut for ever"},
		},
		"the label cannot be repaired": {
			server: namespaceServer{
				namespace:  namespace().Label(v1alpha1.LabelInitializing, "").Obj(),
				patchError: errOutage,
			},
			wantWrites: []string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":null},"resourceVersion":"7"}}`},
			wantError: `repairing label nslifecycle.dev/initializing of namespace "x": ` + errOutage.Error(),
		},
		"the label has changed since it was read": {
			server: namespaceServer{
				namespace:  namespace().Label(v1alpha1.LabelInitializing, "").Obj(),
				patchError: errConflict,
			},
			wantWrites: []string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":null},"resourceVersion":"7"}}`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			recorder := events.NewFakeRecorder(10)
			reconciler := &NamespaceReconciler{
				Injector: ServerInjects{},
				Client:   test.server.client(), Live: test.server.client(), Recorder: recorder,
				Clock: clocktesting.NewFakePassiveClock(now), SystemNamespace: systemNamespace,
			}
			result, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "x"}})
			g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: test.want}))
			if test.wantError == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(test.wantError))
			}
			g.Expect(test.server.writes).To(Equal(test.wantWrites))
			g.Expect(recorded(recorder)).To(Equal(test.wantEvents))
		})
	}
}

// Initializers that take no time are not slowed down by writes that tell of each.
func TestNamespaceReconcileWritesProgressAtIntervals(t *testing.T) {
	const interval = time.Second
	g := NewWithT(t)
	waitingFor := func(names ...string) *corev1.Namespace {
		return wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").
			Initializers("a.corp.com", "b.corp.com", "c.corp.com", "d.corp.com").Pending(names...).Obj()
	}
	server := &namespaceServer{namespace: waitingFor("a.corp.com")}
	clock := clocktesting.NewFakePassiveClock(now)
	reconciler := &NamespaceReconciler{
		Injector: ServerInjects{},
		Client:   server.client(), Live: server.client(), Recorder: events.NewFakeRecorder(10), Clock: clock,
		SystemNamespace: systemNamespace, ProgressInterval: interval,
	}
	// pass returns how often something was written, and when to come back.
	pass := func(passed time.Duration, namespace *corev1.Namespace) (int, time.Duration) {
		clock.SetTime(clock.Now().Add(passed))
		namespace.Status = server.namespace.Status
		server.namespace, server.writes = namespace, nil
		reconciler.births.observe(namespace, false, clock.Now())
		result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
		g.Expect(err).NotTo(HaveOccurred())
		if len(server.writes) > 0 {
			state := initialization.Observe(namespace)
			namespace.Status.Conditions = initialization.ComputeConditions(&corev1.Namespace{}, state, metav1.NewTime(now))
		}
		return len(server.writes), result.RequeueAfter
	}
	expect := func(passed time.Duration, namespace *corev1.Namespace, writes int, again time.Duration) {
		t.Helper()
		gotWrites, gotAgain := pass(passed, namespace)
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
	g.Expect(reconciler.births.byUID).To(BeEmpty())
}

// The namespaces that the cluster or the operator cannot do without.
func TestNamespaceReconcileNeverDeletesExemptNamespaces(t *testing.T) {
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease", systemNamespace} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &namespaceServer{namespace: wrappers.MakeNamespace(name).UID("x-uid").ResourceVersion("7").
				Initializers("rbac.corp.com").Result(`{"status":"Failure","message":"no"}`).Obj()}
			recorder := events.NewFakeRecorder(10)
			reconciler := &NamespaceReconciler{
				Injector: ServerInjects{},
				Client:   server.client(), Live: server.client(), Recorder: recorder,
				Clock: clocktesting.NewFakePassiveClock(now), SystemNamespace: systemNamespace,
			}
			_, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(server.writes).To(ConsistOf(ContainSubstring("Initializing=False/Failed")))
			g.Expect(recorded(recorder)).To(ConsistOf(
				"Warning InitializationFailed no; the namespace is not deleted: it is never initialized"))
		})
	}
}

func TestEventNotesFitIntoAnEvent(t *testing.T) {
	const limit = 1024
	tests := map[string]struct{ note, want string }{
		"short":              {note: "short", want: "short"},
		"100 % of a format":  {note: "100 %d", want: "100 %d"},
		"just short enough":  {note: strings.Repeat("x", limit), want: strings.Repeat("x", limit)},
		"too long":           {note: strings.Repeat("x", limit+1), want: strings.Repeat("x", limit-3) + "..."},
		"cut at a character": {note: strings.Repeat("x", limit-5) + "ßßßß", want: strings.Repeat("x", limit-5) + "ß..."},
		"cut in a character": {note: strings.Repeat("x", limit-4) + "ßßßß", want: strings.Repeat("x", limit-4) + "..."},
		"cut late in a long character": {
			note: strings.Repeat("x", limit-6) + "𝄞𝄞𝄞", want: strings.Repeat("x", limit-6) + "...",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			recorder := events.NewFakeRecorder(1)
			reconciler := &NamespaceReconciler{Injector: ServerInjects{}, Recorder: recorder}
			reconciler.event(wrappers.MakeNamespace("x").Obj(), corev1.EventTypeNormal, "Reason", test.note)
			g.Expect(recorded(recorder)).To(Equal([]string{"Normal Reason " + test.want}))
			g.Expect(len(test.want)).To(BeNumerically("<=", limit))
			g.Expect(utf8.ValidString(test.want)).To(BeTrue())
		})
	}
}

func TestInitializationChanged(t *testing.T) {
	// settled is a namespace that nothing has to be done about.
	settled := func() *wrappers.NamespaceWrapper {
		return wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("8").Condition(corev1.NamespaceCondition{
			Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonNotRequired,
			Message: "this namespace has no initializers to wait for", LastTransitionTime: metav1.NewTime(now),
		})
	}
	before := settled().ResourceVersion("7").Obj()
	failed := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("8").Initializers("rbac.corp.com").
		Result(`{"status":"Failure","message":"no"}`).
		Condition(corev1.NamespaceCondition{
			Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionFalse,
			Reason: v1alpha1.ReasonFailed, Message: "no",
		}).
		Condition(corev1.NamespaceCondition{
			Type: "rbac.corp.com/Initialized", Status: corev1.ConditionFalse,
			Reason: v1alpha1.ReasonPending, Message: "the initializer has not removed its name from the list yet",
		})

	tests := map[string]struct {
		after client.Object
		want  bool
	}{
		"nothing that matters":       {after: settled().Label("app", "web").Obj()},
		"a condition of others":      {after: settled().Condition(corev1.NamespaceCondition{Type: "corp.com/Ready"}).Obj()},
		"nothing at all, a resync":   {after: before.DeepCopy(), want: true},
		"recreated":                  {after: settled().UID("another-uid").Obj(), want: true},
		"the list":                   {after: settled().Initializers("rbac.corp.com").Obj(), want: true},
		"the label":                  {after: settled().Label(v1alpha1.LabelInitializing, "true").Obj(), want: true},
		"the condition has gone":     {after: withoutConditions(settled()), want: true},
		"the deletion":               {after: settled().Terminating(now).Obj()},
		"the deletion, and the list": {after: settled().Initializers("rbac.corp.com").Terminating(now).Obj()},
		"another kind":               {after: &corev1.Pod{}, want: true},
		// Also where the conditions say so: the deletion may have failed.
		"failed": {after: failed.Obj(), want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			passes := initializationChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: test.after})
			g.Expect(passes).To(Equal(test.want))
		})
	}
}

// The request that repairs does nothing else, and takes the place of one that was to come later.
func TestInitializationChangedLetsARepairPass(t *testing.T) {
	g := NewWithT(t)
	broken := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Initializers("rbac.corp.com").Obj()
	broken.Status.Conditions = initialization.ComputeConditions(broken, initialization.Observe(broken), metav1.NewTime(now))
	repaired := broken.DeepCopy()
	repaired.ResourceVersion = "8"
	delete(broken.Labels, v1alpha1.LabelInitializing)
	passes := initializationChanged().Update(event.UpdateEvent{ObjectOld: broken, ObjectNew: repaired})
	g.Expect(passes).To(BeTrue())
	later := repaired.DeepCopy()
	later.ResourceVersion = "9"
	passes = initializationChanged().Update(event.UpdateEvent{ObjectOld: repaired, ObjectNew: later})
	g.Expect(passes).To(BeFalse())
}

func TestInitializationChangedForOtherEvents(t *testing.T) {
	g := NewWithT(t)
	namespace := wrappers.MakeNamespace("x").Obj()
	g.Expect(initializationChanged().Create(event.CreateEvent{Object: namespace})).To(BeTrue())
	g.Expect(initializationChanged().Generic(event.GenericEvent{Object: namespace})).To(BeTrue())
	g.Expect(initializationChanged().Delete(event.DeleteEvent{Object: namespace})).To(BeFalse())
}

func recorded(recorder *events.FakeRecorder) []string {
	var notes []string
	for len(recorder.Events) > 0 {
		notes = append(notes, <-recorder.Events)
	}
	return notes
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
