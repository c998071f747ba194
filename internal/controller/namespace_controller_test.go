// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const systemNamespace = "nslifecycle-system"

// namespaceServer is a fake API server with one Namespace and a configuration that registers its
// initializers. It records writes. The integration tests cover how the API server handles the writes.
type namespaceServer struct {
	namespace *corev1.Namespace
	// configuration registers the initializers. By default, they are registered without settings.
	configuration *wrappers.ConfigurationWrapper
	// These are the errors that requests return.
	getError, patchError, statusError, deleteError error

	writes []string
}

func (s *namespaceServer) client() client.Client {
	return newFakeClient(interceptor.Funcs{
		Get: s.get, List: s.list, Patch: s.patch, SubResourcePatch: s.patchStatus, Delete: s.delete,
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

func (s *namespaceServer) list(
	_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption,
) error {
	if configurations, ok := list.(*v1alpha1.NamespaceInitializerConfigurationList); ok {
		configuration := s.configuration
		if configuration == nil {
			configuration = wrappers.MakeConfiguration("c").Initializers("rbac.corp.com").
				Initializers(initialization.ParseState(s.namespace).All...)
		}
		configurations.Items = append(configurations.Items, *configuration.Obj())
	}
	return nil
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
	if s.statusError == nil { // Like the API server, return the updated object.
		object.SetResourceVersion("8")
		status := &object.(*corev1.Namespace).Status
		status.Conditions = slices.DeleteFunc(status.Conditions, func(old corev1.NamespaceCondition) bool {
			return nscondition.Find(&body, old.Type) != nil
		})
		status.Conditions = append(status.Conditions, body.Status.Conditions...)
		s.namespace.ResourceVersion = "8"
	}
	return s.statusError
}

func (s *namespaceServer) delete(
	ctx context.Context, _ client.WithWatch, object client.Object, opts ...client.DeleteOption,
) error {
	if _, ok := ctx.Deadline(); !ok {
		return errors.New("a request that webhooks can delay has no deadline")
	}
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
		// unconditionalPatch is the last attempt after repeated conflicts.
		unconditionalPatch = statusPatch + "without resourceVersion " +
			"Initializing=False/Failed rbac.corp.com/Initialized=False/Pending"
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
		server     namespaceServer
		want       time.Duration
		wantWrites []string
		wantEvents []string
		wantError  string
	}{
		"the namespace does not exist": {server: namespaceServer{getError: errNotFound}},
		"the namespace cannot be read": {
			server:    namespaceServer{getError: errOutage},
			wantError: errOutage.Error(),
		},
		"a terminating namespace that would otherwise require every action": {
			server: namespaceServer{namespace: failed().Label(v1alpha1.LabelInitializing, "yes").Terminating(now).Obj()},
		},
		"initialization is not required": {
			server:     namespaceServer{namespace: namespace().Obj()},
			wantWrites: []string{statusPatch + "Initializing=False/NotRequired"},
		},
		"nothing has changed": {
			server: namespaceServer{namespace: settled(namespace())},
		},
		"the namespace has just been created": {
			server: namespaceServer{namespace: namespace().Initializers(rbac, quota).Obj()},
			wantWrites: []string{statusPatch + "Initializing=True/Pending " +
				"rbac.corp.com/Initialized=False/Pending quota.corp.com/Initialized=False/Pending"},
			wantEvents: []string{"Normal Initializing ... rbac.corp.com (1 of 2)"},
		},
		"one initializer has completed; no Event is recorded": {
			server: namespaceServer{namespace: namespace().Initializers(rbac, quota).Pending(quota).
				Condition(condition(v1alpha1.ConditionInitializing, "True",
					v1alpha1.ReasonPending, "another initializer")).Obj()},
			wantWrites: []string{statusPatch + "Initializing=True/Pending " +
				"rbac.corp.com/Initialized=True/Completed quota.corp.com/Initialized=False/Pending"},
		},
		"all initializers have completed": {
			server: namespaceServer{namespace: namespace().Initializers(rbac).Pending().Obj()},
			wantWrites: []string{statusPatch + "Initializing=False/Completed " +
				"rbac.corp.com/Initialized=True/Completed"},
			wantEvents: []string{"Normal Initialized"},
		},
		"only the condition of an initializer changes; no Event is recorded": {
			server:     namespaceServer{namespace: onlyInitializing(settled(namespace().Initializers(rbac).Pending()))},
			wantWrites: []string{statusPatch + "rbac.corp.com/Initialized=True/Completed"},
		},
		"an invalid result": {
			server: namespaceServer{namespace: namespace().Initializers(rbac).Result(`{"status":"Success"}`).Obj()},
			wantWrites: []string{statusPatch + "Initializing=True/Pending " +
				"rbac.corp.com/Initialized=False/Pending"},
			wantEvents: []string{"Warning InvalidInitializationResult ... annotation nslifecycle.dev/initialization-result is ignored" +
				` ... "Success" ... nslifecycle.dev/pending-initializers`},
		},
		"the status cannot be written": {
			server:     namespaceServer{namespace: failed().Obj(), statusError: errOutage},
			wantWrites: []string{failedPatch},
			wantError:  `failed to update the status of namespace "x": ` + errOutage.Error(),
		},
		"a webhook denies the status update with the code 409": {
			server:     namespaceServer{namespace: failed().Obj(), statusError: errInUse},
			wantWrites: []string{failedPatch},
			wantError:  `failed to update the status of namespace "x": ` + errInUse.Error(),
		},
		"the namespace was recreated": {
			server:     namespaceServer{namespace: failed().Obj(), statusError: errRecreated},
			want:       conflictRetry,
			wantWrites: []string{failedPatch, failedPatch, failedPatch, unconditionalPatch},
		},
		"the namespace changes before every attempt": {
			server:     namespaceServer{namespace: failed().Obj(), statusError: errConflict},
			want:       conflictRetry,
			wantWrites: []string{failedPatch, failedPatch, failedPatch, unconditionalPatch},
		},
		"the namespace was deleted": {
			server:     namespaceServer{namespace: failed().Obj(), statusError: errNotFound},
			wantWrites: []string{failedPatch},
		},

		// Failed initializations.
		"failed; the namespace is deleted at the resource version of the status write": {
			server:     namespaceServer{namespace: failed().Obj()},
			wantWrites: []string{failedPatch, deletion + "8"},
			wantEvents: []string{failedEvent + "will be deleted"},
		},
		"failed, and the conditions are already set": {
			server:     namespaceServer{namespace: settled(failed())},
			wantWrites: []string{deletion + "7"},
		},
		"failed, and the namespace must not be deleted": {
			server:     namespaceServer{namespace: namespace().Pending(rbac).Result(failure).Obj()},
			wantWrites: []string{failedPatch},
			wantEvents: []string{failedEvent + "is not deleted ... annotation nslifecycle.dev/initializers"},
		},
		"failed, and protected from deletion": {
			server: namespaceServer{
				namespace: failed().Label(v1alpha1.LabelDeletionProtection, "enabled").Obj(),
			},
			wantWrites: []string{failedPatch},
			wantEvents: []string{failedEvent + "is not deleted ... kubectl label namespace x nslifecycle.dev/deletion-protection-"},
		},
		"failed, and the namespace changes before every attempt": {
			server:     namespaceServer{namespace: failed().Obj(), deleteError: errConflict},
			wantWrites: []string{failedPatch, deletion + "8", deletion + "8", deletion + "8", deletion}, want: conflictRetry,
			wantEvents: []string{failedEvent + "will be deleted"},
		},
		"failed, and a webhook denies the deletion with the code 409": {
			server:     namespaceServer{namespace: failed().Obj(), deleteError: errInUse},
			wantWrites: []string{failedPatch, deletion + "8"},
			wantEvents: []string{failedEvent + "will be deleted"},
			wantError:  `failed to delete namespace "x", whose initialization failed: ` + errInUse.Error(),
		},
		"failed, and another client has deleted the namespace": {
			server:     namespaceServer{namespace: failed().Obj(), deleteError: errNotFound},
			wantWrites: []string{failedPatch, deletion + "8"},
			wantEvents: []string{failedEvent + "will be deleted"},
		},
		"failed, and the namespace cannot be deleted": {
			server:     namespaceServer{namespace: failed().Obj(), deleteError: errOutage},
			wantWrites: []string{failedPatch, deletion + "8"},
			wantEvents: []string{failedEvent + "will be deleted"},
			wantError:  `failed to delete namespace "x", whose initialization failed: ` + errOutage.Error(),
		},

		// Repair of the label. The watch event for the repair triggers all other actions.
		"the label is inconsistent with the list": {
			server: namespaceServer{namespace: failed().Label(v1alpha1.LabelInitializing, "yes").Obj()},
			wantWrites: []string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":"true"},"resourceVersion":"7"}}`},
			wantEvents: []string{`Warning InitializationRepaired ... nslifecycle.dev/initializing to "true"`},
		},
		"no labels": {
			server: namespaceServer{namespace: withoutLabels(failed())},
			wantWrites: []string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":"true"},"resourceVersion":"7"}}`},
			wantEvents: []string{`Warning InitializationRepaired ... nslifecycle.dev/initializing to "true"`},
		},
		"a label without a list": {
			server: namespaceServer{namespace: namespace().Label(v1alpha1.LabelInitializing, "true").Label("app", "web").Obj()},
			wantWrites: []string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":null},"resourceVersion":"7"}}`},
			wantEvents: []string{"Warning InitializationRepaired ... Removed the label nslifecycle.dev/initializing"},
		},
		"a label with a list that contains only spaces; both are removed": {
			server: namespaceServer{namespace: namespace().Initializers(rbac).Result(failure).
				Annotation(v1alpha1.AnnotationPendingInitializers, " , ").Obj()},
			wantWrites: []string{labelPatch + `{"metadata":{` +
				`"annotations":{"nslifecycle.dev/initialization-result":null,"nslifecycle.dev/pending-initializers":null},` +
				`"labels":{"nslifecycle.dev/initializing":null},"resourceVersion":"7"}}`},
			wantEvents: []string{"Warning InitializationRepaired ... Removed the label nslifecycle.dev/initializing"},
		},
		"the label cannot be repaired": {
			server: namespaceServer{
				namespace:  namespace().Label(v1alpha1.LabelInitializing, "").Obj(),
				patchError: errOutage,
			},
			wantWrites: []string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":null},"resourceVersion":"7"}}`},
			wantError: `failed to repair label nslifecycle.dev/initializing of namespace "x": ` + errOutage.Error(),
		},
		"the namespace changes before every attempt to repair the label": {
			server: namespaceServer{
				namespace:  namespace().Label(v1alpha1.LabelInitializing, "").Obj(),
				patchError: errConflict,
			},
			wantWrites: slices.Repeat([]string{labelPatch +
				`{"metadata":{"labels":{"nslifecycle.dev/initializing":null},"resourceVersion":"7"}}`}, 4),
			want: conflictRetry,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			recorder := events.NewFakeRecorder(10)
			reconciler := &NamespaceReconciler{
				Client: test.server.client(), Live: test.server.client(), Recorder: recorder,
				Clock: clocktesting.NewFakePassiveClock(now), SystemNamespace: systemNamespace,
			}
			result, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: apitypes.NamespacedName{Name: "x"}})
			g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: test.want}))
			if test.wantError == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(test.wantError))
			}
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
	server := &namespaceServer{namespace: waitingFor("a.corp.com")}
	clock := clocktesting.NewFakePassiveClock(now)
	reconciler := &NamespaceReconciler{
		Client: server.client(), Live: server.client(), Recorder: events.NewFakeRecorder(10), Clock: clock,
		SystemNamespace: systemNamespace, ProgressInterval: interval,
	}
	// reconcile returns the number of writes, and RequeueAfter.
	reconcile := func(elapsed time.Duration, namespace *corev1.Namespace) (int, time.Duration) {
		clock.SetTime(clock.Now().Add(elapsed))
		namespace.Status = server.namespace.Status
		server.namespace, server.writes = namespace, nil
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
	for name, test := range map[string]struct {
		pending []string
		again   time.Duration
		writes  int
	}{
		"the start":      {pending: []string{"a.corp.com"}, again: busyDelay},
		"the completion": {writes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &namespaceServer{namespace: wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").
				Initializers("a.corp.com").Pending(test.pending...).Obj()}
			reconciler := &NamespaceReconciler{
				Client: server.client(), Live: server.client(), Recorder: events.NewFakeRecorder(10),
				Clock: clocktesting.NewFakePassiveClock(now), SystemNamespace: systemNamespace,
				ProgressLimiter: flowcontrol.NewFakeNeverRateLimiter(),
			}
			result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.RequeueAfter).To(Equal(test.again))
			g.Expect(server.writes).To(HaveLen(test.writes))
		})
	}
}

