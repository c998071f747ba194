// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
)

// initializationTracker measures how long initializations take. It handles every watch event,
// because a reconciliation can cover several events and cannot determine the time of each event. It
// does not measure initializations that end while no manager is running, because their duration is
// unknown.
type initializationTracker struct {
	lock sync.Mutex
	// byUID contains the Namespaces that wait for initializers.
	byUID map[types.UID]*trackedInitialization
}

type trackedInitialization struct {
	// start is the time when the Namespace was created.
	start time.Time
	// progressWritten is when progress was last written to the conditions.
	progressWritten time.Time
}

// handler returns an event handler that measures initializations. It enqueues no requests.
func (t *initializationTracker) handler(serverClock *servertime.Clock) handler.EventHandler {
	return handlerFor(func(_ context.Context, object client.Object, isDeleted bool, _ requestQueue) {
		namespace, ok := object.(*corev1.Namespace)
		if !ok {
			return
		}
		now := serverClock.Now()
		if outcome, start := t.record(namespace, isDeleted, now); outcome != "" {
			metrics.InitializationDuration.WithLabelValues(outcome).Observe(metrics.Seconds(start, now))
		}
	})
}

// record records the state of a Namespace. It returns the outcome and the start of an initialization in
// the first call after the initialization has ended.
func (t *initializationTracker) record(
	namespace *corev1.Namespace, isDeleted bool, now time.Time,
) (outcome string, start time.Time) {
	t.lock.Lock()
	defer t.lock.Unlock()
	tracked, ok := t.byUID[namespace.UID]
	phase := initialization.ParseState(namespace).Phase
	switch {
	case phase == initialization.PhaseFailed:
		outcome = metrics.OutcomeFailed // Checked first, because a failed Namespace is also deleted.
	case isDeleted || namespace.DeletionTimestamp != nil:
		outcome = metrics.OutcomeDeleted
	case phase != initialization.PhaseInitializing:
		outcome = metrics.OutcomeInitialized
	case !ok:
		if t.byUID == nil {
			t.byUID = map[types.UID]*trackedInitialization{}
		}
		t.byUID[namespace.UID] = &trackedInitialization{start: metrics.StartTime(namespace.CreationTimestamp, now)}
	}
	if !ok || outcome == "" {
		return "", time.Time{}
	}
	delete(t.byUID, namespace.UID)
	return outcome, tracked.start
}

// progressDelay returns how long to wait before progress is written to the conditions of a Namespace
// again. Writing every change would slow down initializers that take less time than a write.
func (t *initializationTracker) progressDelay(uid types.UID, now time.Time, interval time.Duration) time.Duration {
	t.lock.Lock()
	defer t.lock.Unlock()
	tracked, ok := t.byUID[uid]
	if !ok {
		return 0
	}
	return max(0, tracked.progressWritten.Add(interval).Sub(now))
}

// recordProgress records that progress was written.
func (t *initializationTracker) recordProgress(uid types.UID, now time.Time) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if tracked, ok := t.byUID[uid]; ok {
		tracked.progressWritten = now
	}
}
