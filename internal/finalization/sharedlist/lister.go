// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedlist

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/finalization/throttling"
)

// PageSize is the maximum number of objects on a page of kube-apiserver.
const PageSize = 500

// PageLimit returns the limit of a list request. Requests to aggregated API servers have no limit, because a server may
// apply the limit before it filters objects, or drop the continue token. A list could then lack objects.
func PageLimit(isAggregated bool) int64 {
	if isAggregated {
		return 0
	}
	return PageSize
}

const (
	// batchDelay is how long a batch waits for more requests.
	batchDelay = 10 * time.Millisecond
	// batchInterval is the minimum time between two batches. If a second batch is needed, there are many
	// namespaces, and the longer the batch waits, the more namespaces share its lists.
	batchInterval = 250 * time.Millisecond
	// batchTimeout is how long the next batch waits for the previous one if the list of a type gets no response, for
	// example because a conversion webhook does not respond.
	batchTimeout = 2 * time.Second
	// listLifetime is how long a cluster-wide list is kept for later requests.
	listLifetime = 2 * time.Second
	// failureLifetime is how long a type is listed per namespace after a cluster-wide list has failed.
	failureLifetime = time.Minute
	// maxConcurrentPerType limits the concurrent list requests of a batch for one type, so that a server that does
	// not respond does not block the lists of other types.
	maxConcurrentPerType = 8
	// maxConcurrentPerAggregatedType is the limit for a type of an aggregated API server. It is higher, because the
	// server may respond for only some namespaces, and they must not wait for the others.
	maxConcurrentPerAggregatedType = 32
)

// Lister lists the objects in namespaces. It collects calls in batches, and in each batch it lists a
// type once for all namespaces if that is cheaper. It reuses a cluster-wide list for later calls
// until listLifetime has passed.
type Lister struct {
	Options

	lock sync.Mutex
	// pending contains the requests for the next batch.
	pending []*request
	// isRunning reports whether a batch is running or scheduled.
	isRunning bool
	lastBatch time.Time
	lists     map[schema.GroupVersionResource]*clusterList
	// failures contains the times of the last failed cluster-wide lists.
	failures map[schema.GroupVersionResource]time.Time
}

// Options configures a Lister. All fields are required.
type Options struct {
	Client metadata.Interface
	Clock  clock.PassiveClock
	// Limiter returns the limiter for the types of kube-apiserver, or for those of aggregated API servers.
	Limiter func(isAggregated bool) *throttling.Limiter
	// IsAggregated reports whether an aggregated API server serves a group version.
	IsAggregated func(schema.GroupVersion) bool
	// CountRequest is called before each list request.
	CountRequest func()
}

// New returns a Lister.
func New(options Options) *Lister {
	return &Lister{
		Options: options,
		lists:   map[schema.GroupVersionResource]*clusterList{}, failures: map[schema.GroupVersionResource]time.Time{},
	}
}

