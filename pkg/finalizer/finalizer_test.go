// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/pkg/finalizer/internal/engine"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

const (
	own   = corev1.FinalizerName("search.example.com/index")
	other = corev1.FinalizerName("backup.example.com/last")
	name  = "shop"
	uid   = types.UID("11111111-aaaa")
)

var (
	start = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	// errDown is an ordinary error, which is retried with backoff.
	errDown = errors.New("the service is unavailable")
)

// namespaceWith returns a terminating Namespace with these namespace finalizers.
func namespaceWith(finalizers ...corev1.FinalizerName) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: uid, DeletionTimestamp: &metav1.Time{Time: start},
			// The fake client rejects terminating objects without finalizers.
			Finalizers: []string{"example.com/for-the-fake"},
		},
		Spec: corev1.NamespaceSpec{Finalizers: finalizers},
	}
}

func undeleted(namespace *corev1.Namespace) *corev1.Namespace {
	namespace.DeletionTimestamp = nil
	return namespace
}

// fixture is a fake API server with one Namespace, and a reconciler.
type fixture struct {
	t          *testing.T
	client     client.Client
	clock      *clocktesting.FakePassiveClock
	reconciler *workrunner.Reconciler
	calls      int
	// beforeWrite is called before each write to /finalize. If it returns an error, the write fails
	// with that error.
	beforeWrite func(writes int) error
	writes      int
}

func newFixture(t *testing.T, namespace *corev1.Namespace, fn Func, opts ...Option) *fixture {
	t.Helper()
	w := &fixture{t: t, clock: clocktesting.NewFakePassiveClock(start)}
	w.client = fake.NewClientBuilder().WithScheme(workrunner.NewScheme()).
		WithStatusSubresource(&corev1.Namespace{}).WithObjects(namespace).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceUpdate: w.finalize}).Build()
	o, err := engine.NewOptions(own, opts)
	if err != nil {
		t.Fatal(err)
	}
	counted := func(ctx context.Context, namespace *corev1.Namespace) (Result, error) {
		w.calls++
		return fn(ctx, namespace)
	}
	w.reconciler = &workrunner.Reconciler{
		Handler: engine.NewHandler(w.client, own, workrunner.NewCall(counted), o), Cache: w.client, Client: w.client,
		Clock: w.clock, Backoff: o.Backoff,
	}
	w.reconciler.Track(namespace)
	return w
}

// finalize updates the finalizers, because the fake client does not implement the subresource.
func (w *fixture) finalize(
	ctx context.Context, c client.Client, subresource string, object client.Object, _ ...client.SubResourceUpdateOption,
) error {
	w.writes++
	if subresource != "finalize" {
		return fmt.Errorf("unexpected write to %q", subresource)
	}
	if w.beforeWrite != nil {
		if err := w.beforeWrite(w.writes); err != nil {
			return err
		}
	}
	return c.Update(ctx, object)
}

func (w *fixture) reconcile() (reconcile.Result, error) {
	return w.reconciler.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
}

func (w *fixture) namespace() *corev1.Namespace {
	w.t.Helper()
	var namespace corev1.Namespace
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: name}, &namespace); err != nil {
		w.t.Fatal(err)
	}
	return &namespace
}

// conditionText contains the fields of a condition that tests compare.
type conditionText struct {
	status          corev1.ConditionStatus
	reason, message string
}

func (w *fixture) condition() conditionText {
	condition := nsobject.FindCondition(w.namespace(), corev1.NamespaceConditionType(own))
	if condition == nil {
		return conditionText{}
	}
	return conditionText{condition.Status, condition.Reason, condition.Message}
}

func succeed(context.Context, *corev1.Namespace) (Result, error) { return Result{}, nil }

