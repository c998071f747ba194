// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	conditionType = "example.com/Work"
	reserved      = "Reserved"
)

// call is the type of a user's function.
type call = func(ctx context.Context, namespace *corev1.Namespace) (Result, error)

// fixture runs a reconciler with a cache that can be stale and a fake API server.
type fixture struct {
	*reconciler
	cached *corev1.Namespace
	live   client.WithWatch
	clock  *clocktesting.FakePassiveClock
	calls  int
	// writes are the requests to the API server, in order.
	writes []string
	// refuse returns the error for a write; optional.
	refuse func() error
}

// shop returns a Namespace that matches.
func shop() *wrappers.NamespaceWrapper {
	return wrappers.MakeNamespace("shop").UID("shop-uid").Label("match", "true")
}

func newFixture(namespace *corev1.Namespace, call call) *fixture {
	f := &fixture{clock: clocktesting.NewFakePassiveClock(now)}
	write := func(text string) error {
		f.writes = append(f.writes, text)
		if f.refuse != nil {
			return f.refuse()
		}
		return nil
	}
	f.live = fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(namespace).
		WithStatusSubresource(&corev1.Namespace{}).Build()
	recording := interceptor.NewClient(f.live, interceptor.Funcs{SubResourcePatch: func(
		ctx context.Context, c client.Client, subresource string, object client.Object, patch client.Patch,
		opts ...client.SubResourcePatchOption,
	) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := write(describe(object, patch)); err != nil {
			return err
		}
		return c.SubResource(subresource).Patch(ctx, object, patch, opts...)
	}})
	f.reconciler = newReconciler(Handler{
		ConditionType: conditionType, DoneReason: "Done",
		IsReserved: func(reason string) bool { return reason == reserved },
		Match:      func(namespace *corev1.Namespace) bool { return namespace.Labels["match"] == "true" },
		Call: func(ctx context.Context, namespace *corev1.Namespace) (Result, error) {
			f.calls++
			return call(ctx, namespace)
		},
		Finish: func(context.Context, *corev1.Namespace) (bool, error) { return true, write("finish") },
		Fail: func(_ context.Context, _ *corev1.Namespace, failed *FailedError) (bool, error) {
			return true, write("fail " + failed.Message)
		},
	}, f, recording, Backoff{First: time.Second, Max: 5 * time.Second})
	f.reconciler.clock = f.clock
	f.cached = f.namespace()
	f.observe(f.cached)
	return f
}

// Get reads from the cache.
func (f *fixture) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	f.cached.DeepCopyInto(object.(*corev1.Namespace))
	return nil
}

// List lists the cache.
func (f *fixture) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return f.live.List(ctx, list, opts...)
}

func (f *fixture) namespace() *corev1.Namespace {
	var namespace corev1.Namespace
	if err := f.live.Get(context.Background(), client.ObjectKey{Name: "shop"}, &namespace); err != nil {
		panic(err)
	}
	return &namespace
}

// update changes the Namespace in the API server, but not in the cache.
func (f *fixture) update(change func(namespace *corev1.Namespace)) {
	namespace := f.namespace()
	change(namespace)
	if err := f.live.Update(context.Background(), namespace); err != nil {
		panic(err)
	}
}

// run reconciles the Namespace. A panic is returned as an error, as by a controller.
func (f *fixture) run(ctx context.Context) (_ reconcile.Result, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v", value)
		}
	}()
	return f.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: "shop"}})
}

// describe returns the condition in a patch, with its precondition.
func describe(object client.Object, patch client.Patch) string {
	data, _ := patch.Data(object)
	var namespace corev1.Namespace
	if err := json.Unmarshal(data, &namespace); err != nil || namespace.UID != "shop-uid" {
		return fmt.Sprintf("invalid patch of %q: %s", namespace.UID, data)
	}
	condition := namespace.Status.Conditions[0]
	return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
}

func returning(result Result, err error) call {
	return func(context.Context, *corev1.Namespace) (Result, error) { return result, err }
}

func newForbidden() error {
	return apierrors.NewForbidden(corev1.Resource("namespaces"), "shop",
		errors.New(`User "test" cannot patch resource "namespaces/status" in API group "" at the cluster scope`))
}

