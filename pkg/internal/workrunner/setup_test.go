// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestUnlimited(t *testing.T) {
	g := NewWithT(t)
	g.Expect(withoutRateLimit(&rest.Config{}).QPS).To(BeEquivalentTo(-1))
	g.Expect(withoutRateLimit(&rest.Config{QPS: 20}).QPS).To(BeEquivalentTo(20))
	g.Expect(withoutRateLimit(&rest.Config{RateLimiter: flowcontrol.NewFakeAlwaysRateLimiter()}).QPS).To(BeZero())
	given := &rest.Config{}
	withoutRateLimit(given)
	g.Expect(given.QPS).To(BeZero(), "the manager's configuration must not change")
}

func TestBackoff(t *testing.T) {
	for name, test := range map[string]struct {
		backoff  Backoff
		failures int
		want     time.Duration
	}{
		"first":       {Backoff{time.Second, time.Minute}, 1, time.Second},
		"second":      {Backoff{time.Second, time.Minute}, 2, 2 * time.Second},
		"sixth":       {Backoff{time.Second, time.Minute}, 6, 32 * time.Second},
		"seventh":     {Backoff{time.Second, time.Minute}, 7, time.Minute},
		"maximum":     {Backoff{time.Second, time.Minute}, 1 << 30, time.Minute},
		"no overflow": {Backoff{1, 1<<63 - 1}, 1 << 30, 1<<63 - 1},
		"constant":    {Backoff{time.Second, time.Second}, 3, time.Second},
	} {
		if got := test.backoff.after(test.failures); got != test.want {
			t.Errorf("%s: after(%d) = %s, want %s", name, test.failures, got, test.want)
		}
	}
}

func TestBackoffLimiter(t *testing.T) {
	g := NewWithT(t)
	r := &Reconciler{Backoff: Backoff{First: time.Second, Max: time.Minute}}
	request := reconcile.Request{}
	r.delays.Store(request, 4*time.Second)
	g.Expect(backoffLimiter{r}.When(request)).To(Equal(4 * time.Second))
	g.Expect(backoffLimiter{r}.When(request)).To(Equal(time.Second), "without a stored delay")
}