func TestReconcile(t *testing.T) {
	held := []corev1.FinalizerName{other, own, corev1.FinalizerKubernetes}
	released := []corev1.FinalizerName{other, corev1.FinalizerKubernetes}
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		fn        Func
		opts      []Option
		calls     int
		want      []corev1.FinalizerName
		condition conditionText
		after     time.Duration
		isError   bool
	}{
		"not terminating": {
			namespace: undeleted(namespaceWith(held...)), fn: succeed, want: held,
		},
		"without the finalizer": {
			namespace: namespaceWith(released...), fn: succeed, want: released,
		},
		"success": {
			namespace: namespaceWith(held...), fn: succeed, calls: 1, want: released,
			condition: conditionText{corev1.ConditionTrue, "Released", engine.MessageReleased},
		},
		"success with a result": {
			namespace: namespaceWith(held...), calls: 1, want: released,
			fn: func(context.Context, *corev1.Namespace) (Result, error) {
				return Result{Reason: "IndexDeleted", Message: "index shop was deleted"}, nil
			},
			condition: conditionText{corev1.ConditionTrue, "IndexDeleted", "index shop was deleted"},
		},
		"duplicate finalizer": {
			namespace: namespaceWith(own, other, own), fn: succeed, calls: 1,
			want:      []corev1.FinalizerName{other},
			condition: conditionText{corev1.ConditionTrue, "Released", engine.MessageReleased},
		},
		"an error": {
			namespace: namespaceWith(held...), calls: 1, want: held, isError: true,
			fn:        func(context.Context, *corev1.Namespace) (Result, error) { return Result{}, errDown },
			condition: conditionText{corev1.ConditionFalse, "Retrying", errDown.Error()},
		},
		// The result is ignored if the call returns an error.
		"an error and a result": {
			namespace: namespaceWith(held...), calls: 1, want: held, isError: true,
			fn: func(context.Context, *corev1.Namespace) (Result, error) {
				return Result{Reason: "IndexDeleted"}, errDown
			},
			condition: conditionText{corev1.ConditionFalse, "Retrying", errDown.Error()},
		},
		"a panic": {
			namespace: namespaceWith(held...), calls: 1, want: held, isError: true,
			fn:        func(context.Context, *corev1.Namespace) (Result, error) { panic("out of range") },
			condition: conditionText{corev1.ConditionFalse, "Panicked", workrunner.PanicMessage("out of range")},
		},
		"not yet": {
			namespace: namespaceWith(held...), calls: 1, want: held, after: time.Hour,
			fn: func(context.Context, *corev1.Namespace) (Result, error) {
				return Result{}, fmt.Errorf("wrapped: %w", NotYet(time.Hour, "Archiving", "%d of %d logs", 2, 3))
			},
			condition: conditionText{corev1.ConditionFalse, "Archiving", "2 of 3 logs"},
		},
		"AfterContent, while content exists": {
			namespace: namespaceWith(held...), fn: succeed, opts: []Option{AfterContent()}, want: held,
		},
		"AfterContent, after the content is deleted": {
			namespace: namespaceWith(other, own), fn: succeed, opts: []Option{AfterContent()}, calls: 1,
			want:      []corev1.FinalizerName{other},
			condition: conditionText{corev1.ConditionTrue, "Released", engine.MessageReleased},
		},
		"the function modifies its argument": {
			namespace: namespaceWith(held...), calls: 1, want: released,
			fn: func(_ context.Context, namespace *corev1.Namespace) (Result, error) {
				namespace.Spec.Finalizers, namespace.Labels = nil, map[string]string{"a": "b"}
				return Result{}, nil
			},
			condition: conditionText{corev1.ConditionTrue, "Released", engine.MessageReleased},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, test.namespace, test.fn, test.opts...)

			result, err := w.reconcile()

			if (err != nil) != test.isError || result.RequeueAfter != test.after {
				t.Errorf("Reconcile: %v, %v; want an error: %t, requeue after %s", result, err, test.isError, test.after)
			}
			if w.calls != test.calls {
				t.Errorf("The function was called %d times, want %d", w.calls, test.calls)
			}
			if diff := cmp.Diff(test.want, w.namespace().Spec.Finalizers); diff != "" {
				t.Errorf("Finalizers (-want +got):\n%s", diff)
			}
			if len(w.namespace().Labels) > 0 {
				t.Errorf("The labels are %v", w.namespace().Labels)
			}
			if got := w.condition(); got != test.condition {
				t.Errorf("The condition is %v, want %v", got, test.condition)
			}
		})
	}
}

// Changes by other clients during a call are preserved, and the function is not called again.
func TestConflictIsRetriedWithoutAnotherCall(t *testing.T) {
	w := newFixture(t, namespaceWith(own, corev1.FinalizerKubernetes), succeed)
	w.beforeWrite = func(writes int) error {
		if writes > 3 {
			return nil
		}
		namespace := w.namespace()
		namespace.Spec.Finalizers = append(namespace.Spec.Finalizers, corev1.FinalizerName(fmt.Sprintf("race.example.com/%d", writes)))
		return w.client.Update(t.Context(), namespace)
	}
	if _, err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	want := []corev1.FinalizerName{
		corev1.FinalizerKubernetes, "race.example.com/1", "race.example.com/2", "race.example.com/3",
	}
	if diff := cmp.Diff(want, w.namespace().Spec.Finalizers); diff != "" {
		t.Errorf("Finalizers (-want +got):\n%s", diff)
	}
	if w.calls != 1 || w.writes != 4 {
		t.Errorf("%d calls and %d writes, want 1 and 4", w.calls, w.writes)
	}
}

