// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// errNotOwed is the cause with which a call is cancelled.
var errNotOwed = errors.New("the namespace is not owed this work any more")

// task is what is remembered of one Namespace, for as long as it is owed the work.
type task struct {
	mutex sync.Mutex
	// cancel ends the call that is under way; nil if there is none.
	cancel context.CancelCauseFunc
	// isOver says that the Namespace is not owed the work any more.
	isOver bool

	// publishing is held during the write of a condition, and published is the one that was
	// written last; nil if none was.
	publishing sync.Mutex
	published  *corev1.NamespaceCondition

	// The rest is for Reconcile alone, which one worker at a time does for one name.

	// isInherited says that the cache may not have heard yet that the work is done.
	isInherited bool
	// isPrepared says that all is there for the first call.
	isPrepared bool
	// isSettled says that there is nothing left to do but to write what came of it: result,
	// or final where that is not nil.
	isSettled bool
	result    Result
	final     *Final
	// failures counts the errors in a row, and the next attempt is not before retryAt.
	failures int
	retryAt  time.Time
}

// begin returns a context for a call, which ends with the task, and a function to be called
// when the call has returned.
func (t *task) begin(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.cancel = cancel
	if t.isOver {
		cancel(errNotOwed)
	}
	return ctx, func() {
		t.mutex.Lock()
		defer t.mutex.Unlock()
		t.cancel = nil
		cancel(nil)
	}
}

// end cancels a call that is under way.
func (t *task) end() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.isOver = true
	if t.cancel != nil {
		t.cancel(errNotOwed)
	}
}

func (t *task) hasPublished() bool {
	t.publishing.Lock()
	defer t.publishing.Unlock()
	return t.published != nil
}

func (t *task) over() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.isOver
}

// tasks are those of all Namespaces that are owed the work. Only the watch adds and removes
// them, in the order of its events, so none is left behind.
type tasks struct {
	mutex sync.Mutex
	byUID map[types.UID]*task
}

func (t *tasks) find(uid types.UID) *task {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.byUID[uid]
}

// add tells whether there was none. One that is inherited may have been done by another process.
func (t *tasks) add(uid types.UID, isInherited bool) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.byUID == nil {
		t.byUID = map[types.UID]*task{}
	}
	if t.byUID[uid] != nil {
		return false
	}
	t.byUID[uid] = &task{isInherited: isInherited}
	return true
}

func (t *tasks) remove(uid types.UID) {
	t.mutex.Lock()
	found := t.byUID[uid]
	delete(t.byUID, uid)
	t.mutex.Unlock()
	if found != nil {
		found.end()
	}
}