func TestReconcile(t *testing.T) {
	wait := &NotYetError{After: time.Minute, Reason: "NoQuota", Message: "no quota yet"}
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		call      call
		finalizes bool // The handler is that of a finalizer.

		wantWrites []string
		wantAfter  time.Duration
		wantErr    string
	}{
		"success":                {call: returning(Result{}, nil), wantWrites: []string{"finish"}},
		"result":                 {call: returning(Result{Reason: "Made", Message: "3 shards"}, nil), wantWrites: []string{"finish", "True Made: 3 shards"}},
		"result without reason":  {call: returning(Result{Message: "3 shards"}, nil), wantWrites: []string{"finish", "True Done: 3 shards"}},
		"result with a reserved": {call: returning(Result{Reason: reserved}, nil), wantWrites: []string{"finish", "True Done: "}},
		"default result":         {call: returning(Result{}, nil), finalizes: true, wantWrites: []string{"finish", "True Done: cleaned up"}},
		"the argument is a copy": {call: func(_ context.Context, n *corev1.Namespace) (Result, error) {
			n.UID = "x"
			return Result{Reason: "Made"}, nil
		}, wantWrites: []string{"finish", "True Made: "}},
		"permanent failure":         {call: returning(Result{}, fmt.Errorf("preparing: %w", &FailedError{Message: "none left"})), wantWrites: []string{"fail none left"}},
		"failure of a finalizer":    {call: returning(Result{}, &FailedError{Reason: "X", Message: "y"}), finalizes: true, wantWrites: []string{"False Retrying: permanent failure: X: y"}, wantErr: "permanent failure"},
		"nil FailedError":           {call: returning(Result{}, (*FailedError)(nil)), wantWrites: []string{"False Panicked: panic: runtime error"}, wantErr: "nil pointer"},
		"nil NotYetError":           {call: returning(Result{}, (*NotYetError)(nil)), wantWrites: []string{"False Panicked: panic: runtime error"}, wantErr: "nil pointer"},
		"not yet":                   {call: returning(Result{}, fmt.Errorf("preparing: %w", wait)), wantWrites: []string{"False NoQuota: no quota yet"}, wantAfter: time.Minute},
		"not yet, without duration": {call: returning(Result{}, &NotYetError{Message: "soon"}), wantWrites: []string{"False Waiting: soon"}, wantAfter: time.Second},
		"error":                     {call: returning(Result{Reason: "Made"}, errors.New("down")), wantWrites: []string{"False Retrying: down"}, wantErr: "down"},
		"NotFound of the function":  {call: returning(Result{}, apierrors.NewNotFound(corev1.Resource("pods"), "a")), wantWrites: []string{`False Retrying: pods "a" not found`}, wantErr: "not found"},
		"terminal error is retried": {call: returning(Result{}, reconcile.TerminalError(errors.New("down"))), wantWrites: []string{"False Retrying: terminal error: down"}, wantErr: "down"},
		"long and unprintable":      {call: returning(Result{}, errors.New("\x1b"+strings.Repeat("é", 1000))), wantWrites: []string{`False Retrying: \x1b` + strings.Repeat("é", 508) + "..."}, wantErr: "é"},
		"panic with a stack":        {call: func(context.Context, *corev1.Namespace) (Result, error) { panic("down\ngoroutine 1") }, wantWrites: []string{"False Panicked: " + panicMessage("down")}, wantErr: "panic: down"},
		"condition is up to date":   {namespace: shop().Condition(corev1.NamespaceCondition{Type: conditionType, Status: "False", Reason: "Retrying", Message: "down"}).Obj(), call: returning(Result{}, errors.New("down")), wantErr: "down"},
		"progress": {
			call: func(ctx context.Context, _ *corev1.Namespace) (Result, error) {
				Progress(ctx, "Creating", "%d of 2", 1)
				Progress(ctx, "Creating", "%d of 2", 1)
				Progress(ctx, reserved, "2 of 2")
				Progress(context.Background(), "Creating", "outside the call")
				return Result{}, nil
			},
			wantWrites: []string{"False Creating: 1 of 2", "False Progressing: 2 of 2", "finish"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if test.namespace == nil {
				test.namespace = shop().Obj()
			}
			f := newFixture(test.namespace, test.call)
			if test.finalizes {
				f.Fail, f.DoneMessage = nil, "cleaned up"
			}
			result, err := f.run(t.Context())
			g.Expect(f.writes).To(HaveLen(len(test.wantWrites)))
			for i, want := range test.wantWrites {
				g.Expect(f.writes[i]).To(HavePrefix(want))
			}
			g.Expect(result.RequeueAfter).To(Equal(test.wantAfter))
			g.Expect(fmt.Sprint(err)).To(ContainSubstring(test.wantErr))
			g.Expect(err != nil).To(Equal(test.wantErr != ""))
			g.Expect(errors.Is(err, reconcile.TerminalError(nil))).To(BeFalse())
		})
	}
}

