// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Requests adds requests for cluster-scoped objects to the queues of one or more controllers. Requests
// before a controller starts are dropped, because it then reconciles everything.
type Requests struct {
	mutex  sync.RWMutex
	queues []priorityqueue.PriorityQueue[reconcile.Request]
}

// Source adds the queue of the controller that watches it.
func (r *Requests) Source() source.Source {
	return source.Func(func(_ context.Context, queue requestQueue) error {
		prioritized, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request])
		if !ok {
			return fmt.Errorf("the queue is a %T, and has no priorities", queue)
		}
		r.mutex.Lock()
		defer r.mutex.Unlock()
		r.queues = append(r.queues, prioritized)
		return nil
	})
}

// Add adds requests. Requests with low priority are handled after all others.
func (r *Requests) Add(isLowPriority bool, names ...string) {
	priority := 0
	if isLowPriority {
		priority = handler.LowPriority
	}
	r.add(names, priorityqueue.AddOpts{Priority: &priority})
}

// AddAfter adds requests after a delay.
func (r *Requests) AddAfter(delay time.Duration, names ...string) {
	r.add(names, priorityqueue.AddOpts{After: delay})
}

func (r *Requests) add(names []string, options priorityqueue.AddOpts) {
	r.mutex.RLock()
	defer r.mutex.RUnlock()
	for _, queue := range r.queues {
		for _, name := range names {
			queue.AddWithOpts(options, requestFor(name))
		}
	}
}
