// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// maxTemplateRetry is the longest delay between two attempts while few Namespaces fail. What prevents an attempt, for
	// example an object of another owner, a quota or a webhook, can disappear without an event that the operator watches.
	maxTemplateRetry = 5 * time.Second
	// retriesPerSecond limits the attempts for all Namespaces that fail: the delay increases with their number, up to
	// maxRetryDelay.
	retriesPerSecond = 100
)

// retryLimiter doubles the delay of a request after each failure, up to a limit that depends on how many requests fail.
type retryLimiter struct {
	workqueue.TypedRateLimiter[reconcile.Request]
	mutex   sync.Mutex
	failing sets.Set[reconcile.Request]
}

func newRetryLimiter(first time.Duration) *retryLimiter {
	return &retryLimiter{TypedRateLimiter: newRateLimiter(first), failing: sets.New[reconcile.Request]()}
}

// When returns the delay after a failure.
func (l *retryLimiter) When(request reconcile.Request) time.Duration {
	l.mutex.Lock()
	l.failing.Insert(request)
	failing := l.failing.Len()
	l.mutex.Unlock()
	return min(l.TypedRateLimiter.When(request), longestRetry(failing))
}

// Forget is called after a success.
func (l *retryLimiter) Forget(request reconcile.Request) {
	l.mutex.Lock()
	l.failing.Delete(request)
	l.mutex.Unlock()
	l.TypedRateLimiter.Forget(request)
}

// longestRetry returns the longest delay for a number of failing requests.
func longestRetry(failing int) time.Duration {
	return min(max(maxTemplateRetry, time.Duration(failing)*time.Second/retriesPerSecond), maxRetryDelay)
}