// List returns one result for each of the given types, from list requests that were sent at notBefore or
// later. It returns an error only if the context is done.
func (l *Lister) List(
	ctx context.Context, namespace string, types []schema.GroupVersionResource, notBefore time.Time,
) ([]*Result, error) {
	if len(types) == 0 {
		return nil, nil
	}
	call := &request{
		namespace: namespace, types: types, notBefore: notBefore,
		results: make([]*Result, len(types)), missing: len(types), done: make(chan struct{}),
	}
	l.completeOrEnqueue(call)
	select {
	case <-call.done:
		return call.results, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// completeOrEnqueue completes a request from existing lists. If this is not possible, it adds the request
// to the next batch.
func (l *Lister) completeOrEnqueue(call *request) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.deleteExpiredLists()
	if l.applyLists(call); call.missing == 0 {
		return
	}
	l.pending = append(l.pending, call)
	if !l.isRunning {
		l.isRunning = true
		go l.runBatches()
	}
}

// applyLists adds the results of existing lists to a request. The caller must hold the lock.
func (l *Lister) applyLists(call *request) {
	for i, gvr := range call.types {
		list := l.lists[gvr]
		if call.results[i] == nil && list != nil && !list.requestedAt.Before(call.notBefore) {
			if result := list.resultFor(call.namespace); result != nil {
				call.set(i, result)
			}
		}
	}
}

// runBatches runs batches until no request is pending.
func (l *Lister) runBatches() {
	for {
		// This uses the real time, not the injected clock, because it affects only the number of requests.
		if left := batchInterval - time.Since(l.lastBatch); left > batchDelay {
			time.Sleep(left)
		} else {
			time.Sleep(batchDelay)
		}
		l.lock.Lock()
		calls := l.pending
		l.pending = nil
		l.lock.Unlock()

		select {
		case <-l.startBatch(calls):
		case <-time.After(batchTimeout):
		}

		l.lock.Lock()
		l.lastBatch = time.Now()
		isLast := len(l.pending) == 0
		l.isRunning = !isLast
		l.lock.Unlock()
		if isLast {
			// Free the memory of cluster-wide lists, because the next request may come much later.
			time.AfterFunc(2*listLifetime, func() {
				l.lock.Lock()
				defer l.lock.Unlock()
				l.deleteExpiredLists()
			})
			return
		}
	}
}

// deleteExpiredLists deletes the cluster-wide lists that are too old. The caller must hold the lock.
func (l *Lister) deleteExpiredLists() {
	for gvr, list := range l.lists {
		if l.Clock.Since(list.requestedAt) > listLifetime {
			delete(l.lists, gvr)
		}
	}
}

// startBatch lists the types of the given requests concurrently. It closes the returned channel when
// all types of kube-apiserver are listed. The next batch need not wait for the lists of aggregated API servers, because
// it could not share them.
func (l *Lister) startBatch(calls []*request) <-chan struct{} {
	missing := map[schema.GroupVersionResource][]missingResult{}
	l.lock.Lock()
	for _, call := range calls {
		l.applyLists(call)
		for i, gvr := range call.types {
			if call.results[i] == nil {
				missing[gvr] = append(missing[gvr], missingResult{call, i})
			}
		}
	}
	l.lock.Unlock()
	var group sync.WaitGroup
	for gvr, calls := range missing {
		if l.IsAggregated(gvr.GroupVersion()) {
			go l.listType(gvr, calls)
			continue
		}
		group.Go(func() { l.listType(gvr, calls) })
	}
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	return done
}

// listType lists one type for the given requests, either cluster-wide or in each namespace, whichever
// is cheaper.
func (l *Lister) listType(gvr schema.GroupVersionResource, calls []missingResult) {
	if len(calls) > maxUncounted && l.mayListClusterWide(gvr) {
		list, err := l.listClusterWide(gvr, calls)
		if list != nil || apierrors.IsTooManyRequests(err) {
			l.completeAll(gvr, calls, list, err)
			return
		}
	}
	l.listPerNamespace(gvr, calls)
}

func (l *Lister) listPerNamespace(gvr schema.GroupVersionResource, calls []missingResult) {
	// sharedError is set if the server of the type does not respond or throttles requests. The other
	// requests then get the same error without being sent. If each of hundreds of requests timed out
	// instead, the last one would wait for hours.
	var sharedError atomic.Pointer[error]
	var group errgroup.Group
	group.SetLimit(maxConcurrentPerType)
	if l.IsAggregated(gvr.GroupVersion()) {
		group.SetLimit(maxConcurrentPerAggregatedType)
	}
	for _, call := range calls {
		group.Go(func() error {
			result := &Result{}
			if err := sharedError.Load(); err != nil {
				result.Err = *err
			} else {
				limit := PageLimit(l.IsAggregated(gvr.GroupVersion()))
				result.Page, result.Err = l.list(gvr, call.namespace, metav1.ListOptions{Limit: limit})
				if errors.Is(result.Err, context.DeadlineExceeded) || apierrors.IsTimeout(result.Err) ||
					apierrors.IsTooManyRequests(result.Err) {
					sharedError.Store(&result.Err)
				}
			}
			result.ListedAt = l.Clock.Now()
			l.lock.Lock()
			defer l.lock.Unlock()
			call.set(call.index, result)
			return nil
		})
	}
	_ = group.Wait()
}

// completeAll adds the results of a cluster-wide list to all requests for a type. If the list request
// was throttled, they get its error, because a list in each namespace would increase the load.
func (l *Lister) completeAll(
	gvr schema.GroupVersionResource, calls []missingResult, list *clusterList, err error,
) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if list != nil {
		l.lists[gvr] = list
	}
	for _, call := range calls {
		result := &Result{Err: err}
		if list != nil {
			result = list.resultFor(call.namespace)
		}
		call.set(call.index, result)
	}
}

