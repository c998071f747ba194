// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

const (
	token = corev1.FinalizerName("search.example.com/index")
	other = corev1.FinalizerName("backup.example.com/last")
	name  = "shop"
	uid   = types.UID("11111111-aaaa")
)

var (
	start = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	// errDown is an error that nobody knows more of.
	errDown = errors.New("the service is down")
)

// namespaceWith returns a Namespace that is being deleted and has some tokens.
func namespaceWith(tokens ...corev1.FinalizerName) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: uid, DeletionTimestamp: &metav1.Time{Time: start},
			// The fake client takes no object that is being deleted and has none of these.
			Finalizers: []string{"example.com/for-the-fake"},
		},
		Spec: corev1.NamespaceSpec{Finalizers: tokens},
	}
}

func undeleted(namespace *corev1.Namespace) *corev1.Namespace {
	namespace.DeletionTimestamp = nil
	return namespace
}

// world is an API server with one Namespace, and an agent.
type world struct {
	t          *testing.T
	client     client.Client
	clock      *clocktesting.FakePassiveClock
	reconciler *workrunner.Reconciler
	calls      int
	// beforeWrite is called before each write to /finalize, and its error is the answer.
	beforeWrite func(writes int) error
	writes      int
}

func newWorld(t *testing.T, namespace *corev1.Namespace, fn Func, opts ...Option) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(start)}
	w.client = fake.NewClientBuilder().WithScheme(workrunner.NewScheme()).
		WithStatusSubresource(&corev1.Namespace{}).WithObjects(namespace).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceUpdate: w.finalize}).Build()
	o := newOptions(opts)
	counted := func(ctx context.Context, namespace *corev1.Namespace) (Result, error) {
		w.calls++
		return fn(ctx, namespace)
	}
	w.reconciler = &workrunner.Reconciler{
		Work: newWork(w.client, token, counted, o), Cache: w.client, Client: w.client,
		Clock: w.clock, Backoff: o.Backoff,
	}
	w.reconciler.Observe(namespace)
	return w
}

// finalize does what the fake client does not know of: a write that changes the tokens alone.
func (w *world) finalize(
	ctx context.Context, c client.Client, subresource string, object client.Object, _ ...client.SubResourceUpdateOption,
) error {
	w.writes++
	if subresource != "finalize" {
		return fmt.Errorf("a write to %q", subresource)
	}
	if w.beforeWrite != nil {
		if err := w.beforeWrite(w.writes); err != nil {
			return err
		}
	}
	return c.Update(ctx, object)
}

func (w *world) reconcile() (reconcile.Result, error) {
	return w.reconciler.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
}

func (w *world) namespace() *corev1.Namespace {
	w.t.Helper()
	var namespace corev1.Namespace
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: name}, &namespace); err != nil {
		w.t.Fatal(err)
	}
	return &namespace
}

// told is what a condition says.
type told struct {
	status          corev1.ConditionStatus
	reason, message string
}

func (w *world) condition() told {
	condition := nscondition.Find(w.namespace(), corev1.NamespaceConditionType(token))
	if condition == nil {
		return told{}
	}
	return told{condition.Status, condition.Reason, condition.Message}
}

func succeed(context.Context, *corev1.Namespace) (Result, error) { return Result{}, nil }