func TestNamespaceWithoutMatchIsIgnored(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(shop().Label("match", "false").Obj(), returning(Result{}, nil))
	_, err := f.run(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	// The cache already shows the change, but its event follows.
	f.cached = shop().Obj()
	_, err = f.run(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.calls).To(BeZero())
}

// The function is not called again after it has completed, even if the write fails or the cache is stale.
func TestOnlyTheWriteIsRetried(t *testing.T) {
	for name, call := range map[string]call{
		"finish": returning(Result{}, nil), "fail none": returning(Result{}, &FailedError{Message: "none"}),
	} {
		g := NewWithT(t)
		f := newFixture(shop().Obj(), call)
		for attempt := range 3 {
			f.refuse = func() error {
				if attempt < 2 {
					return apierrors.NewInternalError(errors.New("etcd is unavailable"))
				}
				return nil
			}
			_, err := f.run(t.Context())
			g.Expect(err != nil).To(Equal(attempt < 2))
			f.clock.SetTime(f.clock.Now().Add(time.Hour))
		}
		_, err := f.run(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(f.calls).To(Equal(1))
		g.Expect(f.writes[len(f.writes)-1]).To(Equal(name))
	}
}

func TestBackoffIsIndependentOfEvents(t *testing.T) {
	g := NewWithT(t)
	broken := errors.New("down")
	f := newFixture(shop().Obj(), func(context.Context, *corev1.Namespace) (Result, error) { return Result{}, broken })
	for attempt, delay := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		_, err := f.run(t.Context())
		g.Expect(err).To(HaveOccurred())
		f.clock.SetTime(f.clock.Now().Add(delay - time.Millisecond))
		g.Expect(f.run(t.Context())).To(Equal(reconcile.Result{RequeueAfter: time.Millisecond}))
		g.Expect(f.calls).To(Equal(attempt + 1))
		f.clock.SetTime(f.clock.Now().Add(time.Millisecond))
	}
	// NotYet resets the backoff.
	broken = &NotYetError{After: time.Hour}
	g.Expect(f.run(t.Context())).To(Equal(reconcile.Result{RequeueAfter: time.Hour}))
	broken = errors.New("down again")
	_, err := f.run(t.Context())
	g.Expect(err).To(HaveOccurred())
	g.Expect(f.run(t.Context())).To(Equal(reconcile.Result{RequeueAfter: time.Second}))
}

// The context of a call is canceled when the Namespace no longer matches and when the process stops. The reconciler
// then writes nothing.
func TestCallIsCanceled(t *testing.T) {
	for name, change := range map[string]func(f *fixture, stop func()){
		"no match": func(f *fixture, _ func()) { f.observe(wrappers.MakeNamespace("shop").UID("shop-uid").Obj()) },
		"deleted":  func(f *fixture, _ func()) { f.forget("shop-uid") },
		"stopped":  func(_ *fixture, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var f *fixture
			f = newFixture(shop().Obj(), func(ctx context.Context, _ *corev1.Namespace) (Result, error) {
				change(f, stop)
				<-ctx.Done()
				Progress(ctx, "Late", "after the cancelation")
				return Result{}, ctx.Err()
			})
			g.Expect(f.run(ctx)).To(Equal(reconcile.Result{}))
			g.Expect(f.writes).To(BeEmpty())
		})
	}
}