// mayListClusterWide reports whether a type may be listed cluster-wide: kube-apiserver must serve
// it, and no cluster-wide list of this type may have failed recently. A cluster-wide list fails if
// any object in the cluster cannot be converted.
func (l *Lister) mayListClusterWide(gvr schema.GroupVersionResource) bool {
	if l.IsAggregated(gvr.GroupVersion()) {
		return false
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	failedAt, ok := l.failures[gvr]
	return !ok || l.Clock.Since(failedAt) > failureLifetime
}

// listClusterWide lists a type cluster-wide if that is cheaper than one list for each request.
// Otherwise, or if a request fails, it returns nil. Its first request has a limit of 1, and the response
// contains the number of remaining objects.
func (l *Lister) listClusterWide(
	gvr schema.GroupVersionResource, calls []missingResult,
) (*clusterList, error) {
	list := &clusterList{
		requestedAt: l.Clock.Now(), objects: map[string][]metav1.PartialObjectMetadata{}, otherNamespaces: sets.New[string](),
	}
	page, err := l.listClusterPage(gvr, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	if page.Continue != "" {
		if page.RemainingItemCount == nil || !isClusterWideCheaper(len(calls), 1+*page.RemainingItemCount) {
			return nil, nil
		}
		// Starting a new list instead of continuing the first one saves a request.
		if page, err = l.listClusterPage(gvr, metav1.ListOptions{Limit: PageSize}); err != nil {
			return nil, err
		}
	}
	namespaces := sets.New[string]()
	for _, call := range calls {
		namespaces.Insert(call.namespace)
	}
	for {
		list.add(page.Items, namespaces)
		if page.Continue == "" {
			list.complete(page.ResourceVersion, l.Clock.Now())
			return list, nil
		}
		page, err = l.listClusterPage(gvr, metav1.ListOptions{Limit: PageSize, Continue: page.Continue})
		if err != nil {
			return nil, err
		}
	}
}

// listClusterPage lists one page in all namespaces. It records a failure unless the request was
// throttled.
func (l *Lister) listClusterPage(
	gvr schema.GroupVersionResource, options metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	page, err := l.list(gvr, metav1.NamespaceAll, options)
	if err != nil && !apierrors.IsTooManyRequests(err) {
		l.lock.Lock()
		defer l.lock.Unlock()
		l.failures[gvr] = l.Clock.Now()
	}
	return page, err
}

// list sends one list request. The request has no resourceVersion, so it is a consistent read. It
// does not use the context of a caller, because other callers share the result.
func (l *Lister) list(
	gvr schema.GroupVersionResource, namespace string, options metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	options.TimeoutSeconds = ptr.To(int64(throttling.RequestTimeout.Seconds()))
	var page *metav1.PartialObjectMetadataList
	err := l.Limiter(l.IsAggregated(gvr.GroupVersion())).Do(context.Background(), func(ctx context.Context) error {
		var err error
		l.CountRequest()
		page, err = l.Client.Resource(gvr).Namespace(namespace).List(ctx, options)
		return err
	})
	if err != nil {
		return nil, err
	}
	trimMetadata(page)
	return page, nil
}

// trimMetadata keeps only the fields that a pass needs, because many pages can be kept in memory at the
// same time.
func trimMetadata(page *metav1.PartialObjectMetadataList) {
	for i := range page.Items {
		object := &page.Items[i]
		object.ObjectMeta = metav1.ObjectMeta{
			Namespace: object.Namespace, Name: object.Name, UID: object.UID,
			DeletionTimestamp: object.DeletionTimestamp, Finalizers: object.Finalizers,
		}
	}
}
