// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// tellingTimeout is how long it may take to publish that the time of a pass is over.
const tellingTimeout = 10 * time.Second

// Reconciler does the Work for each Namespace that is owed it.
type Reconciler struct {
	Work Work
	// Cache is where Namespaces are read first.
	Cache client.Reader
	// Client reads and writes without a cache.
	Client  client.Client
	Clock   clock.PassiveClock
	Backoff Backoff
	// Silence is how long a call may be under way before the condition says so; DefaultSilence
	// if it is zero.
	Silence time.Duration
	// Inheritance is by how much the clocks of this process and of the API server may differ. A
	// Namespace that is older than this process may have been served by the leader before, and
	// the cache not know of that yet: it is read again before it is served. None is where this
	// is zero.
	Inheritance time.Duration

	begin     sync.Once
	begun     time.Time
	tasks     tasks
	delays    sync.Map
	publisher publisher
}

// Backoff is how long the next attempt waits after an error. It doubles from First to Max.
type Backoff struct {
	First, Max time.Duration
}

// after returns how long to wait after the given number of errors in a row.
func (b Backoff) after(failures int) time.Duration {
	delay := b.First
	for range failures - 1 {
		if delay >= b.Max/2 {
			return b.Max
		}
		delay *= 2
	}
	return min(delay, b.Max)
}

// Observe takes notice of a Namespace as the watch has it, and tells whether it was not owed
// the work before. Nothing is done for one that was never observed.
func (r *Reconciler) Observe(namespace *corev1.Namespace) (isNew bool) {
	r.begin.Do(func() { r.begun = r.Clock.Now() })
	if r.Work.Owed(namespace) {
		isOlder := owedSince(namespace).Before(r.begun.Add(r.Inheritance))
		return r.tasks.add(namespace.UID, r.Inheritance > 0 && isOlder)
	}
	r.Forget(namespace)
	return false
}

// owedSince returns when a Namespace can have begun to be owed work, in whole seconds.
func owedSince(namespace *corev1.Namespace) time.Time {
	if namespace.DeletionTimestamp != nil {
		return namespace.DeletionTimestamp.Time
	}
	return namespace.CreationTimestamp.Time
}

// Forget takes notice of a Namespace that the watch does not have any more.
func (r *Reconciler) Forget(namespace *corev1.Namespace) { r.tasks.remove(namespace.UID) }

// Reconcile does what there is to do for one Namespace now.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var namespace corev1.Namespace
	if err := r.Cache.Get(ctx, req.NamespacedName, &namespace); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	task := r.tasks.find(namespace.UID)
	if task == nil || !r.isDue(&namespace) {
		return reconcile.Result{}, nil
	}
	// A change to the Namespace is no reason to try again what has just failed.
	if left := task.retryAt.Sub(r.Clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	err := r.serve(ctx, task, &namespace)
	if errors.Is(ctx.Err(), context.Canceled) || task.over() || err == nil {
		return reconcile.Result{}, nil
	}
	// A manager can give each pass a time (ReconciliationTimeout). It is over, which is an error
	// like others: it has to be told, and tried again.
	if ctx.Err() != nil {
		telling, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellingTimeout)
		defer cancel()
		ctx = telling
	}
	var wait *Wait
	if errors.As(err, &wait) {
		return reconcile.Result{RequeueAfter: r.wait(ctx, task, &namespace, wait)}, nil
	}
	return reconcile.Result{}, r.retry(ctx, req, task, &namespace, err)
}

func (r *Reconciler) isDue(namespace *corev1.Namespace) bool {
	return r.Work.Owed(namespace) && (r.Work.Due == nil || r.Work.Due(namespace))
}

// serve calls the function, unless that has been settled, and writes what came of it.
func (r *Reconciler) serve(ctx context.Context, task *task, namespace *corev1.Namespace) error {
	if !task.isSettled {
		if err := r.prepare(ctx, task, namespace); err != nil || !r.isDue(namespace) {
			return client.IgnoreNotFound(err)
		}
		if err := r.call(ctx, task, namespace); err != nil {
			return err
		}
	}
	if task.final != nil {
		isDone, err := r.Work.Fail(ctx, namespace, task.final)
		if err != nil || !isDone {
			return client.IgnoreNotFound(err)
		}
		log.FromContext(ctx).Info("Reported that a namespace can never be served", "uid", namespace.UID,
			"reason", task.final.Reason, "message", task.final.Message)
		return nil
	}
	isDone, err := r.Work.Finish(ctx, namespace)
	if err != nil || !isDone {
		return client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).Info("Served a namespace", "uid", namespace.UID)
	// What nobody holds any more has gone with the write, and there is nothing to tell of it.
	if task.result != (Result{}) && !isUnheld(namespace) {
		r.publish(ctx, task, namespace, corev1.ConditionTrue,
			r.reason(task.result.Reason, r.Work.ReasonDone), task.result.Message)
	}
	return nil
}

