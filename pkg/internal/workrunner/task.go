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

// errNoMatch is the cause with which the context of a call is canceled.
var errNoMatch = errors.New("the namespace no longer matches")

type task struct {
	// matching is canceled when the Namespace no longer matches.
	matching context.Context
	cancel   context.CancelFunc

	// publishing is locked while a condition is published. published is the Namespace as it was when
	// the last condition was published; nil before that.
	publishing sync.Mutex
	published  *corev1.Namespace

	// readySince is the time when the Namespace was first seen ready; zero before that. It does not
	// change afterwards.
	readySince time.Time

	// Only Reconcile uses the other fields. It does not run concurrently for the same name.

	// mayBeStale is true if the cache might not show yet that a previous leader has handled the
	// Namespace.
	mayBeStale bool
	// isPrepared is true after Handler.Prepare has succeeded.
	isPrepared bool
	// isCompleted is true when the function has completed and only the outcome must be written. The
	// outcome is failed if it is not nil, and result otherwise.
	isCompleted bool
	result      Result
	failed      *FailedError
	// failures is the number of consecutive errors. The function is not called again before retryAt.
	failures int
	retryAt  time.Time
}

// startCall returns a context that is canceled when the Namespace no longer matches. The caller
// must call endCall when the call has returned.
func (t *task) startCall(ctx context.Context) (callCtx context.Context, endCall func()) {
	callCtx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.matching, func() { cancel(errNoMatch) })
	return callCtx, func() {
		stop()
		cancel(nil)
	}
}

func (t *task) hasPublished() bool {
	t.publishing.Lock()
	defer t.publishing.Unlock()
	return t.published != nil
}

// tasks holds the tasks of all matching Namespaces. Only watch events add and remove tasks, in the
// order of the events, so no task is leaked.
type tasks struct {
	mutex sync.Mutex
	byUID map[types.UID]*task
}

func (t *tasks) find(uid types.UID) *task {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.byUID[uid]
}

// add adds a task for a Namespace, and reports whether the task is new. mayBeStale is true if the
// cache might not show yet that a previous leader has handled the Namespace.
func (t *tasks) add(uid types.UID, mayBeStale bool) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.byUID == nil {
		t.byUID = map[types.UID]*task{}
	}
	if t.byUID[uid] != nil {
		return false
	}
	matching, cancel := context.WithCancel(context.Background())
	t.byUID[uid] = &task{matching: matching, cancel: cancel, mayBeStale: mayBeStale}
	return true
}

// setReady records that a Namespace is ready, and reports whether it was not ready before.
func (t *tasks) setReady(uid types.UID, now time.Time) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	found := t.byUID[uid]
	if found == nil || !found.readySince.IsZero() {
		return false
	}
	found.readySince = now
	return true
}

// remove removes a task, and reports whether its Namespace was ready.
func (t *tasks) remove(uid types.UID) (wasReady bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	found := t.byUID[uid]
	if found == nil {
		return false
	}
	found.cancel()
	delete(t.byUID, uid)
	return !found.readySince.IsZero()
}
