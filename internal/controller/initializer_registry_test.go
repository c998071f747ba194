// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// The reconciler must read from the API server before it skips an initializer or fails an
// initialization.
func TestNamespaceReconcileDecidesAgainLive(t *testing.T) {
	const (
		rbac, quota = "rbac.corp.com", "quota.corp.com"
		skip        = "status of x: uid=x-uid version=8 rbac.corp.com/Initialized=False/TimedOut " +
			"pending-initializers=quota.corp.com"
		timedOut = "Warning InitializerTimedOut ... rbac.corp.com ... 30s ... NamespaceInitializerConfiguration " + `"c"`
	)
	registered := func(seconds int32) map[string]initialization.Registration {
		registration := initialization.Registration{Configuration: "c"}
		if seconds > 0 {
			registration.Settings.TimeoutSeconds = &seconds
		}
		return map[string]initialization.Registration{rbac: registration, quota: {}}
	}
	// waiting returns a namespace whose conditions were computed a minute ago.
	waiting := func(seconds int32) *wrappers.NamespaceWrapper {
		namespace := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("8").Initializers(rbac, quota)
		decision := initialization.Decide(namespace.Obj(),
			initialization.Registry{Registrations: registered(seconds)}, exempt, now.Add(-time.Minute))
		namespace.Status.Conditions = decision.Conditions
		if decision.TurnStart != nil {
			namespace.Annotation(v1alpha1.AnnotationTurnStartedAt, *decision.TurnStart)
		}
		return namespace
	}
	configured := func(seconds int32, policy v1alpha1.FailurePolicy) []*wrappers.ConfigurationWrapper {
		configuration := wrappers.MakeConfiguration("c").Initializers(rbac, quota)
		if seconds > 0 {
			configuration.NamespaceInitializerConfiguration.Initializers[0].TimeoutSeconds = ptr.To(seconds)
			configuration.NamespaceInitializerConfiguration.Initializers[0].FailurePolicy = policy
		}
		return []*wrappers.ConfigurationWrapper{configuration}
	}
	ignore, others := configured(30, v1alpha1.FailurePolicyIgnore), []*wrappers.ConfigurationWrapper{
		wrappers.MakeConfiguration("d").Initializers(quota),
	}
	none := []*wrappers.ConfigurationWrapper{}

	tests := map[string]struct {
		server fakeServer
		// hasNoTimeout reports whether the Namespace does not record the start of the turn.
		hasNoTimeout bool
		// isDeregistered reports whether the initializers have been deregistered for a minute.
		isDeregistered bool
		// isRegisteredAgain reports whether the first initializer is expected to be no longer recorded as
		// deregistered.
		isRegisteredAgain bool
		want              time.Duration
		wantWrites        []string
		wantEvents        []string
		wantError         string
		wantResult        []any
	}{
		"no timeout": {server: fakeServer{configurations: configured(0, "")}, hasNoTimeout: true},
		"the timeout has not expired": {
			server: fakeServer{configurations: configured(120, v1alpha1.FailurePolicyFail)}, want: 61 * time.Second,
		},
		"expired, with the failure policy Ignore": {
			server:     fakeServer{configurations: ignore, liveConfigurations: ignore},
			wantWrites: []string{skip}, wantEvents: []string{timedOut},
		},
		"expired, with the failure policy Fail": {
			server:     fakeServer{configurations: ignore, liveConfigurations: configured(30, v1alpha1.FailurePolicyFail)},
			wantWrites: []string{"status of x: uid=x-uid version=8 initialization-result=Failure/Timeout/504"},
			wantResult: []any{rbac, "30s", `NamespaceInitializerConfiguration "c"`},
		},
		"the last initializer has expired": {
			server: fakeServer{configurations: ignore, liveConfigurations: ignore, live: waiting(30).Pending(rbac).Obj()},
			wantWrites: []string{"status of x: uid=x-uid version=8 " +
				"rbac.corp.com/Initialized=False/TimedOut pending-initializers="},
			wantEvents: []string{timedOut},
		},
		// The decision must not depend on the cache alone.
		"expired in the cache, but with a longer timeout in the API server": {
			server: fakeServer{configurations: ignore, liveConfigurations: configured(120, v1alpha1.FailurePolicyIgnore)},
			want:   61 * time.Second,
		},
		"expired in the cache, but without a timeout in the API server": {
			server: fakeServer{configurations: ignore, liveConfigurations: configured(0, "")},
		},
		"expired in the cache, but completed in the API server": {
			server: fakeServer{configurations: ignore, liveConfigurations: ignore, live: waiting(30).Pending(quota).Obj()},
		},
		"expired in the cache, but terminating in the API server": {
			server: fakeServer{configurations: ignore, liveConfigurations: ignore, live: waiting(30).Terminating(now).Obj()},
		},
		"expired in the cache, but recreated in the API server": {
			server: fakeServer{configurations: ignore, liveConfigurations: ignore, live: waiting(30).UID("y").Obj()},
		},
		"expired in the cache, but with an inconsistent label in the API server": {
			server: fakeServer{
				configurations: ignore, liveConfigurations: ignore,
				live: waiting(30).Label(v1alpha1.LabelInitializing, "no").Obj(),
			},
		},
		// The next reconciliation handles the failure.
		"expired in the cache, but failed in the API server": {server: fakeServer{
			configurations: ignore, liveConfigurations: ignore,
			live: waiting(30).Result(`{"status":"Failure"}`).Label(v1alpha1.LabelDeletionProtection, "").Obj(),
		}},
		"the configurations cannot be listed": {
			server:    fakeServer{configurations: ignore, liveConfigurations: ignore, listError: errOutage},
			wantError: "failed to list NamespaceInitializerConfigurations: " + errOutage.Error(),
		},
		"the namespace cannot be read": {
			server:    fakeServer{configurations: ignore, liveConfigurations: ignore, liveError: errOutage},
			wantError: `failed to get namespace "x": ` + errOutage.Error(),
		},
		"the namespace was deleted": {server: fakeServer{configurations: ignore, liveConfigurations: ignore, liveError: errNotFound}, want: conflictRetry},
		"the namespace changes before every attempt": {
			server:     fakeServer{configurations: ignore, liveConfigurations: ignore, statusError: errConflict},
			wantWrites: []string{skip, skip, skip, strings.Replace(skip, " version=8", "", 1)}, want: conflictRetry,
		},
		"the write is rejected": {
			server:     fakeServer{configurations: ignore, liveConfigurations: ignore, statusError: errOutage},
			wantWrites: []string{skip},
			wantError: `failed to remove initializers from the pending list of namespace "x": ` +
				`failed to update the status of namespace "x": ` + errOutage.Error(),
		},

		"an initializer that has just become deregistered": {
			server: fakeServer{configurations: others, liveConfigurations: others}, hasNoTimeout: true,
			want: initialization.DeregistrationDelay,
		},
		"an initializer is deregistered": {
			server: fakeServer{configurations: others, liveConfigurations: others}, hasNoTimeout: true, isDeregistered: true,
			wantWrites: []string{"status of x: uid=x-uid version=8 " +
				"rbac.corp.com/Initialized=False/Deregistered pending-initializers=quota.corp.com"},
			wantEvents: []string{"Warning InitializerDeregistered ... rbac.corp.com"},
		},
		"all initializers are deregistered": {
			server: fakeServer{configurations: none}, hasNoTimeout: true, isDeregistered: true,
			wantWrites: []string{"status of x: uid=x-uid version=8 " +
				"rbac.corp.com/Initialized=False/Deregistered quota.corp.com/Initialized=False/Deregistered pending-initializers="},
			wantEvents: []string{"Warning InitializerDeregistered ... rbac.corp.com and quota.corp.com"},
		},
		"deregistered in the cache, but registered in the API server": {
			server:       fakeServer{configurations: others, liveConfigurations: configured(0, "")},
			hasNoTimeout: true, isDeregistered: true, isRegisteredAgain: true,
		},
		"deregistered in the cache, and the API server is unavailable": {
			server: fakeServer{configurations: none, listError: errOutage}, hasNoTimeout: true, isDeregistered: true,
			wantError: "failed to list NamespaceInitializerConfigurations: " + errOutage.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server, seconds := &test.server, int32(30)
			if test.hasNoTimeout {
				seconds = 0
			}
			server.cached = waiting(seconds).ResourceVersion("7").Obj()
			if server.live == nil {
				server.live = waiting(seconds).Obj()
			}
			recorder := events.NewFakeRecorder(10)
			reconciler := server.namespaceReconciler(recorder)
			if test.isDeregistered {
				since := now.Add(-time.Minute)
				reconciler.registry.deregisteredSince = map[string]time.Time{rbac: since, quota: since}
			}
			result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
			g.Expect(err).To(matchError(test.wantError))
			g.Expect(result.RequeueAfter).To(Equal(test.want))
			if test.isRegisteredAgain {
				g.Expect(reconciler.registry.deregisteredSince).NotTo(HaveKey(rbac))
			}
			g.Expect(server.writes).To(Equal(test.wantWrites))
			g.Expect(recorded(recorder)).To(matchEvents(test.wantEvents...))
			for _, value := range test.wantResult {
				g.Expect(server.result).To(ContainSubstring(value.(string)))
			}
		})
	}
}