func TestReconcile(t *testing.T) {
	held := []corev1.FinalizerName{other, token, corev1.FinalizerKubernetes}
	released := []corev1.FinalizerName{other, corev1.FinalizerKubernetes}
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		fn        Func
		opts      []Option
		calls     int
		tokens    []corev1.FinalizerName
		condition told
		after     time.Duration
		isError   bool
	}{
		"not deleted": {
			namespace: undeleted(namespaceWith(held...)), fn: succeed, tokens: held,
		},
		"without the token": {
			namespace: namespaceWith(released...), fn: succeed, tokens: released,
		},
		"done": {
			namespace: namespaceWith(held...), fn: succeed, calls: 1, tokens: released,
			condition: told{corev1.ConditionTrue, "Released", "nothing is left to do, and the token has been taken off"},
		},
		"done, and something to say": {
			namespace: namespaceWith(held...), calls: 1, tokens: released,
			fn: func(context.Context, *corev1.Namespace) (Result, error) {
				return Result{Reason: "IndexDeleted", Message: "index shop is gone"}, nil
			},
			condition: told{corev1.ConditionTrue, "IndexDeleted", "index shop is gone"},
		},
		"listed twice": {
			namespace: namespaceWith(token, other, token), fn: succeed, calls: 1,
			tokens:    []corev1.FinalizerName{other},
			condition: told{corev1.ConditionTrue, "Released", "nothing is left to do, and the token has been taken off"},
		},
		"an error": {
			namespace: namespaceWith(held...), calls: 1, tokens: held, isError: true,
			fn:        func(context.Context, *corev1.Namespace) (Result, error) { return Result{}, errDown },
			condition: told{corev1.ConditionFalse, "Retrying", errDown.Error()},
		},
		// A result does not make up for an error.
		"an error and a result": {
			namespace: namespaceWith(held...), calls: 1, tokens: held, isError: true,
			fn: func(context.Context, *corev1.Namespace) (Result, error) {
				return Result{Reason: "IndexDeleted"}, errDown
			},
			condition: told{corev1.ConditionFalse, "Retrying", errDown.Error()},
		},
		"a panic": {
			namespace: namespaceWith(held...), calls: 1, tokens: held, isError: true,
			fn: func(context.Context, *corev1.Namespace) (Result, error) { panic("no such thing") },
			condition: told{corev1.ConditionFalse, "Panicked", "panic: no such thing; this is a bug in the function " +
				"that was given to package initializer or agent, whose log has the stack"},
		},
		"not yet": {
			namespace: namespaceWith(held...), calls: 1, tokens: held, after: time.Hour,
			fn: func(context.Context, *corev1.Namespace) (Result, error) {
				return Result{}, fmt.Errorf("wrapped: %w", NotYet(time.Hour, "Archiving", "%d of %d logs", 2, 3))
			},
			condition: told{corev1.ConditionFalse, "Archiving", "2 of 3 logs"},
		},
		"its content is there": {
			namespace: namespaceWith(held...), fn: succeed, opts: []Option{AfterContent()}, tokens: held,
		},
		"its content is gone": {
			namespace: namespaceWith(other, token), fn: succeed, opts: []Option{AfterContent()}, calls: 1,
			tokens:    []corev1.FinalizerName{other},
			condition: told{corev1.ConditionTrue, "Released", "nothing is left to do, and the token has been taken off"},
		},
		"the function changes what it is given": {
			namespace: namespaceWith(held...), calls: 1, tokens: released,
			fn: func(_ context.Context, namespace *corev1.Namespace) (Result, error) {
				namespace.Spec.Finalizers, namespace.Labels = nil, map[string]string{"a": "b"}
				return Result{}, nil
			},
			condition: told{corev1.ConditionTrue, "Released", "nothing is left to do, and the token has been taken off"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.namespace, test.fn, test.opts...)

			result, err := w.reconcile()

			if (err != nil) != test.isError || result.RequeueAfter != test.after {
				t.Errorf("Reconcile: %v, %v; want an error %t, after %s", result, err, test.isError, test.after)
			}
			if w.calls != test.calls {
				t.Errorf("The function was called %d times, want %d", w.calls, test.calls)
			}
			if diff := cmp.Diff(test.tokens, w.namespace().Spec.Finalizers); diff != "" {
				t.Errorf("Tokens (-want +got):\n%s", diff)
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

// What others write in between survives, and the function is not called for it again.
func TestALostRaceIsRunAgain(t *testing.T) {
	w := newWorld(t, namespaceWith(token, corev1.FinalizerKubernetes), succeed)
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
		t.Errorf("Tokens (-want +got):\n%s", diff)
	}
	if w.calls != 1 || w.writes != 4 {
		t.Errorf("%d calls and %d writes, want 1 and 4", w.calls, w.writes)
	}
}

// A token that somebody else has taken off in between is not written about.
func TestALostTokenIsNotWritten(t *testing.T) {
	w := newWorld(t, namespaceWith(token, other), succeed)
	w.beforeWrite = func(int) error {
		namespace := w.namespace()
		namespace.Spec.Finalizers = []corev1.FinalizerName{other}
		return w.client.Update(t.Context(), namespace)
	}
	if result, err := w.reconcile(); err != nil || result.RequeueAfter != 0 {
		t.Errorf("Reconcile: %v, %v", result, err)
	}
	if w.writes != 1 || w.condition() != (told{}) {
		t.Errorf("%d writes, condition %v; want 1 and none", w.writes, w.condition())
	}
}

// Once the function has returned nil only the write is made again.
func TestOnlyTheWriteIsRepeated(t *testing.T) {
	w := newWorld(t, namespaceWith(token), succeed)
	w.beforeWrite = func(writes int) error {
		if writes < 3 {
			return apierrors.NewForbidden(corev1.Resource("namespaces/finalize"), name, errors.New("no such right"))
		}
		return nil
	}
	for range 2 {
		if _, err := w.reconcile(); err == nil || !strings.Contains(err.Error(), "no such right") {
			t.Errorf("Reconcile: %v, want that a right is missing", err)
		}
		if got := w.condition(); got.reason != "Retrying" || !strings.Contains(got.message, "no such right") {
			t.Errorf("The condition is %v, want that a right is missing", got)
		}
		w.clock.SetTime(w.clock.Now().Add(time.Hour))
	}
	if _, err := w.reconcile(); err != nil {
		t.Error(err)
	}
	if w.calls != 1 || has(w.namespace(), token) {
		t.Errorf("%d calls, tokens %v; want 1 and none", w.calls, w.namespace().Spec.Finalizers)
	}
}

// Nothing that was said of one Namespace counts for another one of the same name.
func TestAnotherUIDIsNotReleased(t *testing.T) {
	w := newWorld(t, namespaceWith(token, corev1.FinalizerKubernetes), succeed)
	w.beforeWrite = func(int) error {
		w.beforeWrite = nil
		before := w.namespace()
		before.Finalizers = nil
		if err := w.client.Update(t.Context(), before); err != nil {
			return err
		}
		again := namespaceWith(token, corev1.FinalizerKubernetes)
		again.DeletionTimestamp, again.UID = nil, "22222222-bbbb"
		if err := w.client.Create(t.Context(), again); err != nil {
			return err
		}
		// It is being deleted as well, so nothing but the UID tells it from the one before.
		if err := w.client.Delete(t.Context(), again); err != nil {
			return err
		}
		return apierrors.NewConflict(corev1.Resource("namespaces"), name, errors.New("another resource version"))
	}
	if result, err := w.reconcile(); err != nil || result.RequeueAfter != 0 {
		t.Errorf("Reconcile: %v, %v", result, err)
	}
	if !has(w.namespace(), token) || w.condition() != (told{}) {
		t.Errorf("The new namespace was touched: %v", w.namespace())
	}
	if _, err := w.reconcile(); err != nil || w.calls != 1 || !has(w.namespace(), token) {
		t.Errorf("Reconcile of the new namespace: %v, %d calls, tokens %v", err, w.calls, w.namespace().Spec.Finalizers)
	}
}

// An error is followed by a pause, which a change of the Namespace does not cut short.
func TestBackoff(t *testing.T) {
	w := newWorld(t, namespaceWith(token), func(context.Context, *corev1.Namespace) (Result, error) {
		return Result{}, errDown
	}, WithBackoff(time.Second, 3*time.Second))
	for i, pause := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		if _, err := w.reconcile(); !errors.Is(err, errDown) {
			t.Errorf("Reconcile: %v, want %v", err, errDown)
		}
		w.clock.SetTime(w.clock.Now().Add(pause - time.Millisecond))
		if result, err := w.reconcile(); err != nil || result.RequeueAfter != time.Millisecond || w.calls != i+1 {
			t.Errorf("Reconcile before %s: %v, %v, %d calls", pause, result, err, w.calls)
		}
		w.clock.SetTime(w.clock.Now().Add(time.Millisecond))
	}
}

func TestProgressIsPublished(t *testing.T) {
	var during told
	var w *world
	w = newWorld(t, namespaceWith(token), func(ctx context.Context, _ *corev1.Namespace) (Result, error) {
		Progress(ctx, "Deleting", "%d documents are left", 7)
		during = w.condition()
		return Result{}, nil
	})
	if _, err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	if want := (told{corev1.ConditionFalse, "Deleting", "7 documents are left"}); during != want {
		t.Errorf("The condition was %v, want %v", during, want)
	}
	// Outside of a call there is nothing to publish.
	Progress(t.Context(), "Deleting", "nothing")
}

// A call whose Namespace loses the token is cancelled.
func TestACallEndsWithTheToken(t *testing.T) {
	var w *world
	w = newWorld(t, namespaceWith(token), func(ctx context.Context, _ *corev1.Namespace) (Result, error) {
		w.reconciler.Observe(namespaceWith(other))
		<-ctx.Done()
		return Result{}, ctx.Err()
	})
	if result, err := w.reconcile(); err != nil || result.RequeueAfter != 0 {
		t.Errorf("Reconcile: %v, %v", result, err)
	}
	if w.writes != 0 {
		t.Errorf("There were %d writes of tokens", w.writes)
	}
}

func TestPutOn(t *testing.T) {
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		selects   func(*corev1.Namespace) bool
		want      []corev1.FinalizerName
	}{
		"a selected one":     {undeleted(namespaceWith(other)), selectAll, []corev1.FinalizerName{other, token}},
		"another one":        {undeleted(namespaceWith(other)), selectNone, []corev1.FinalizerName{other}},
		"one that has it":    {undeleted(namespaceWith(token, other)), selectAll, []corev1.FinalizerName{token, other}},
		"one that is ending": {namespaceWith(other), selectAll, []corev1.FinalizerName{other}},
		"a panic":            {undeleted(namespaceWith(other)), func(*corev1.Namespace) bool { panic("a bug") }, []corev1.FinalizerName{other}},
		"one that is changed meanwhile": {
			undeleted(namespaceWith(other)),
			func(namespace *corev1.Namespace) bool { namespace.Spec.Finalizers = nil; return true },
			[]corev1.FinalizerName{other, token},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.namespace, succeed)
			w.reconciler.Work = newPuttingOn(w.client, token, test.selects)
			w.reconciler.Observe(test.namespace)
			if _, err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, w.namespace().Spec.Finalizers); diff != "" {
				t.Errorf("Tokens (-want +got):\n%s", diff)
			}
			if w.condition() != (told{}) {
				t.Errorf("There is a condition: %v", w.condition())
			}
		})
	}
}