// A webhook can deny a write with any status code.
func TestDenialByWebhook(t *testing.T) {
	for _, code := range []int32{403, 404, 409} {
		denied := &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: code, Message: `admission webhook "a.example.com" denied the request: frozen`,
		}}
		w := newFixture(t, namespaceWith(own), succeed)
		w.beforeWrite = func(int) error { return denied }
		if _, err := w.reconcile(); !errors.Is(err, denied) {
			t.Errorf("Reconcile: %v, want the denial with the code %d", err, code)
		}
		if condition := w.condition(); w.writes != 1 || !strings.HasSuffix(condition.message, denied.Error()) {
			t.Errorf("Code %d: %d writes, condition %v; want 1 and the denial", code, w.writes, condition)
		}
	}
}

// If another client removes the finalizer, the reconciler does not write.
func TestRemovedFinalizerIsNotWritten(t *testing.T) {
	w := newFixture(t, namespaceWith(own, other), succeed)
	w.beforeWrite = func(int) error {
		namespace := w.namespace()
		namespace.Spec.Finalizers = []corev1.FinalizerName{other}
		return w.client.Update(t.Context(), namespace)
	}
	if result, err := w.reconcile(); err != nil || result.RequeueAfter != 0 {
		t.Errorf("Reconcile: %v, %v", result, err)
	}
	if w.writes != 1 || w.condition() != (conditionText{}) {
		t.Errorf("%d writes, condition %v; want 1 and none", w.writes, w.condition())
	}
}

// After the function returns nil, only the write is retried.
func TestOnlyTheWriteIsRetried(t *testing.T) {
	w := newFixture(t, namespaceWith(own), succeed)
	w.beforeWrite = func(writes int) error {
		if writes < 3 {
			return apierrors.NewForbidden(corev1.Resource("namespaces/finalize"), name, errors.New("permission denied"))
		}
		return nil
	}
	for range 2 {
		if _, err := w.reconcile(); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("Reconcile: %v, want the missing permission", err)
		}
		if got := w.condition(); got.reason != "Retrying" || !strings.Contains(got.message, "permission denied") {
			t.Errorf("The condition is %v, want the missing permission", got)
		}
		w.clock.SetTime(w.clock.Now().Add(time.Hour))
	}
	if _, err := w.reconcile(); err != nil {
		t.Error(err)
	}
	if w.calls != 1 || slices.Contains(w.namespace().Spec.Finalizers, own) {
		t.Errorf("%d calls, finalizers %v; want 1 and none", w.calls, w.namespace().Spec.Finalizers)
	}
}

// The outcome for a Namespace does not apply to another Namespace with the same name.
func TestAnotherUIDIsNotReleased(t *testing.T) {
	w := newFixture(t, namespaceWith(own, corev1.FinalizerKubernetes), succeed)
	w.beforeWrite = func(int) error {
		w.beforeWrite = nil
		before := w.namespace()
		before.Finalizers = nil
		if err := w.client.Update(t.Context(), before); err != nil {
			return err
		}
		again := namespaceWith(own, corev1.FinalizerKubernetes)
		again.DeletionTimestamp, again.UID = nil, "22222222-bbbb"
		if err := w.client.Create(t.Context(), again); err != nil {
			return err
		}
		// The new Namespace is also terminating, so only the UID differs.
		if err := w.client.Delete(t.Context(), again); err != nil {
			return err
		}
		return apierrors.NewConflict(corev1.Resource("namespaces"), name, errors.New("another resource version"))
	}
	if result, err := w.reconcile(); err != nil || result.RequeueAfter != 0 {
		t.Errorf("Reconcile: %v, %v", result, err)
	}
	if !slices.Contains(w.namespace().Spec.Finalizers, own) || w.condition() != (conditionText{}) {
		t.Errorf("The new namespace was changed: %v", w.namespace())
	}
	if _, err := w.reconcile(); err != nil || w.calls != 1 || !slices.Contains(w.namespace().Spec.Finalizers, own) {
		t.Errorf("Reconcile of the new namespace: %v, %d calls, finalizers %v", err, w.calls, w.namespace().Spec.Finalizers)
	}
}

// A watch event does not shorten the backoff.
func TestBackoff(t *testing.T) {
	w := newFixture(t, namespaceWith(own), func(context.Context, *corev1.Namespace) (Result, error) {
		return Result{}, errDown
	}, WithBackoff(time.Second, 3*time.Second))
	for i, delay := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		if _, err := w.reconcile(); !errors.Is(err, errDown) {
			t.Errorf("Reconcile: %v, want %v", err, errDown)
		}
		w.clock.SetTime(w.clock.Now().Add(delay - time.Millisecond))
		if result, err := w.reconcile(); err != nil || result.RequeueAfter != time.Millisecond || w.calls != i+1 {
			t.Errorf("Reconcile before %s: %v, %v, %d calls", delay, result, err, w.calls)
		}
		w.clock.SetTime(w.clock.Now().Add(time.Millisecond))
	}
}