func TestNamespaceReconcileDoesNotLimitSkips(t *testing.T) {
	g := NewWithT(t)
	server := &namespaceServer{
		namespace:     wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Initializers("a.corp.com").Obj(),
		configuration: wrappers.MakeConfiguration("c").Initializers("b.corp.com"),
	}
	passive := clocktesting.NewFakePassiveClock(now)
	reconciler := &NamespaceReconciler{
		Client: server.client(), Live: server.client(), Recorder: events.NewFakeRecorder(10),
		Clock: passive, SystemNamespace: systemNamespace, ProgressLimiter: flowcontrol.NewFakeNeverRateLimiter(),
	}
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
			server := &namespaceServer{namespace: wrappers.MakeNamespace(name).UID("x-uid").ResourceVersion("7").
				Initializers("rbac.corp.com").Result(`{"status":"Failure","message":"no"}`).Obj()}
			recorder := events.NewFakeRecorder(10)
			reconciler := &NamespaceReconciler{
				Client: server.client(), Live: server.client(), Recorder: recorder,
				Clock: clocktesting.NewFakePassiveClock(now), SystemNamespace: systemNamespace,
			}
			_, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: apitypes.NamespacedName{Name: name}})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(server.writes).To(ConsistOf(ContainSubstring("Initializing=False/Failed")))
			g.Expect(recorded(recorder)).To(matchEvents("Warning InitializationFailed no; ... not deleted ... exempt"))
		})
	}
}

