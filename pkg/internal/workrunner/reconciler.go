// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// publishTimeout limits the write of the condition after the deadline of a reconciliation has
// expired.
const publishTimeout = 10 * time.Second

// Reconciler runs the Handler for each Namespace that matches.
type Reconciler struct {
	Handler Handler
	// Cache is the cache of Namespaces.
	Cache client.Reader
	// Client reads and writes without a cache.
	Client  client.Client
	Clock   clock.PassiveClock
	Backoff Backoff
	// HeartbeatInterval is the time after which the condition reports a running call. If publishing
	// fails, it is repeated at this interval. The default is DefaultHeartbeatInterval.
	HeartbeatInterval time.Duration
	// StaleCacheWindow is the maximum clock skew between this process and the API server. The
	// previous leader might already have handled a Namespace that is older than this process, even
	// if the cache does not show this yet. Therefore, such a Namespace is first read from the API
	// server. Zero disables the read.
	StaleCacheWindow time.Duration

	start     sync.Once
	startedAt time.Time
	tasks     tasks
	delays    sync.Map
	// forbiddenUntil is the end of the interval in which no conditions are published. It is nil if no
	// write has failed because of a missing permission yet.
	forbiddenUntil atomic.Pointer[time.Time]
}

// Backoff is the delay after an error. It doubles from First to Max.
type Backoff struct {
	First, Max time.Duration
}

// after returns the delay after the given number of consecutive errors.
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

// Track records the Namespace in a watch event, and reports whether the Namespace is a new match.
// Reconcile skips Namespaces that are not tracked.
func (r *Reconciler) Track(namespace *corev1.Namespace) (isNew bool) {
	r.start.Do(func() { r.startedAt = r.Clock.Now() })
	if r.Handler.Match(namespace) {
		isOlder := matchedSince(namespace).Before(r.startedAt.Add(r.StaleCacheWindow))
		isNew = r.tasks.add(namespace.UID, r.StaleCacheWindow > 0 && isOlder)
		if r.Handler.Ready == nil || r.Handler.Ready(namespace) {
			r.setReady(namespace)
		}
		return isNew
	}
	r.Untrack(namespace)
	return false
}

// matchedSince returns the earliest time at which the Namespace might have started to match, in
// whole seconds.
func matchedSince(namespace *corev1.Namespace) time.Time {
	if namespace.DeletionTimestamp != nil {
		return namespace.DeletionTimestamp.Time
	}
	return namespace.CreationTimestamp.Time
}

// Untrack removes a Namespace that was deleted or no longer matches, and cancels a running call.
func (r *Reconciler) Untrack(namespace *corev1.Namespace) {
	if r.tasks.remove(namespace.UID) {
		currentNamespaces.WithLabelValues(r.Handler.Name).Dec()
	}
}

// Reconcile processes one Namespace if it is ready.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var namespace corev1.Namespace
	if err := r.Cache.Get(ctx, req.NamespacedName, &namespace); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	task := r.tasks.find(namespace.UID)
	if task == nil || !r.isReady(&namespace) {
		return reconcile.Result{}, nil
	}
	// A change of another object can trigger the reconciliation before the event of the Namespace.
	r.setReady(&namespace)
	// A watch event does not shorten the backoff.
	if left := task.retryAt.Sub(r.Clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	err := r.process(ctx, task, &namespace)
	if errors.Is(ctx.Err(), context.Canceled) || task.matching.Err() != nil || err == nil {
		return reconcile.Result{}, nil
	}
	// The manager's ReconciliationTimeout has expired. This is an ordinary error, which is published
	// and retried.
	if ctx.Err() != nil {
		publishCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
		defer cancel()
		ctx = publishCtx
	}
	var notYet *NotYetError
	if errors.As(err, &notYet) {
		return reconcile.Result{RequeueAfter: r.handleNotYet(ctx, task, &namespace, notYet)}, nil
	}
	return reconcile.Result{}, r.retry(ctx, req, task, &namespace, err)
}

func (r *Reconciler) setReady(namespace *corev1.Namespace) {
	if r.tasks.setReady(namespace.UID, r.Clock.Now()) {
		currentNamespaces.WithLabelValues(r.Handler.Name).Inc()
	}
}

func (r *Reconciler) isReady(namespace *corev1.Namespace) bool {
	return r.Handler.Match(namespace) && (r.Handler.Ready == nil || r.Handler.Ready(namespace))
}

