// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// reconciler runs the Handler for each Namespace that matches.
type reconciler struct {
	Handler
	// cache is the cache of Namespaces.
	cache client.Reader
	// client reads and writes without a cache.
	client client.Client
	clock  clock.PassiveClock
	// backoff is the backoff before the first error.
	backoff wait.Backoff
	// heartbeatInterval is the time after which the condition reports a running call.
	heartbeatInterval time.Duration
	logForbidden      sync.Once

	mutex   sync.Mutex
	records map[types.UID]*record
}

func newReconciler(handler Handler, cache client.Reader, c client.Client, backoff Backoff) *reconciler {
	return &reconciler{
		Handler: handler, cache: cache, client: c, clock: clock.RealClock{}, heartbeatInterval: heartbeatInterval,
		backoff: wait.Backoff{Duration: backoff.First, Factor: 2, Steps: math.MaxInt32, Cap: backoff.Max},
		records: map[types.UID]*record{},
	}
}

// record is what the reconciler knows about one matching Namespace.
type record struct {
	// matching is canceled when the Namespace no longer matches.
	matching context.Context
	cancel   context.CancelFunc

	// Only Reconcile uses the other fields. It does not run concurrently for the same name.

	// isCompleted is true when the function has completed and only the outcome must be written. The outcome is failed
	// if it is not nil, and result otherwise.
	isCompleted bool
	result      Result
	failed      *FailedError
	// retryAt is the time before which the Namespace is not processed again after an error. backoff is the delay after
	// the next error.
	retryAt time.Time
	backoff wait.Backoff
}

// observe handles the Namespace in a watch event, and reports whether it matches. Only watch events add and remove
// records, in the order of the events, so no record is leaked.
func (r *reconciler) observe(namespace *corev1.Namespace) bool {
	if !r.Match(namespace) {
		r.forget(namespace.UID)
		return false
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.records[namespace.UID] == nil {
		matching, cancel := context.WithCancel(context.Background())
		r.records[namespace.UID] = &record{matching: matching, cancel: cancel, backoff: r.backoff}
	}
	return true
}

// forget discards the record of a Namespace that was deleted or no longer matches, and cancels a running call.
func (r *reconciler) forget(uid types.UID) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if found := r.records[uid]; found != nil {
		found.cancel()
		delete(r.records, uid)
	}
}

func (r *reconciler) find(uid types.UID) *record {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.records[uid]
}

// Reconcile processes one Namespace if it matches.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var namespace corev1.Namespace
	if err := r.cache.Get(ctx, req.NamespacedName, &namespace); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	found := r.find(namespace.UID)
	if found == nil || !r.Match(&namespace) {
		return reconcile.Result{}, nil
	}
	// A watch event does not shorten the backoff.
	if left := found.retryAt.Sub(r.clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	defer func() {
		if value := recover(); value != nil {
			r.retry(ctx, found, &namespace, reasonPanicked, panicMessage(value))
			panic(value) // The controller recovers, counts and logs the panic.
		}
	}()
	err := r.process(ctx, found, &namespace)
	if err == nil || found.matching.Err() != nil || errors.Is(ctx.Err(), context.Canceled) {
		return reconcile.Result{}, nil
	}
	var notYet *NotYetError
	if errors.As(err, &notYet) {
		found.backoff = r.backoff
		r.publish(ctx, &namespace, corev1.ConditionFalse, r.reason(notYet.Reason, reasonWaiting), notYet.Message)
		if notYet.After <= 0 {
			notYet = &NotYetError{After: r.backoff.Duration}
		}
		return reconcile.Result{RequeueAfter: notYet.After}, nil
	}
	r.retry(ctx, found, &namespace, reasonRetrying, err.Error())
	// controller-runtime does not retry terminal errors, so such an error must not be wrapped.
	return reconcile.Result{}, errors.New(err.Error())
}

// retry publishes an error, and delays the next call. The controller requeues the Namespace.
func (r *reconciler) retry(
	ctx context.Context, found *record, namespace *corev1.Namespace, reason, message string,
) {
	r.publish(ctx, namespace, corev1.ConditionFalse, reason, message)
	found.retryAt = r.clock.Now().Add(found.backoff.Step())
}

// process calls the function unless it has completed, and writes the outcome.
func (r *reconciler) process(ctx context.Context, found *record, namespace *corev1.Namespace) error {
	if !found.isCompleted {
		if err := r.call(ctx, found, namespace); err != nil {
			return err
		}
	}
	if found.failed != nil {
		isDone, err := r.Fail(ctx, namespace, found.failed)
		if isDone {
			log.FromContext(ctx).Info("Recorded a permanent failure", "uid", namespace.UID,
				"reason", found.failed.Reason, "message", found.failed.Message)
		}
		return nsobject.IgnoreStale(err)
	}
	isDone, err := r.Finish(ctx, namespace)
	if err != nil || !isDone {
		return nsobject.IgnoreStale(err)
	}
	log.FromContext(ctx).Info("Recorded the completion of the function", "uid", namespace.UID)
	result := found.result
	if result == (Result{}) {
		result.Message = r.DoneMessage
	}
	// If no finalizers remain, the write has deleted the Namespace.
	if result != (Result{}) && !nsobject.LacksFinalizers(namespace) {
		r.publish(ctx, namespace, corev1.ConditionTrue, r.reason(result.Reason, r.DoneReason), result.Message)
	}
	return nil
}

// call calls the function, and records the outcome if it succeeds or fails permanently.
func (r *reconciler) call(ctx context.Context, found *record, namespace *corev1.Namespace) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(found.matching, cancel)()
	progress := &progress{reconciler: r, namespace: namespace}
	defer progress.stop()
	copied := namespace.DeepCopy() // From here on, progress guards the Namespace.
	go progress.publishHeartbeat(ctx)
	result, err := r.Call(context.WithValue(ctx, progressKey{}, progress), copied)

	var failed *FailedError
	if errors.As(err, &failed) && failed != nil && r.Fail != nil {
		err = nil
	}
	if err == nil {
		found.isCompleted, found.result, found.failed = true, result, failed
		found.backoff = r.backoff
	}
	return err
}

// reason returns the given reason. If that is empty or reserved for the operator, it returns the alternative.
func (r *reconciler) reason(given, alternative string) string {
	if given == "" || (r.IsReserved != nil && r.IsReserved(given)) {
		return alternative
	}
	return given
}