// isUnheld tells whether the last write to a Namespace that is being deleted was its end.
func isUnheld(namespace *corev1.Namespace) bool {
	return namespace.DeletionTimestamp != nil && len(namespace.Spec.Finalizers) == 0 && len(namespace.Finalizers) == 0
}

// prepare does what has to be done before the first call, and brings the Namespace up to date
// where it looks at it.
func (r *Reconciler) prepare(ctx context.Context, task *task, namespace *corev1.Namespace) error {
	if task.isPrepared {
		return nil
	}
	if task.isInherited {
		if err := Reread(ctx, r.Client, namespace); err != nil {
			return err
		}
	}
	if r.Work.Prepare != nil && r.isDue(namespace) {
		if err := r.Work.Prepare(ctx, namespace); err != nil {
			return err
		}
	}
	task.isPrepared = r.isDue(namespace)
	return nil
}

// call calls the function. Where it returns nil the task is settled.
func (r *Reconciler) call(ctx context.Context, task *task, namespace *corev1.Namespace) error {
	callContext, end := task.begin(ctx)
	progress := &progress{reconciler: r, task: task, namespace: namespace}
	silence := time.AfterFunc(cmp.Or(r.Silence, DefaultSilence), func() { progress.breakSilence(callContext) })
	result, err := r.callRecovering(context.WithValue(callContext, progressKey{}, progress), namespace.DeepCopy())
	silence.Stop()
	progress.end()
	end()

	var final *Final
	if errors.As(err, &final) && r.Work.Fail != nil {
		err = nil
	}
	if err == nil {
		task.isSettled, task.result, task.final = true, result, final
		task.failures = 0
	}
	return err
}

func (r *Reconciler) callRecovering(ctx context.Context, namespace *corev1.Namespace) (result Result, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value: value}
			log.FromContext(ctx).Error(err, "Recovered from a panic", "uid", namespace.UID, "stack", string(debug.Stack()))
		}
	}()
	return r.Work.Call(ctx, namespace)
}

// wait publishes what is waited for, and returns how long.
func (r *Reconciler) wait(ctx context.Context, task *task, namespace *corev1.Namespace, wait *Wait) time.Duration {
	task.failures = 0
	r.publish(ctx, task, namespace, corev1.ConditionFalse, r.reason(wait.Reason, ReasonWaiting), wait.Message)
	if wait.After <= 0 {
		return r.Backoff.First
	}
	return wait.After
}

// retry publishes an error and returns it. When the next attempt is due is kept for the
// queue, which asks for it then.
func (r *Reconciler) retry(
	ctx context.Context, req reconcile.Request, task *task, namespace *corev1.Namespace, err error,
) error {
	reason := ReasonRetrying
	var panicked *panicError
	if errors.As(err, &panicked) {
		reason = ReasonPanicked
	}
	r.publish(ctx, task, namespace, corev1.ConditionFalse, reason, err.Error())
	task.failures++
	delay := r.Backoff.after(task.failures)
	task.retryAt = r.Clock.Now().Add(delay)
	r.delays.Store(req, delay)
	// controller-runtime never comes back to what is terminal, and here everything is tried again.
	if errors.Is(err, reconcile.TerminalError(nil)) {
		return fmt.Errorf("%s, namespace %q: %s", r.Work.Name, namespace.Name, err.Error())
	}
	return fmt.Errorf("%s, namespace %q: %w", r.Work.Name, namespace.Name, err)
}

// reason returns a reason for the condition, which is never one of the operator's own.
func (r *Reconciler) reason(given, otherwise string) string {
	if given == "" || (r.Work.IsReserved != nil && r.Work.IsReserved(given)) {
		return otherwise
	}
	return given
}

// limiter tells the queue when to come back to what has failed, which the reconciler knows.
type limiter struct{ reconciler *Reconciler }

// When returns how long to wait after an error.
func (l limiter) When(req reconcile.Request) time.Duration {
	if delay, found := l.reconciler.delays.LoadAndDelete(req); found {
		return delay.(time.Duration)
	}
	return l.reconciler.Backoff.First
}

// Forget does nothing: the reconciler forgets by itself.
func (limiter) Forget(reconcile.Request) {}

// NumRequeues is for people alone, and nobody asks.
func (limiter) NumRequeues(reconcile.Request) int { return 0 }