func TestEventNotesFitIntoAnEvent(t *testing.T) {
	const limit = 1024
	tests := map[string]struct{ note, want string }{
		"a short note":                          {note: "short", want: "short"},
		"a note with a percent sign":            {note: "100 %d", want: "100 %d"},
		"a note with the maximum length":        {note: strings.Repeat("x", limit), want: strings.Repeat("x", limit)},
		"a note that is too long":               {note: strings.Repeat("x", limit+1), want: strings.Repeat("x", limit-3) + "..."},
		"truncated after a character":           {note: strings.Repeat("x", limit-5) + "ßßßß", want: strings.Repeat("x", limit-5) + "ß..."},
		"truncated inside a two-byte character": {note: strings.Repeat("x", limit-4) + "ßßßß", want: strings.Repeat("x", limit-4) + "..."},
		"truncated inside a four-byte character": {
			note: strings.Repeat("x", limit-6) + "𝄞𝄞𝄞", want: strings.Repeat("x", limit-6) + "...",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			recorder := events.NewFakeRecorder(1)
			recordEvents(recorder, wrappers.MakeNamespace("x").Obj(),
				[]initialization.Event{{Type: corev1.EventTypeNormal, Reason: "Reason", Note: test.note}})
			g.Expect(recorded(recorder)).To(Equal([]string{"Normal Reason " + test.want}))
			g.Expect(len(test.want)).To(BeNumerically("<=", limit))
			g.Expect(utf8.ValidString(test.want)).To(BeTrue())
		})
	}
}

