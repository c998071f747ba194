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

// waitServer is a fake API server with one Namespace and configurations, which can differ from those in
// the cache. It records writes.
type waitServer struct {
	cached, live                    *corev1.Namespace
	cachedNames, liveNames          []*wrappers.ConfigurationWrapper
	listError, getError, patchError error

	writes []string
	// result is the message in the written initialization result.
	result string
}

func (s *waitServer) reconciler(recorder events.EventRecorder) *NamespaceReconciler {
	list := func(configurations *[]*wrappers.ConfigurationWrapper, err *error) func(
		context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			if namespaces, ok := list.(*corev1.NamespaceList); ok {
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
	get := func(namespace **corev1.Namespace, err *error) func(
		context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return func(
			_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption,
		) error {
			(*namespace).DeepCopyInto(object.(*corev1.Namespace))
			return *err
		}
	}
	var none error
	return &NamespaceReconciler{
		Client: newFakeClient(interceptor.Funcs{
			Get: get(&s.cached, &none), List: list(&s.cachedNames, &none), SubResourcePatch: s.patch,
		}),
		Live: newFakeClient(interceptor.Funcs{
			Get: get(&s.live, &s.getError), List: list(&s.liveNames, &s.listError),
		}),
		Recorder: recorder, Clock: clocktesting.NewFakePassiveClock(now), SystemNamespace: systemNamespace,
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
		text := ptr.Deref(value, "null")
		if key == v1alpha1.AnnotationInitializationResult {
			var result metav1.Status
			if err := json.Unmarshal([]byte(text), &result); err != nil {
				return err
			}
			text, s.result = fmt.Sprintf("%s/%s/%d", result.Status, result.Reason, result.Code), result.Message
		}
		write += fmt.Sprintf(" %s=%s", key[len(v1alpha1.Prefix):], text)
	}
	for _, condition := range body.Status.Conditions {
		write += fmt.Sprintf(" %s=%s/%s", condition.Type, condition.Status, condition.Reason)
	}
	s.writes = append(s.writes, write)
	return s.patchError
}

// The reconciler must read from the API server before it skips an initializer or fails an
// initialization.
func TestNamespaceReconcileDecidesAgainLive(t *testing.T) {
	const (
		rbac, quota = "rbac.corp.com", "quota.corp.com"
		skip        = "status uid=x-uid version=8 pending-initializers=quota.corp.com " +
			"rbac.corp.com/Initialized=False/TimedOut"
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
		namespace.Status.Conditions = initialization.Decide(namespace.Obj(),
			initialization.Registry{Registrations: registered(seconds)}, systemNamespace, now.Add(-time.Minute)).Conditions
		return namespace
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
		// hasNoTimeout reports whether the conditions do not include InitializerTurn.
		hasNoTimeout bool
		// isUnregistered reports whether the initializers have been unregistered for a minute.
		isUnregistered bool
		// isRegisteredAgain reports whether the first initializer is expected to be no longer recorded as
		// unregistered.
		isRegisteredAgain bool
		want              time.Duration
		wantWrites        []string
		wantEvents        []string
		wantError         string
		wantResult        []any
	}{
		"no timeout": {server: waitServer{cachedNames: configured(0, "")}, hasNoTimeout: true},
		"the timeout has not expired": {
			server: waitServer{cachedNames: configured(120, v1alpha1.InitializerFail)}, want: 61 * time.Second,
		},
		"expired, with the failure policy Ignore": {
			server:     waitServer{cachedNames: ignore, liveNames: ignore},
			wantWrites: []string{skip}, wantEvents: []string{timedOut},
		},
		"expired, with the failure policy Fail": {
			server:     waitServer{cachedNames: ignore, liveNames: configured(30, v1alpha1.InitializerFail)},
			wantWrites: []string{"status uid=x-uid version=8 initialization-result=Failure/Timeout/504"},
			wantResult: []any{rbac, "30s", `NamespaceInitializerConfiguration "c"`},
		},
		"the last initializer has expired": {
			server: waitServer{
				cachedNames: ignore, liveNames: ignore, live: waiting(30).Pending(rbac).Obj(),
			},
			wantWrites: []string{"status uid=x-uid version=8 pending-initializers= " +
				"rbac.corp.com/Initialized=False/TimedOut"},
			wantEvents: []string{timedOut},
		},
		// The decision must not depend on the cache alone.
		"expired in the cache, but with a longer timeout in the API server": {
			server: waitServer{cachedNames: ignore, liveNames: configured(120, v1alpha1.InitializerIgnore)},
			want:   61 * time.Second,
		},
		"expired in the cache, but without a timeout in the API server": {
			server: waitServer{cachedNames: ignore, liveNames: configured(0, "")},
		},
		"expired in the cache, but completed in the API server": {
			server: waitServer{cachedNames: ignore, liveNames: ignore, live: waiting(30).Pending(quota).Obj()},
		},
		"expired in the cache, but terminating in the API server": {
			server: waitServer{cachedNames: ignore, liveNames: ignore, live: waiting(30).Terminating(now).Obj()},
		},
		"expired in the cache, but recreated in the API server": {
			server: waitServer{cachedNames: ignore, liveNames: ignore, live: waiting(30).UID("y").Obj()},
		},
		"expired in the cache, but with an inconsistent label in the API server": {
			server: waitServer{
				cachedNames: ignore, liveNames: ignore,
				live: waiting(30).Label(v1alpha1.LabelInitializing, "no").Obj(),
			},
		},
		"the configurations cannot be listed": {
			server:    waitServer{cachedNames: ignore, liveNames: ignore, listError: errOutage},
			wantError: "failed to list NamespaceInitializerConfigurations: " + errOutage.Error(),
		},
		"the namespace cannot be read": {
			server:    waitServer{cachedNames: ignore, liveNames: ignore, getError: errOutage},
			wantError: `failed to get namespace "x": ` + errOutage.Error(),
		},
		"the namespace was deleted": {server: waitServer{cachedNames: ignore, liveNames: ignore, getError: errNotFound}},
		"the namespace changes before every attempt": {
			server:     waitServer{cachedNames: ignore, liveNames: ignore, patchError: errConflict},
			wantWrites: []string{skip, skip, skip, strings.Replace(skip, "version=8", "version=", 1)}, want: conflictRetry,
		},
		"the write is rejected": {
			server:     waitServer{cachedNames: ignore, liveNames: ignore, patchError: errOutage},
			wantWrites: []string{skip},
			wantError: `failed to remove initializers from the pending list of namespace "x": ` +
				`failed to update the status of namespace "x": ` + errOutage.Error(),
		},

		"an initializer that has just become unregistered": {
			server: waitServer{cachedNames: others, liveNames: others}, hasNoTimeout: true,
			want: initialization.DeregistrationDelay,
		},
		"an initializer is deregistered": {
			server: waitServer{cachedNames: others, liveNames: others}, hasNoTimeout: true, isUnregistered: true,
			wantWrites: []string{"status uid=x-uid version=8 pending-initializers=quota.corp.com " +
				"rbac.corp.com/Initialized=False/Deregistered"},
			wantEvents: []string{"Warning InitializerDeregistered ... rbac.corp.com"},
		},
		"all initializers are deregistered": {
			server: waitServer{}, hasNoTimeout: true, isUnregistered: true,
			wantWrites: []string{"status uid=x-uid version=8 pending-initializers= " +
				"rbac.corp.com/Initialized=False/Deregistered quota.corp.com/Initialized=False/Deregistered"},
			wantEvents: []string{"Warning InitializerDeregistered ... rbac.corp.com and quota.corp.com"},
		},
		"deregistered in the cache, but registered in the API server": {
			server:       waitServer{cachedNames: others, liveNames: configured(0, "")},
			hasNoTimeout: true, isUnregistered: true, isRegisteredAgain: true,
		},
		"deregistered in the cache, and the API server is unavailable": {
			server: waitServer{listError: errOutage}, hasNoTimeout: true, isUnregistered: true,
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
			reconciler := server.reconciler(recorder)
			if test.isUnregistered {
				since := now.Add(-time.Minute)
				reconciler.registry.unregisteredSince = map[string]time.Time{rbac: since, quota: since}
			}
			result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
			if test.wantError == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(test.wantError))
			}
			g.Expect(result.RequeueAfter).To(Equal(test.want))
			if test.isRegisteredAgain {
				g.Expect(reconciler.registry.unregisteredSince).NotTo(HaveKey(rbac))
			}
			g.Expect(server.writes).To(Equal(test.wantWrites))
			g.Expect(recorded(recorder)).To(matchEvents(test.wantEvents...))
			for _, value := range test.wantResult {
				g.Expect(server.result).To(ContainSubstring(value.(string)))
			}
		})
	}

	// The next reconciliation handles the failure.
	t.Run("expired in the cache, but failed in the API server", func(t *testing.T) {
		g := NewWithT(t)
		server := waitServer{
			cachedNames: ignore, liveNames: ignore, cached: waiting(30).ResourceVersion("7").Obj(),
			live: waiting(30).Result(`{"status":"Failure"}`).Label(v1alpha1.LabelDeletionProtection, "").Obj(),
		}
		result, err := server.reconciler(events.NewFakeRecorder(10)).Reconcile(t.Context(), requestFor("x"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.RequeueAfter).To(BeZero())
		g.Expect(server.writes).To(BeEmpty())
	})
}

