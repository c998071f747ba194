// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// waitServer answers for one Namespace and the configurations, as the cache shows them and as
// they are, and records in words what is written.
type waitServer struct {
	cached, live                *corev1.Namespace
	cachedNames, liveNames      []*wrappers.ConfigurationWrapper
	listError, getError, refuse error

	writes []string
}

func (s *waitServer) overruler(recorder events.EventRecorder, passive *clocktesting.FakePassiveClock) *Overruler {
	list := func(configurations *[]*wrappers.ConfigurationWrapper, err *error) func(
		context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			if namespaces, isNamespaces := list.(*corev1.NamespaceList); isNamespaces {
				namespaces.Items = append(namespaces.Items, *s.cached)
				return nil
			}
			for _, configuration := range *configurations {
				items := &list.(*v1alpha1.NamespaceInitializerConfigurationList).Items
				*items = append(*items, *configuration.Obj())
			}
			return *err
		}
	}
	var none error
	return &Overruler{
		Client: newFakeClient(interceptor.Funcs{List: list(&s.cachedNames, &none), SubResourcePatch: s.patch}),
		Live: newFakeClient(interceptor.Funcs{
			List: list(&s.liveNames, &s.listError),
			Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
				s.live.DeepCopyInto(object.(*corev1.Namespace))
				return s.getError
			},
		}),
		Recorder: recorder, Clock: passive,
	}
}

func (s *waitServer) patch(
	_ context.Context, _ client.Client, subResource string, object client.Object, patch client.Patch,
	_ ...client.SubResourcePatchOption,
) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	var body struct {
		Metadata struct {
			UID, ResourceVersion string
			Annotations          map[string]*string
		}
		Status corev1.NamespaceStatus
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return err
	}
	write := fmt.Sprintf("%s uid=%s version=%s", subResource, body.Metadata.UID, body.Metadata.ResourceVersion)
	for key, value := range body.Metadata.Annotations {
		write += fmt.Sprintf(" %s=%s", key[len(v1alpha1.Prefix):], ptr.Deref(value, "null"))
	}
	for _, condition := range body.Status.Conditions {
		write += fmt.Sprintf(" %s=%s/%s", condition.Type, condition.Status, condition.Reason)
	}
	s.writes = append(s.writes, write)
	return s.refuse
}