// An initializer is skipped only if it has been continuously deregistered.
func TestInitializerRegistryRecord(t *testing.T) {
	g := NewWithT(t)
	const delay = initialization.DeregistrationDelay
	var registry initializerRegistry
	generation := int64(0)
	// record updates the registry at the given time, when the missing initializers are
	// deregistered. It returns the time when each of them became deregistered.
	record := func(at time.Duration, missing ...string) map[string]time.Duration {
		names := slices.DeleteFunc([]string{"a", "b"}, func(name string) bool { return slices.Contains(missing, name) })
		generation++
		result := registry.record([]string{"a", "b"}, []v1alpha1.NamespaceInitializerConfiguration{
			*wrappers.MakeConfiguration("c").Initializers(names...).Generation(generation).Obj(),
		}, true, now.Add(at))
		since := map[string]time.Duration{}
		for name, start := range result.DeregisteredSince {
			since[name] = start.Sub(now)
		}
		return since
	}
	type since = map[string]time.Duration
	g.Expect(record(0)).To(Equal(since{}))
	g.Expect(record(0, "a")).To(Equal(since{"a": 0}))
	g.Expect(record(delay-time.Second, "a", "b")).To(Equal(since{"a": 0, "b": delay - time.Second}))
	g.Expect(record(delay-1, "a")).To(Equal(since{"a": 0}))
	// The initializer b was registered in the previous call.
	g.Expect(record(delay, "a", "b")).To(Equal(since{"a": 0, "b": delay}))
	g.Expect(record(2*delay, "a", "b")).To(Equal(since{"a": 0, "b": delay}))

	registry.forget("a") // A configuration contained the initializer for a short time.
	g.Expect(record(3*delay, "a", "b")).To(Equal(since{"a": 3 * delay, "b": delay}))
	g.Expect(record(4*delay, "b")).To(Equal(since{"b": delay}))
	g.Expect(record(5*delay, "a", "b")).To(Equal(since{"a": 5 * delay, "b": delay}))
}