// A Namespace that is deleted while the token is on its way does not get it.
func TestPutOnIsTooLate(t *testing.T) {
	w := newWorld(t, undeleted(namespaceWith(other)), succeed)
	w.reconciler.Work = newPuttingOn(w.client, token, selectAll)
	w.reconciler.Observe(w.namespace())
	w.beforeWrite = func(int) error {
		w.beforeWrite = nil
		return w.client.Delete(t.Context(), w.namespace())
	}
	if _, err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	if w.writes != 1 || has(w.namespace(), token) || w.namespace().DeletionTimestamp == nil {
		t.Errorf("%d writes, tokens %v, deleted %v", w.writes, w.namespace().Spec.Finalizers, w.namespace().DeletionTimestamp)
	}
}

func selectAll(*corev1.Namespace) bool  { return true }
func selectNone(*corev1.Namespace) bool { return false }

func TestAddRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		token corev1.FinalizerName
		fn    Func
		opts  []Option
		want  string
	}{
		"kubernetes":          {"kubernetes", succeed, nil, "belongs to the namespace controller"},
		"a bare name":         {"index", succeed, nil, "it has no domain"},
		"no function":         {token, nil, nil, "no function"},
		"no workers":          {token, succeed, []Option{WithWorkers(0)}, "WithWorkers(0)"},
		"no manager":          {token, succeed, nil, "there is no manager"},
		"nobody selects":      {token, succeed, []Option{AddFinalizer(nil)}, "AddFinalizer(nil)"},
		"no time":             {token, succeed, []Option{WithBackoff(0, time.Second)}, "WithBackoff(0s, 1s)"},
		"the wrong way round": {token, succeed, []Option{WithBackoff(time.Minute, time.Second)}, "WithBackoff(1m0s, 1s)"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Add(nil, test.token, test.fn, test.opts...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Add: %v, want an error with %q", err, test.want)
			}
		})
	}
}