func TestOverruler(t *testing.T) {
	const (
		rbac, quota = "rbac.corp.com", "quota.corp.com"
		skip        = "status uid=x-uid version=8 pending-initializers=quota.corp.com " +
			"rbac.corp.com/Initialized=False/TimedOut"
		timedOut = `Warning InitializerTimedOut rbac.corp.com was skipped: not done within 30s of its turn, the time-out ` +
			`in NamespaceInitializerConfiguration "c"`
	)
	waiting := func() *wrappers.NamespaceWrapper {
		return wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("8").Initializers(rbac, quota).
			Condition(corev1.NamespaceCondition{
				Type: v1alpha1.ConditionInitializerTurn, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonPending,
				Message: "it is the turn of rbac.corp.com, which has a time-out", LastTransitionTime: metav1.NewTime(now.Add(-time.Minute)),
			})
	}
	configured := func(seconds int32, policy v1alpha1.InitializerFailurePolicy) []*wrappers.ConfigurationWrapper {
		configuration := wrappers.MakeConfiguration("c").Initializers(rbac, quota)
		if seconds > 0 {
			configuration.NamespaceInitializerConfiguration.Initializers[0].TimeoutSeconds = ptr.To(seconds)
			configuration.NamespaceInitializerConfiguration.Initializers[0].FailurePolicy = &policy
		}
		return []*wrappers.ConfigurationWrapper{configuration}
	}
	ignore, others := configured(30, v1alpha1.InitializerIgnore), []*wrappers.ConfigurationWrapper{
		wrappers.MakeConfiguration("d").Initializers(quota),
	}

	tests := map[string]struct {
		server waitServer
		// isAbsent says that the initializers have been missing for long already.
		isAbsent bool
		// isBack says that the absence of the first one is over.
		isBack     bool
		want       time.Duration
		wantWrites []string
		wantEvents []string
		wantError  string
	}{
		"no time-out": {server: waitServer{cachedNames: configured(0, "")}},
		"time is left": {
			server: waitServer{cachedNames: configured(120, v1alpha1.InitializerFail)}, want: 61 * time.Second,
		},
		"over, Ignore": {
			server:     waitServer{cachedNames: ignore, liveNames: ignore},
			wantWrites: []string{skip}, wantEvents: []string{timedOut},
		},
		"over, Fail": {
			server: waitServer{cachedNames: ignore, liveNames: configured(30, v1alpha1.InitializerFail)},
			wantWrites: []string{`status uid=x-uid version=8 initialization-result={"kind":"Status","apiVersion":"v1",` +
				`"metadata":{},"status":"Failure","message":"initializer rbac.corp.com: not done within 30s of its turn, ` +
				`the time-out in NamespaceInitializerConfiguration \"c\"","reason":"Timeout","code":504}`},
		},
		"over, and the last one": {
			server: waitServer{
				cachedNames: ignore, liveNames: ignore, live: waiting().Pending(rbac).Obj(),
			},
			wantWrites: []string{"status uid=x-uid version=8 pending-initializers= " +
				"rbac.corp.com/Initialized=False/TimedOut"},
			wantEvents: []string{timedOut},
		},
		// What the cache says is not enough.
		"over by the cache, and longer now": {
			server: waitServer{cachedNames: ignore, liveNames: configured(120, v1alpha1.InitializerIgnore)},
			want:   61 * time.Second,
		},
		"over by the cache, and without end now": {
			server: waitServer{cachedNames: ignore, liveNames: configured(0, "")},
		},
		"over by the cache, and done now": {
			server: waitServer{cachedNames: ignore, liveNames: ignore, live: waiting().Pending(quota).Obj()},
		},
		"over by the cache, and being deleted now": {
			server: waitServer{cachedNames: ignore, liveNames: ignore, live: waiting().Terminating(now).Obj()},
		},
		"over by the cache, and failed now": {
			server: waitServer{
				cachedNames: ignore, liveNames: ignore, live: waiting().Result(`{"status":"Failure"}`).Obj(),
			},
		},
		"over by the cache, and another namespace now": {
			server: waitServer{cachedNames: ignore, liveNames: ignore, live: waiting().UID("y").Obj()},
		},
		"over by the cache, and label and list disagree now": {
			server: waitServer{
				cachedNames: ignore, liveNames: ignore, live: waiting().Label(v1alpha1.LabelInitializing, "no").Obj(),
			},
		},
		"the configurations cannot be read": {
			server:    waitServer{cachedNames: ignore, liveNames: ignore, listError: errOutage},
			wantError: "listing the configurations: " + errOutage.Error(),
		},
		"the namespace cannot be read": {
			server:    waitServer{cachedNames: ignore, liveNames: ignore, getError: errOutage},
			wantError: `reading namespace "x": ` + errOutage.Error(),
		},
		"the namespace has gone": {server: waitServer{cachedNames: ignore, liveNames: ignore, getError: errGone}},
		"it changes before every attempt": {
			server:     waitServer{cachedNames: ignore, liveNames: ignore, refuse: errConflict},
			wantWrites: []string{skip, skip, skip, strings.Replace(skip, "version=8", "version=", 1)}, want: conflictRetry,
		},
		"the write is refused": {
			server:     waitServer{cachedNames: ignore, liveNames: ignore, refuse: errOutage},
			wantWrites: []string{skip},
			wantError: `failed to remove initializers from the pending list of namespace "x": failed to update the status of namespace "x": ` +
				errOutage.Error(),
		},

		"registered nowhere, as first seen": {
			server: waitServer{cachedNames: others, liveNames: others}, want: initialization.DeregistrationDelay,
		},
		"registered nowhere for long": {
			server: waitServer{cachedNames: others, liveNames: others}, isAbsent: true,
			wantWrites: []string{"status uid=x-uid version=8 pending-initializers=quota.corp.com " +
				"rbac.corp.com/Initialized=False/Deregistered"},
			wantEvents: []string{"Warning InitializerDeregistered rbac.corp.com was skipped: no " +
				"NamespaceInitializerConfiguration names the initializer any more"},
		},
		"all of them registered nowhere for long": {
			server: waitServer{}, isAbsent: true,
			wantWrites: []string{"status uid=x-uid version=8 pending-initializers= " +
				"rbac.corp.com/Initialized=False/Deregistered quota.corp.com/Initialized=False/Deregistered"},
			wantEvents: []string{
				"Warning InitializerDeregistered rbac.corp.com and quota.corp.com were skipped: no " +
					"NamespaceInitializerConfiguration names the initializer any more",
			},
		},
		"registered nowhere for long by the cache, and registered": {
			server: waitServer{cachedNames: others, liveNames: configured(0, "")}, isAbsent: true, isBack: true,
		},
		"registered nowhere for long by the cache, and nobody knows": {
			server: waitServer{listError: errOutage}, isAbsent: true,
			wantError: "listing the configurations: " + errOutage.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &test.server
			server.cached = waiting().ResourceVersion("7").Obj()
			if server.live == nil {
				server.live = waiting().Obj()
			}
			recorder := events.NewFakeRecorder(10)
			overruler := server.overruler(recorder, clocktesting.NewFakePassiveClock(now))
			if test.isAbsent {
				overruler.absences.since = map[string]time.Time{rbac: now.Add(-time.Minute), quota: now.Add(-time.Minute)}
			}
			after, err := overruler.Overrule(t.Context(), server.cached, initialization.Observe(server.cached))
			if test.wantError == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(test.wantError))
			}
			g.Expect(after).To(Equal(test.want))
			if test.isBack {
				g.Expect(overruler.absences.since).NotTo(HaveKey(rbac))
			}
			g.Expect(server.writes).To(Equal(test.wantWrites))
			g.Expect(recorded(recorder)).To(Equal(test.wantEvents))
		})
	}
}