// Watch events enqueue Namespaces that are ready, and tasks are not leaked.
func TestEventHandler(t *testing.T) {
	r := &Reconciler{Clock: clock.RealClock{}, Handler: Handler{
		Match: func(namespace *corev1.Namespace) bool {
			matches := namespace.Labels["by-status"] == "" || len(namespace.Status.Conditions) > 0
			return namespace.Labels["match"] != "" && matches
		},
		Ready: func(namespace *corev1.Namespace) bool { return namespace.Labels["match"] == "ready" },
	}}
	now := wrappers.MakeNamespace("shop").UID("1").ResourceVersion("1").Label("match", "ready").Obj()
	later := wrappers.MakeNamespace("shop").UID("1").ResourceVersion("2").Label("match", "later").Obj()
	never := wrappers.MakeNamespace("shop").UID("1").ResourceVersion("3").Obj()
	again := wrappers.MakeNamespace("shop").UID("2").ResourceVersion("4").Label("match", "ready").Obj()
	changedStatus := now.DeepCopy()
	changedStatus.ResourceVersion, changedStatus.Status.Conditions = "5", []corev1.NamespaceCondition{{Type: "x"}}
	annotated := now.DeepCopy()
	annotated.ResourceVersion, annotated.Annotations = "6", map[string]string{"a": "b"}
	finalized := now.DeepCopy()
	finalized.ResourceVersion, finalized.Spec.Finalizers = "7", []corev1.FinalizerName{"kubernetes"}

	closed := now.DeepCopy()
	closed.Labels["by-status"] = "true"
	opened := closed.DeepCopy()
	opened.ResourceVersion, opened.Status.Conditions = "8", []corev1.NamespaceCondition{{Type: "x"}}

	for name, test := range map[string]struct {
		before, after *corev1.Namespace
		wantQueued    int
		wantKnown     []string
	}{
		"new and ready":              {nil, now, 1, []string{"1"}},
		"new and not ready":          {nil, later, 0, []string{"1"}},
		"new without match":          {nil, never, 0, nil},
		"becomes ready":              {later, now, 1, []string{"1"}},
		"no longer matches":          {now, never, 0, nil},
		"status changed":             {now, changedStatus, 0, []string{"1"}},
		"annotation changed":         {now, annotated, 1, []string{"1"}},
		"spec.finalizers changed":    {now, finalized, 1, []string{"1"}},
		"matches by status":          {closed, opened, 1, []string{"1"}},
		"resync":                     {now, now, 1, []string{"1"}},
		"deleted":                    {now, nil, 0, nil},
		"recreated, deletion missed": {now, again, 1, []string{"2"}},
		"recreated without match":    {again, never, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r.tasks = tasks{}
			queue := workqueue.NewTypedRateLimitingQueue[reconcile.Request](backoffLimiter{r})
			defer queue.ShutDown()
			handler, ctx := r.eventHandler(), context.Background()
			if test.before != nil {
				r.Track(test.before)
			}
			switch {
			case test.before == nil:
				handler.Create(ctx, event.TypedCreateEvent[*corev1.Namespace]{Object: test.after}, queue)
			case test.after == nil:
				handler.Delete(ctx, event.TypedDeleteEvent[*corev1.Namespace]{Object: test.before}, queue)
			default:
				handler.Update(ctx, event.TypedUpdateEvent[*corev1.Namespace]{
					ObjectOld: test.before, ObjectNew: test.after,
				}, queue)
			}
			g.Expect(queue.Len()).To(Equal(test.wantQueued))
			var known []string
			for uid := range r.tasks.byUID {
				known = append(known, string(uid))
			}
			g.Expect(known).To(Equal(test.wantKnown))
		})
	}
}

// A change of a watched object enqueues only Namespaces that are ready and affected.
func TestAffectedNamespaces(t *testing.T) {
	namespaces := fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects(
		wrappers.MakeNamespace("blue").Label("turn", "now").Obj(),
		wrappers.MakeNamespace("later").Label("turn", "later").Obj(),
		wrappers.MakeNamespace("other").Obj(),
		wrappers.MakeNamespace("red").Label("turn", "now").Obj(),
	).Build()
	r := &Reconciler{Cache: namespaces, Handler: Handler{
		Match: func(namespace *corev1.Namespace) bool { return namespace.Labels["turn"] != "" },
		Ready: func(namespace *corev1.Namespace) bool { return namespace.Labels["turn"] == "now" },
	}}
	plan := wrappers.MakeConfigMap("plans", "red")
	for name, test := range map[string]struct {
		affects func(client.Object, *corev1.Namespace) bool
		want    []string
	}{
		"all": {nil, []string{"blue", "red"}},
		"by name": {func(object client.Object, namespace *corev1.Namespace) bool {
			return object.GetName() == namespace.Name
		}, []string{"red"}},
		"none":  {func(client.Object, *corev1.Namespace) bool { return false }, nil},
		"panic": {func(client.Object, *corev1.Namespace) bool { panic("out of range") }, []string{"blue", "red"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, request := range r.affectedNamespaces(Watch{Affects: test.affects})(t.Context(), plan) {
				got = append(got, request.Name)
			}
			NewWithT(t).Expect(got).To(Equal(test.want))
		})
	}
}

// counter makes names unique in this process, even if tests are repeated.
var counter atomic.Int32