// An initializer is skipped only if it has been continuously unregistered.
func TestInitializerRegistryRecord(t *testing.T) {
	g := NewWithT(t)
	const delay = initialization.DeregistrationDelay
	var registry initializerRegistry
	generation := int64(0)
	// record updates the registry at the given time, when the missing initializers are
	// unregistered. It returns the time when each of them became unregistered.
	record := func(at time.Duration, missing ...string) map[string]time.Duration {
		names := slices.DeleteFunc([]string{"a", "b"}, func(name string) bool { return slices.Contains(missing, name) })
		generation++
		result := registry.record([]string{"a", "b"}, []v1alpha1.NamespaceInitializerConfiguration{
			*wrappers.MakeConfiguration("c").Initializers(names...).Generation(generation).Obj(),
		}, true, now.Add(at))
		since := map[string]time.Duration{}
		for name, start := range result.UnregisteredSince {
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
	server := &waitServer{cached: wrappers.MakeNamespace("x").Initializers("rbac.corp.com").Obj()}
	var registry initializerRegistry
	handler := registry.handler(server.reconciler(events.NewFakeRecorder(1)).Client)
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
		registry.unregisteredSince = map[string]time.Time{"rbac.corp.com": now, "quota.corp.com": now}
		notify()
		known := slices.Sorted(maps.Keys(registry.unregisteredSince))
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

// The InitializerTurn condition is written with the other conditions. The write is retried after a
// conflict.
func TestNamespaceReconcileWritesInitializerTurn(t *testing.T) {
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
			server := &namespaceServer{
				namespace: wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Initializers("rbac.corp.com").
					Condition(corev1.NamespaceCondition{Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionTrue}).Obj(),
				statusError: test.patchError, configuration: configuration,
			}
			recorder := events.NewFakeRecorder(10)
			reconciler := &NamespaceReconciler{
				Client: server.client(), Live: server.client(), Recorder: recorder, Clock: clocktesting.NewFakePassiveClock(now),
				ProgressInterval: time.Hour, // It does not delay the InitializerTurn condition.
			}
			reconciler.tracker.record(server.namespace, false, now)
			reconciler.tracker.recordProgress("x-uid", now)
			result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.RequeueAfter).To(Equal(test.wantAfter))
			g.Expect(server.writes).To(And(Not(BeEmpty()), HaveEach(HaveSuffix("nslifecycle.dev/InitializerTurn=True/Pending"))))
		})
	}
}