// An initializer has to be missing without interruption.
func TestAbsences(t *testing.T) {
	g := NewWithT(t)
	const delay = initialization.DeregistrationDelay
	var absences absences
	look := func(at time.Duration, missing ...string) ([]string, time.Duration) {
		return absences.observe([]string{"a", "b"}, missing, now.Add(at))
	}
	expect := func(absent []string, after time.Duration) func([]string, time.Duration) {
		return func(haveAbsent []string, haveAfter time.Duration) {
			t.Helper()
			g.Expect(haveAbsent).To(Equal(absent))
			g.Expect(haveAfter).To(Equal(after))
		}
	}
	expect(nil, 0)(look(0))
	expect(nil, delay)(look(0, "a"))
	expect(nil, time.Second)(look(delay-time.Second, "a", "b"))
	expect(nil, 1)(look(delay-1, "a"))
	expect([]string{"a"}, delay)(look(delay, "a", "b")) // b was not missing in between.
	expect([]string{"a", "b"}, 0)(look(2*delay, "a", "b"))

	absences.forget("a") // A configuration has named it, for a moment at least.
	expect([]string{"b"}, delay)(look(3*delay, "a", "b"))
	expect([]string{"b"}, 0)(look(4*delay, "b"))
	expect([]string{"b"}, delay)(look(5*delay, "a", "b"))
}

func TestOverrulerTakesNoticeOfConfigurations(t *testing.T) {
	g := NewWithT(t)
	server := &waitServer{cached: wrappers.MakeNamespace("x").Initializers("rbac.corp.com").Obj()}
	overruler := server.overruler(events.NewFakeRecorder(1), clocktesting.NewFakePassiveClock(now))
	queue := workqueue.NewTypedRateLimitingQueue(newRateLimiter(time.Millisecond))
	defer queue.ShutDown()
	named := wrappers.MakeConfiguration("c").Initializers("rbac.corp.com").Obj()
	for name, notify := range map[string]func(){
		"create": func() { overruler.handler().Create(t.Context(), event.CreateEvent{Object: named}, queue) },
		"update": func() {
			overruler.handler().Update(t.Context(), event.UpdateEvent{ObjectOld: named, ObjectNew: named}, queue)
		},
		"delete": func() { overruler.handler().Delete(t.Context(), event.DeleteEvent{Object: named}, queue) },
	} {
		overruler.absences.since = map[string]time.Time{"rbac.corp.com": now, "quota.corp.com": now}
		notify()
		known := slices.Sorted(maps.Keys(overruler.absences.since))
		if name == "delete" {
			g.Expect(known).To(Equal([]string{"quota.corp.com", "rbac.corp.com"}), name)
		} else {
			g.Expect(known).To(Equal([]string{"quota.corp.com"}), name)
		}
		request, _ := queue.Get()
		g.Expect(request).To(Equal(requestFor("x")), name)
		queue.Done(request)
	}
	g.Expect(queue.Len()).To(BeZero())
	overruler.handler().Create(t.Context(), event.CreateEvent{Object: &corev1.Pod{}}, queue)
	g.Expect(queue.Len()).To(BeZero())
}

// The turn is written with the other conditions, and a conflict must not lose it.
func TestNamespaceReconcileWritesTheTurn(t *testing.T) {
	for name, test := range map[string]struct {
		refusal   error
		wantAfter time.Duration
	}{
		"written":  {wantAfter: 31 * time.Second},
		"conflict": {refusal: errConflict, wantAfter: conflictRetry},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			configuration := wrappers.MakeConfiguration("c").Initializers("rbac.corp.com")
			configuration.NamespaceInitializerConfiguration.Initializers[0].TimeoutSeconds = ptr.To[int32](30)
			server := &namespaceServer{
				namespace: wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Initializers("rbac.corp.com").
					Condition(corev1.NamespaceCondition{Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionTrue}).Obj(),
				statusError: test.refusal,
			}
			recorder := events.NewFakeRecorder(10)
			waits := &waitServer{cachedNames: []*wrappers.ConfigurationWrapper{configuration}}
			reconciler := &NamespaceReconciler{
				Injector: ServerInjects{},
				Client:   server.client(), Live: server.client(), Recorder: recorder, Clock: clocktesting.NewFakePassiveClock(now),
				Overruler: waits.overruler(recorder, clocktesting.NewFakePassiveClock(now)),
				// A turn that is limited is not progress that can wait.
				ProgressInterval: time.Hour,
			}
			reconciler.births.observe(server.namespace, false, now)
			reconciler.births.wroteProgress("x-uid", now)
			result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.RequeueAfter).To(Equal(test.wantAfter))
			g.Expect(server.writes).To(And(Not(BeEmpty()), HaveEach(HaveSuffix("nslifecycle.dev/InitializerTurn=True/Pending"))))
		})
	}
}