func TestInitializationChanged(t *testing.T) {
	// unchanged returns a namespace that requires no action.
	unchanged := func() *wrappers.NamespaceWrapper {
		return &wrappers.NamespaceWrapper{
			Namespace: *settled(wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("8")),
		}
	}
	before := unchanged().ResourceVersion("7").Obj()
	failed := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("8").Initializers("rbac.corp.com").
		Result(`{"status":"Failure","message":"no"}`)

	tests := map[string]struct {
		before, after client.Object
		want          bool
	}{
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
}

// The reconciliation that repairs the label does nothing else, and it replaces a delayed request.
// Therefore, the repair must trigger another reconciliation.
func TestInitializationChangedPassesRepairs(t *testing.T) {
	g := NewWithT(t)
	broken := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Initializers("rbac.corp.com").Obj()
	broken = settled(&wrappers.NamespaceWrapper{Namespace: *broken})
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

// matchEvents matches the recorded Events in order. Each text consists of the start of an Event and
// of substrings of its note, separated by " ... ".
func matchEvents(texts ...string) types.GomegaMatcher {
	elements := make([]any, 0, len(texts))
	for _, text := range texts {
		start, rest, _ := strings.Cut(text, " ... ")
		matcher := HavePrefix(start)
		for value := range strings.SplitSeq(rest, " ... ") {
			matcher = And(matcher, ContainSubstring(value))
		}
		elements = append(elements, matcher)
	}
	return HaveExactElements(elements...)
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
			return condition.Type != v1alpha1.ConditionInitializing
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

// The resource version prevents a write of conditions that were computed from an old version of a
// Namespace.
func TestNamespaceReconcileSendsTheResourceVersion(t *testing.T) {
	g := NewWithT(t)
	namespace := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Obj()
	var body struct{ Metadata metav1.ObjectMeta }
	api := newFakeClient(interceptor.Funcs{
		Get: (&namespaceServer{namespace: namespace}).get,
		SubResourcePatch: func(
			_ context.Context, _ client.Client, _ string, object client.Object, patch client.Patch,
			_ ...client.SubResourcePatchOption,
		) error {
			data, err := patch.Data(object)
			return errors.Join(err, json.Unmarshal(data, &body))
		},
	})
	reconciler := &NamespaceReconciler{
		Client: api, Recorder: events.NewFakeRecorder(1),
		Clock: clocktesting.NewFakePassiveClock(now), SystemNamespace: systemNamespace,
	}
	_, err := reconciler.Reconcile(t.Context(), ctrl.Request{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(body.Metadata.UID).To(BeEquivalentTo("x-uid"))
	g.Expect(body.Metadata.ResourceVersion).To(Equal("7"))
}

// A user who may write Namespaces can remove the policies for a moment.
func TestNamespaceReconcileRemovesTheLabelOfAnEmptyList(t *testing.T) {
	g := NewWithT(t)
	namespace := wrappers.MakeNamespace("x").Initializers("rbac.corp.com").Pending("").ResourceVersion("7").Label("app", "web").Label(
		v1alpha1.LabelInitializing, "true").Obj()
	server := &namespaceServer{namespace: namespace}
	recorder := events.NewFakeRecorder(10)
	reconciler := &NamespaceReconciler{
		Client: server.client(), Live: server.client(), Recorder: recorder, Clock: clocktesting.NewFakePassiveClock(now),
	}
	_, err := reconciler.Reconcile(t.Context(), ctrl.Request{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.writes).To(ConsistOf(ContainSubstring(`"nslifecycle.dev/initializing":null`)))
	g.Expect(recorder.Events).To(HaveLen(1))
}