// process calls the function unless it has completed, and writes the outcome.
func (r *Reconciler) process(ctx context.Context, task *task, namespace *corev1.Namespace) error {
	if !task.isCompleted {
		if err := r.prepare(ctx, task, namespace); err != nil || !r.isReady(namespace) {
			return ignoreDeleted(err)
		}
		if err := r.call(ctx, task, namespace); err != nil {
			return err
		}
	}
	if task.failed != nil {
		isDone, err := r.Handler.Fail(ctx, namespace, task.failed)
		if err != nil || !isDone {
			return ignoreDeleted(err)
		}
		r.observeCompletion(task, resultFailed)
		log.FromContext(ctx).Info("Recorded a permanent failure", "uid", namespace.UID,
			"reason", task.failed.Reason, "message", task.failed.Message)
		return nil
	}
	isDone, err := r.Handler.Finish(ctx, namespace)
	if err != nil || !isDone {
		return ignoreDeleted(err)
	}
	r.observeCompletion(task, resultSucceeded)
	log.FromContext(ctx).Info("Recorded the completion of the function", "uid", namespace.UID)
	result := task.result
	if result == (Result{}) {
		result.Message = r.Handler.DoneMessage
	}
	// If no finalizers remain, the write has deleted the Namespace.
	if result != (Result{}) && !isDeleted(namespace) {
		r.publish(ctx, task, namespace, corev1.ConditionTrue,
			r.reason(result.Reason, r.Handler.DoneReason), result.Message)
	}
	return nil
}

// ignoreDeleted returns nil if the Namespace does not exist.
func ignoreDeleted(err error) error {
	if nsobject.IsNotFound(err) {
		return nil
	}
	return err
}

// isDeleted reports whether a terminating Namespace has no finalizers, in which case the API server
// deletes it.
func isDeleted(namespace *corev1.Namespace) bool {
	return namespace.DeletionTimestamp != nil && len(namespace.Spec.Finalizers) == 0 && len(namespace.Finalizers) == 0
}

// prepare reads a possibly stale Namespace from the API server and calls Handler.Prepare, before
// the first call. It updates the given object.
func (r *Reconciler) prepare(ctx context.Context, task *task, namespace *corev1.Namespace) error {
	if task.isPrepared {
		return nil
	}
	if task.mayBeStale {
		if err := Refresh(ctx, r.Client, namespace); err != nil {
			return err
		}
	}
	if r.Handler.Prepare != nil && r.isReady(namespace) {
		if err := r.Handler.Prepare(ctx, namespace); err != nil {
			return err
		}
	}
	task.isPrepared = r.isReady(namespace)
	return nil
}

// call calls the function, and marks the task as completed if it succeeds or fails permanently.
func (r *Reconciler) call(ctx context.Context, task *task, namespace *corev1.Namespace) error {
	callCtx, endCall := task.startCall(ctx)
	progress := &progress{reconciler: r, task: task, namespace: namespace}
	go progress.publishHeartbeats(callCtx, cmp.Or(r.HeartbeatInterval, DefaultHeartbeatInterval))
	result, err := r.callRecovering(context.WithValue(callCtx, progressKey{}, progress), namespace.DeepCopy())
	progress.stop()
	callsTotal.WithLabelValues(r.Handler.Name, r.callResult(callCtx, err)).Inc()
	endCall()

	var failed *FailedError
	if errors.As(err, &failed) && r.Handler.Fail != nil {
		err = nil
	}
	if err == nil {
		task.isCompleted, task.result, task.failed = true, result, failed
		task.failures = 0
	}
	return err
}

func (r *Reconciler) callRecovering(ctx context.Context, namespace *corev1.Namespace) (result Result, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = LogPanic(log.FromContext(ctx).WithValues("uid", namespace.UID), logPanicked, value)
		}
	}()
	return r.Handler.Call(ctx, namespace)
}

// handleNotYet publishes why the call must wait, and returns the time until the next call.
func (r *Reconciler) handleNotYet(
	ctx context.Context, task *task, namespace *corev1.Namespace, notYet *NotYetError,
) time.Duration {
	task.failures = 0
	r.publish(ctx, task, namespace, corev1.ConditionFalse, r.reason(notYet.Reason, ReasonWaiting), notYet.Message)
	if notYet.After <= 0 {
		return r.Backoff.First
	}
	return notYet.After
}

// retry publishes an error and returns it. The delay is stored for backoffLimiter.
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
	// controller-runtime does not retry terminal errors, so such an error must not be wrapped.
	if errors.Is(err, reconcile.TerminalError(nil)) {
		return fmt.Errorf("%s, namespace %q: %s", r.Handler.Name, namespace.Name, err.Error())
	}
	return fmt.Errorf("%s, namespace %q: %w", r.Handler.Name, namespace.Name, err)
}

// reason returns the given reason. If that is empty or reserved for the operator, it returns the
// alternative.
func (r *Reconciler) reason(given, alternative string) string {
	if given == "" || (r.Handler.IsReserved != nil && r.Handler.IsReserved(given)) {
		return alternative
	}
	return given
}

type backoffLimiter struct{ reconciler *Reconciler }

// When returns the delay after an error.
func (l backoffLimiter) When(req reconcile.Request) time.Duration {
	if delay, ok := l.reconciler.delays.LoadAndDelete(req); ok {
		return delay.(time.Duration)
	}
	return l.reconciler.Backoff.First
}

// Forget does nothing: the reconciler counts the failures.
func (backoffLimiter) Forget(reconcile.Request) {}

// NumRequeues returns 0. It is not used.
func (backoffLimiter) NumRequeues(reconcile.Request) int { return 0 }
