// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
)

// births measure how long namespaces are initialized. They go by each event as it comes and
// not by what is reconciled: one reconciliation may stand for several events, and does not
// see when each of them was. What ended while no manager was there is not counted, since
// nobody knows when that was.
type births struct {
	lock sync.Mutex
	// byUID are the Namespaces that wait for initializers.
	byUID map[types.UID]*birth
}

type birth struct {
	// begun is when the Namespace was created.
	begun time.Time
	// written is when its progress was last written to its conditions.
	written time.Time
}

// handler observes events and makes no requests.
func (b *births) handler(passive clock.PassiveClock) handler.EventHandler {
	observe := func(object client.Object, isGone bool) {
		namespace, isNamespace := object.(*corev1.Namespace)
		if !isNamespace {
			return
		}
		now := passive.Now()
		if outcome, begun := b.observe(namespace, isGone, now); outcome != "" {
			metrics.InitializationDuration.WithLabelValues(outcome).Observe(metrics.Seconds(begun, now))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ requestQueue) { observe(e.Object, false) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ requestQueue) { observe(e.ObjectNew, false) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ requestQueue) { observe(e.Object, true) },
	}
}

// observe returns what came of an initialization, once, when it has ended, and when it began.
func (b *births) observe(namespace *corev1.Namespace, isGone bool, now time.Time) (string, time.Time) {
	b.lock.Lock()
	defer b.lock.Unlock()
	known, isKnown := b.byUID[namespace.UID]
	outcome := ""
	stage := initialization.Observe(namespace).Stage
	switch {
	case stage == initialization.StageFailed:
		outcome = metrics.OutcomeFailed // before it is deleted for that
	case isGone || namespace.DeletionTimestamp != nil:
		outcome = metrics.OutcomeDeleted
	case stage != initialization.StagePending:
		outcome = metrics.OutcomeCompleted
	case !isKnown:
		if b.byUID == nil {
			b.byUID = map[types.UID]*birth{}
		}
		b.byUID[namespace.UID] = &birth{begun: metrics.StartTime(namespace.CreationTimestamp, now)}
	}
	if !isKnown || outcome == "" {
		return "", time.Time{}
	}
	delete(b.byUID, namespace.UID)
	return outcome, known.begun
}

// untilProgress returns how long to wait before more progress is written to the conditions of
// a Namespace, so that there is that interval between two writes. They would slow down the
// initializers of which they tell, where those take less time than the writes do.
func (b *births) untilProgress(uid types.UID, now time.Time, interval time.Duration) time.Duration {
	b.lock.Lock()
	defer b.lock.Unlock()
	known, isKnown := b.byUID[uid]
	if !isKnown {
		return 0
	}
	return known.written.Add(interval).Sub(now)
}

// wroteProgress takes notice of such a write.
func (b *births) wroteProgress(uid types.UID, now time.Time) {
	b.lock.Lock()
	defer b.lock.Unlock()
	if known, isKnown := b.byUID[uid]; isKnown {
		known.written = now
	}
}