func TestInvalidWatches(t *testing.T) {
	g := NewWithT(t)
	for _, object := range []client.Object{nil, (*corev1.ConfigMap)(nil)} {
		options := DefaultOptions()
		options.Watches = []Watch{{Object: object}}
		g.Expect(options.Validate()).To(MatchError(ContainSubstring("WithWatch(nil)")))
	}
	for name, test := range map[string]struct {
		object client.Object
		want   string
	}{
		"without a kind":    {&metav1.PartialObjectMetadata{}, "has no kind"},
		"not in the scheme": {&internalv1alpha1.NamespaceInitializerSet{}, "no kind is registered"},
	} {
		handler := Handler{Name: fmt.Sprintf("invalid watch %d", counter.Add(1))}
		add := func(object client.Object) error {
			return Add(newManager(g, config.Controller{}), func(client.Client) Setup {
				options := DefaultOptions()
				options.Watches = []Watch{{Object: object}}
				return Setup{Handler: handler, Options: options}
			})
		}
		g.Expect(add(test.object)).To(MatchError(ContainSubstring(test.want)), name)
		g.Expect(add(&corev1.ConfigMap{})).To(Succeed(), "the name must not be taken")
	}
}

// addedTo is a manager that collects what is added.
type addedTo struct {
	manager.Manager
	runnables []manager.Runnable
}

func (a *addedTo) Add(runnable manager.Runnable) error {
	a.runnables = append(a.runnables, runnable)
	return nil
}

// With warmup, a process would handle watch events before it is the leader.
func TestControllersHaveNoWarmup(t *testing.T) {
	g := NewWithT(t)
	mgr := &addedTo{Manager: newManager(g, config.Controller{
		EnableWarmup: ptr.To(true), SkipNameValidation: ptr.To(true),
	})}
	g.Expect(Add(mgr, func(client.Client) Setup {
		return Setup{Handler: Handler{Name: "without warmup"}, Options: DefaultOptions()}
	})).To(Succeed())
	g.Expect(mgr.runnables).To(ContainElement(HaveField("EnableWarmup", HaveValue(BeFalse()))))
}

func TestManagersShareNoCaches(t *testing.T) {
	g := NewWithT(t)
	shared := sharedCaches{byKey: map[cacheKey]cache.Cache{}}
	get := func(mgr manager.Manager, selection Selection) cache.Cache {
		t.Helper()
		reads, err := NewClient(mgr.GetConfig(), mgr.GetHTTPClient())
		g.Expect(err).NotTo(HaveOccurred())
		got, err := shared.get(mgr, reads, selection)
		g.Expect(err).NotTo(HaveOccurred())
		return got
	}
	label := Selection{Label: labels.Set{"a": "b"}.AsSelector()}
	field := Selection{Field: fields.OneTermEqualSelector("a", "b")}
	one, other := newManager(g, config.Controller{}), newManager(g, config.Controller{})
	of := map[cache.Cache]bool{}
	for _, mgr := range []manager.Manager{one, other, uncomparable{Manager: one}, uncomparable{Manager: one}} {
		for _, selection := range []Selection{label, field, {}} {
			got := get(mgr, selection)
			g.Expect(of).NotTo(HaveKey(got))
			of[got] = true
		}
	}
	g.Expect(get(one, Selection{Label: labels.Set{"a": "b"}.AsSelector()})).To(BeIdenticalTo(get(one, label)))
	g.Expect(shared.byKey).To(HaveLen(6))

	ctx, stop := context.WithCancel(t.Context())
	stop()
	g.Expect(one.Start(ctx)).To(Succeed())
	g.Expect(shared.byKey).To(HaveLen(3), "caches of a stopped manager must be removed")
}

// uncomparable is a manager whose type is not comparable, so it cannot be a map key.
type uncomparable struct {
	manager.Manager
	_ []string
}

// newManager returns a manager that never sends requests to an API server.
func newManager(g *WithT, controllers config.Controller) manager.Manager {
	mgr, err := manager.New(&rest.Config{Host: "http://localhost:1"}, manager.Options{
		Metrics: server.Options{BindAddress: "0"}, Logger: logr.Discard(), Controller: controllers,
	})
	g.Expect(err).NotTo(HaveOccurred())
	return mgr
}