// A goroutine of the function that outlives the call publishes nothing.
func TestProgressAfterTheCall(t *testing.T) {
	g := NewWithT(t)
	var kept context.Context
	f := newFixture(shop().Obj(), func(ctx context.Context, _ *corev1.Namespace) (Result, error) {
		kept = context.WithoutCancel(ctx)
		return Result{}, nil
	})
	_, err := f.run(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	Progress(kept, "Late", "after the call")
	g.Expect(f.writes).To(Equal([]string{"finish"}))
}

// A call that exceeds the manager's ReconciliationTimeout is retried, and the condition is published.
func TestReconciliationTimeout(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	f := newFixture(shop().Obj(), func(ctx context.Context, _ *corev1.Namespace) (Result, error) {
		<-ctx.Done()
		return Result{}, ctx.Err()
	})
	_, err := f.run(ctx)
	g.Expect(err).To(HaveOccurred())
	g.Expect(f.writes).To(Equal([]string{"False Retrying: context deadline exceeded"}))
}

// A condition is written despite conflicts, and other conditions are written with one request each.
func TestConditionIsWrittenAfterAConflict(t *testing.T) {
	g := NewWithT(t)
	since := metav1.NewTime(now.Add(-time.Hour))
	var f *fixture
	f = newFixture(shop().Condition(corev1.NamespaceCondition{
		Type: conditionType, Status: corev1.ConditionFalse, Reason: reserved, LastTransitionTime: since,
	}).Obj(), func(ctx context.Context, _ *corev1.Namespace) (Result, error) {
		f.update(func(namespace *corev1.Namespace) { namespace.Labels["team"] = "blue" })
		Progress(ctx, "Creating", "1 of 3")
		g.Expect(f.writes).To(HaveLen(2))
		Progress(ctx, "Creating", "2 of 3")
		return Result{}, &NotYetError{Reason: "Creating", Message: "3 of 3"}
	})
	_, err := f.run(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.writes).To(HaveLen(4))
	condition := f.namespace().Status.Conditions[0]
	g.Expect(condition.Message).To(Equal("3 of 3"))
	g.Expect(condition.LastTransitionTime.Time).To(BeTemporally("==", since.Time))
}

// The operator skips an initializer and sets its condition in the same write, which this process might not have seen
// yet.
func TestConditionOfASkippedInitializerIsPreserved(t *testing.T) {
	for _, err := range []error{errors.New("down"), &NotYetError{After: time.Minute}} {
		g := NewWithT(t)
		f := newFixture(shop().Obj(), returning(Result{}, err))
		f.update(func(namespace *corev1.Namespace) { namespace.Labels["match"] = "false" })
		_, _ = f.run(t.Context())
		g.Expect(f.writes).To(HaveLen(1))
		g.Expect(f.namespace().Status.Conditions).To(BeEmpty())
	}
}

// Without the permission to write conditions, the function works, and the log contains one line.
func TestForbiddenConditionIsLoggedOnce(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(shop().Obj(), returning(Result{}, &NotYetError{After: time.Second, Message: "soon"}))
	f.refuse = newForbidden
	var logged []string
	logger := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	for range 2 {
		g.Expect(f.run(log.IntoContext(t.Context(), logger))).To(Equal(reconcile.Result{RequeueAfter: time.Second}))
	}
	g.Expect(logged).To(ConsistOf(ContainSubstring("permission to patch namespaces/status")))
}

// The heartbeat is repeated until it is published, unless a condition exists that the operator has not set.
func TestHeartbeat(t *testing.T) {
	condition := corev1.NamespaceCondition{Type: conditionType, Status: corev1.ConditionFalse, Reason: reserved}
	own := condition
	own.Reason = "Creating"
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		want      int32
	}{
		"no condition":           {shop().Obj(), 3},
		"condition of operator":  {shop().Condition(condition).Obj(), 3},
		"condition of initiator": {shop().Condition(own).Obj(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var attempts atomic.Int32
			f := newFixture(test.namespace, func(context.Context, *corev1.Namespace) (Result, error) {
				g.Eventually(attempts.Load).Should(Equal(test.want))
				g.Consistently(attempts.Load, "50ms").Should(Equal(test.want))
				return Result{}, nil
			})
			f.heartbeatInterval = time.Millisecond
			f.refuse = func() error {
				if attempts.Add(1) < 3 {
					return apierrors.NewInternalError(errors.New("etcd is unavailable"))
				}
				return nil
			}
			_, _ = f.run(t.Context())
			if test.want > 0 {
				g.Expect(f.writes[:3]).To(HaveEach("False Working: The function is running"))
			}
		})
	}
}

func TestRetryOnConflict(t *testing.T) {
	conflict := apierrors.NewConflict(corev1.Resource("namespaces"), "shop", errors.New("busy"))
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 409, Message: `admission webhook "a.example.com" denied the request: frozen`,
	}}
	for name, test := range map[string]struct {
		uid       types.UID
		conflicts int
		err       error
		wantCalls int
		wantErr   string
	}{
		"success":              {uid: "shop-uid", wantCalls: 1},
		"conflicts":            {uid: "shop-uid", conflicts: 3, wantCalls: 4},
		"too many conflicts":   {uid: "shop-uid", conflicts: 30, wantCalls: 20, wantErr: "20 consecutive update conflicts"},
		"recreated":            {uid: "another", conflicts: 1, wantCalls: 1, wantErr: "not found"},
		"denied with code 409": {uid: "shop-uid", err: denied, wantCalls: 1, wantErr: "frozen"},
	} {
		g := NewWithT(t)
		c := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(shop().UID(test.uid).Obj()).Build()
		calls := 0
		err := RetryOnConflict(t.Context(), c, shop().Obj(), func() error {
			if calls++; calls <= test.conflicts {
				return fmt.Errorf("wrapped: %w", conflict)
			}
			return test.err
		})
		g.Expect(calls).To(Equal(test.wantCalls), name)
		g.Expect(fmt.Sprint(err)).To(ContainSubstring(test.wantErr), name)
		g.Expect(err != nil).To(Equal(test.wantErr != ""), name)
	}
}