func TestInitializerRegistryHandler(t *testing.T) {
	g := NewWithT(t)
	server := &fakeServer{cached: wrappers.MakeNamespace("x").Initializers("rbac.corp.com").Obj()}
	var registry initializerRegistry
	handler := registry.handler(server.namespaceReconciler(events.NewFakeRecorder(1)).Client)
	queue := workqueue.NewTypedRateLimitingQueue(newRateLimiter(time.Millisecond))
	defer queue.ShutDown()
	named := wrappers.MakeConfiguration("c").Initializers("rbac.corp.com").Obj()
	for name, notify := range map[string]func(){
		"create": func() { handler.Create(t.Context(), event.CreateEvent{Object: named}, queue) },
		"update": func() {
			handler.Update(t.Context(), event.UpdateEvent{ObjectOld: named, ObjectNew: named}, queue)
		},
		"delete": func() { handler.Delete(t.Context(), event.DeleteEvent{Object: named}, queue) },
	} {
		registry.deregisteredSince = map[string]time.Time{"rbac.corp.com": now, "quota.corp.com": now}
		notify()
		known := slices.Sorted(maps.Keys(registry.deregisteredSince))
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
	handler.Create(t.Context(), event.CreateEvent{Object: &corev1.Pod{}}, queue)
	g.Expect(queue.Len()).To(BeZero())
}

// The start of the turn is written with the conditions. The write is retried after a conflict.
func TestNamespaceReconcileWritesTurnStart(t *testing.T) {
	for name, test := range map[string]struct {
		patchError error
		wantAfter  time.Duration
	}{
		"the write succeeds":  {wantAfter: 31 * time.Second},
		"the write conflicts": {patchError: errConflict, wantAfter: conflictRetry},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			configuration := wrappers.MakeConfiguration("c").Initializers("rbac.corp.com")
			configuration.NamespaceInitializerConfiguration.Initializers[0].TimeoutSeconds = ptr.To[int32](30)
			server := &fakeServer{
				cached: wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Initializers("rbac.corp.com").
					Condition(corev1.NamespaceCondition{Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionTrue}).Obj(),
				statusError: test.patchError, configurations: []*wrappers.ConfigurationWrapper{configuration},
			}
			reconciler := server.namespaceReconciler(events.NewFakeRecorder(10))
			reconciler.ProgressInterval = time.Hour // It does not delay the start of the turn.
			reconciler.tracker.record(server.cached, false, now)
			reconciler.tracker.recordProgress("x-uid", now)
			result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.RequeueAfter).To(Equal(test.wantAfter))
			g.Expect(server.writes).To(And(Not(BeEmpty()), HaveEach(HaveSuffix("turn-started-at=rbac.corp.com 2026-03-01T12:00:00Z"))))
		})
	}
}
