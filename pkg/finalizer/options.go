// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// Option changes how a token is served.
type Option func(*options)

type options struct {
	workrunner.Options
	afterContent bool
	putOn        func(*corev1.Namespace) bool
	// isPutOn tells AddFinalizer(nil), which is a mistake, from no AddFinalizer at all.
	isPutOn bool
}

func newOptions(opts []Option) *options {
	o := &options{Options: workrunner.DefaultOptions()}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// WithWorkers sets how many Namespaces are worked on at a time; 4 if it is not given.
func WithWorkers(n int) Option {
	return func(o *options) { o.Workers = n }
}

// WithBackoff sets how long an attempt waits after an error: the first time, and, as the
// time doubles with each error, at most. 200 ms and 1 minute if it is not given.
func WithBackoff(first, max time.Duration) Option {
	return func(o *options) { o.Backoff = workrunner.Backoff{First: first, Max: max} }
}

// AfterContent has the function called only when everything in the Namespace is gone: when
// the token "kubernetes" has left spec.finalizers. What the Pods of the Namespace use until
// their end, such as a place for their logs, has to be there until then.
func AfterContent() Option {
	return func(o *options) { o.afterContent = true }
}

// AddFinalizer puts the token on Namespaces that exist without it and that the function selects, and
// on those that are created without it. That comes after the creation, so a Namespace may be
// deleted and gone before; and a Namespace that is being deleted gets none. The function is
// asked at each change of a Namespace, and must not wait for anything. A token that it does
// not select any more stays.
func AddFinalizer(selects func(namespace *corev1.Namespace) bool) Option {
	return func(o *options) { o.putOn, o.isPutOn = selects, true }
}