func TestProgressIsPublished(t *testing.T) {
	var during conditionText
	var w *fixture
	w = newFixture(t, namespaceWith(own), func(ctx context.Context, _ *corev1.Namespace) (Result, error) {
		Progress(ctx, "Deleting", "%d documents remain", 7)
		during = w.condition()
		return Result{}, nil
	})
	if _, err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	if want := (conditionText{corev1.ConditionFalse, "Deleting", "7 documents remain"}); during != want {
		t.Errorf("The condition was %v, want %v", during, want)
	}
	// Outside a call, Progress does nothing.
	Progress(t.Context(), "Deleting", "nothing")
}

// A call is canceled when the finalizer is removed.
func TestCallIsCanceledWithoutTheFinalizer(t *testing.T) {
	var w *fixture
	w = newFixture(t, namespaceWith(own), func(ctx context.Context, _ *corev1.Namespace) (Result, error) {
		w.reconciler.Track(namespaceWith(other))
		<-ctx.Done()
		return Result{}, ctx.Err()
	})
	if result, err := w.reconcile(); err != nil || result.RequeueAfter != 0 {
		t.Errorf("Reconcile: %v, %v", result, err)
	}
	if w.writes != 0 {
		t.Errorf("Finalizers were written %d times", w.writes)
	}
}

func TestAddFinalizer(t *testing.T) {
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		selects   func(*corev1.Namespace) bool
		want      []corev1.FinalizerName
	}{
		"selected":        {undeleted(namespaceWith(other)), selectAll, []corev1.FinalizerName{other, own}},
		"not selected":    {undeleted(namespaceWith(other)), selectNone, []corev1.FinalizerName{other}},
		"already present": {undeleted(namespaceWith(own, other)), selectAll, []corev1.FinalizerName{own, other}},
		"terminating":     {namespaceWith(other), selectAll, []corev1.FinalizerName{other}},
		"panic":           {undeleted(namespaceWith(other)), func(*corev1.Namespace) bool { panic("a bug") }, []corev1.FinalizerName{other}},
		"the function modifies its argument": {
			undeleted(namespaceWith(other)),
			func(namespace *corev1.Namespace) bool { namespace.Spec.Finalizers = nil; return true },
			[]corev1.FinalizerName{other, own},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, test.namespace, succeed)
			w.reconciler.Handler = engine.NewAddHandler(w.client, own, test.selects)
			w.reconciler.Track(test.namespace)
			if _, err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, w.namespace().Spec.Finalizers); diff != "" {
				t.Errorf("Finalizers (-want +got):\n%s", diff)
			}
			if w.condition() != (conditionText{}) {
				t.Errorf("The condition is %v, want none", w.condition())
			}
		})
	}
}

// A Namespace that is deleted concurrently does not get the finalizer.
func TestAddFinalizerToTerminating(t *testing.T) {
	w := newFixture(t, undeleted(namespaceWith(other)), succeed)
	w.reconciler.Handler = engine.NewAddHandler(w.client, own, selectAll)
	w.reconciler.Track(w.namespace())
	w.beforeWrite = func(int) error {
		w.beforeWrite = nil
		return w.client.Delete(t.Context(), w.namespace())
	}
	if _, err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	if w.writes != 1 || slices.Contains(w.namespace().Spec.Finalizers, own) || w.namespace().DeletionTimestamp == nil {
		t.Errorf("%d writes, finalizers %v, deleted %v", w.writes, w.namespace().Spec.Finalizers, w.namespace().DeletionTimestamp)
	}
}

func selectAll(*corev1.Namespace) bool  { return true }
func selectNone(*corev1.Namespace) bool { return false }

func TestAddValidates(t *testing.T) {
	for name, test := range map[string]struct {
		own  corev1.FinalizerName
		fn   Func
		opts []Option
		want string
	}{
		"kubernetes":          {"kubernetes", succeed, nil, "belongs to the namespace controller"},
		"no domain":           {"index", succeed, nil, "it has no domain"},
		"no function":         {own, nil, nil, "function is nil"},
		"no workers":          {own, succeed, []Option{WithWorkers(0)}, "WithWorkers(0)"},
		"no manager":          {own, succeed, nil, "manager is nil"},
		"nil selector":        {own, succeed, []Option{AddFinalizer(nil)}, "AddFinalizer(nil)"},
		"no backoff":          {own, succeed, []Option{WithBackoff(0, time.Second)}, "WithBackoff(0s, 1s)"},
		"maximum below first": {own, succeed, []Option{WithBackoff(time.Minute, time.Second)}, "WithBackoff(1m0s, 1s)"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Add(nil, test.own, test.fn, test.opts...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Add: %v, want an error with %q", err, test.want)
			}
		})
	}
}
