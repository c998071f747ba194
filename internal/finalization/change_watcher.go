// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/finalization/throttling"
)

const (
	// watchDuration is how long the API server keeps a watch open.
	watchDuration = 10 * time.Minute
	// maxWatchBackoff limits the backoff after a failed watch. In the meantime, Namespaces are requeued
	// periodically.
	maxWatchBackoff = 30 * time.Second
	// minWatchDuration is the duration below which a closed watch is treated as failed. Otherwise, a
	// server that closes each watch immediately would receive continuous requests.
	minWatchDuration = time.Second
)

// changeWatcher requeues namespaces when their terminating objects change. For each type of these
// objects, it runs one cluster-wide metadata watch, because many namespaces wait for the same few
// types, mostly pods.
type changeWatcher struct {
	content metadata.Interface
	// notify is called after an event for an object that a namespace waits for. isLast reports whether
	// the last object was deleted. The function must not block, and must not call the changeWatcher.
	notify func(namespace string, isLast bool)
	log    logr.Logger

	lock       sync.Mutex
	namespaces map[string]*watchedNamespace
	// types contains the cancel functions of the running watches.
	types map[schema.GroupVersionResource]context.CancelFunc
}

// watchedNamespace is a namespace with a running pass, or with terminating objects.
type watchedNamespace struct {
	// awaited is the number of objects of each type whose deletion the namespace waits for.
	awaited map[schema.GroupVersionResource]int
	// changed contains the types that had an event since the start of the pass.
	changed map[schema.GroupVersionResource]bool
}

func newChangeWatcher(
	content metadata.Interface, notify func(namespace string, isLast bool), log logr.Logger,
) *changeWatcher {
	return &changeWatcher{
		content: content, notify: notify, log: log,
		namespaces: map[string]*watchedNamespace{}, types: map[schema.GroupVersionResource]context.CancelFunc{},
	}
}

// startPass must be called before a pass, so that no event during the pass is missed.
func (w *changeWatcher) startPass(namespace string) {
	w.lock.Lock()
	defer w.lock.Unlock()
	watched := w.namespaces[namespace]
	if watched == nil {
		watched = &watchedNamespace{}
		w.namespaces[namespace] = watched
	}
	watched.changed = map[schema.GroupVersionResource]bool{}
}

// endPass watches the objects that remain after a pass, starting at the resource versions of their
// lists, until the context is done.
func (w *changeWatcher) endPass(ctx context.Context, namespace string, remaining []Remaining) {
	w.lock.Lock()
	defer w.lock.Unlock()
	watched := w.namespaces[namespace]
	if watched == nil {
		return
	}
	before := watched.awaited
	watched.awaited = map[schema.GroupVersionResource]int{}
	hasChanged := false
	for i := range remaining {
		of := &remaining[i]
		if !of.Type.CanWatch || of.Terminating == 0 {
			continue // Only another pass can delete objects that are not terminating.
		}
		gvr := of.Type.GroupVersionResource
		watched.awaited[gvr] = of.Count
		_, wasAwaited := before[gvr]
		isRunning := w.types[gvr] != nil
		// A watch that already runs for another namespace may have handled an event that is more recent
		// than the list.
		hasChanged = hasChanged || watched.changed[gvr] || (isRunning && !wasAwaited)
		if !isRunning {
			watchContext, cancel := context.WithCancel(ctx)
			w.types[gvr] = cancel
			go w.run(watchContext, gvr, of.ResourceVersion)
		}
	}
	w.stopUnused()
	if hasChanged {
		w.notify(namespace, false)
	}
}

// forget stops watching the objects of a namespace.
func (w *changeWatcher) forget(namespace string) {
	w.lock.Lock()
	defer w.lock.Unlock()
	delete(w.namespaces, namespace)
	w.stopUnused()
}

func (w *changeWatcher) stopUnused() {
	for gvr, cancel := range w.types {
		isNeeded := false
		for _, watched := range w.namespaces {
			if _, ok := watched.awaited[gvr]; ok {
				isNeeded = true
				break
			}
		}
		if !isNeeded {
			cancel()
			delete(w.types, gvr)
		}
	}
}

// run watches a type until the context is done. If the resource version is empty, the watch starts at
// the current one.
func (w *changeWatcher) run(ctx context.Context, gvr schema.GroupVersionResource, resourceVersion string) {
	log := w.log.WithValues("resource", gvr.String())
	log.V(1).Info("Started a watch")
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 1000, Cap: maxWatchBackoff}
	for ctx.Err() == nil {
		var err error
		if resourceVersion == "" {
			if resourceVersion, err = w.currentResourceVersion(ctx, gvr); err == nil {
				w.handleGap(gvr)
			}
		}
		if err == nil {
			if resourceVersion, err = w.watchOnce(ctx, gvr, resourceVersion); err == nil {
				backoff.Duration, backoff.Steps = time.Second, 1000
				continue
			}
		}
		log.V(1).Info("A watch ended", "error", err.Error())
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
		}
	}
}

func (w *changeWatcher) currentResourceVersion(ctx context.Context, gvr schema.GroupVersionResource) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, throttling.RequestTimeout)
	defer cancel()
	list, err := w.content.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
}

// watchOnce handles the events of one watch. It returns the resource version for the next watch, or ""
// if that is unknown.
func (w *changeWatcher) watchOnce(
	ctx context.Context, gvr schema.GroupVersionResource, resourceVersion string,
) (string, error) {
	watcher, err := w.content.Resource(gvr).Watch(ctx, metav1.ListOptions{
		ResourceVersion: resourceVersion, AllowWatchBookmarks: true,
		TimeoutSeconds: ptr.To(int64(watchDuration.Seconds())),
	})
	if err != nil {
		if isExpired(err) {
			return "", err
		}
		return resourceVersion, err
	}
	defer watcher.Stop()
	openedAt := time.Now()
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(*metav1.PartialObjectMetadata)
		if event.Type == watch.Error || !ok {
			return "", errorOf(event)
		}
		resourceVersion = object.ResourceVersion
		if event.Type != watch.Bookmark {
			w.handleEvent(object.Namespace, gvr, event.Type == watch.Deleted)
		}
	}
	if duration := time.Since(openedAt); duration < minWatchDuration {
		return resourceVersion, fmt.Errorf("the server closed the watch after %s", duration)
	}
	return resourceVersion, nil
}

// handleEvent requeues a namespace after an event for one of its objects.
func (w *changeWatcher) handleEvent(namespace string, gvr schema.GroupVersionResource, isDeletion bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	watched := w.namespaces[namespace]
	if watched == nil {
		return
	}
	watched.changed[gvr] = true
	count, ok := watched.awaited[gvr]
	if !ok {
		return
	}
	if isDeletion {
		count--
		watched.awaited[gvr] = count
	}
	w.notify(namespace, count <= 0)
}

// handleGap requeues all namespaces that wait for a type. It is called if events may have been missed.
func (w *changeWatcher) handleGap(gvr schema.GroupVersionResource) {
	w.lock.Lock()
	defer w.lock.Unlock()
	for name, watched := range w.namespaces {
		watched.changed[gvr] = true
		if _, ok := watched.awaited[gvr]; ok {
			w.notify(name, false)
		}
	}
}

func errorOf(event watch.Event) error {
	if status, ok := event.Object.(*metav1.Status); ok {
		return &apierrors.StatusError{ErrStatus: *status}
	}
	return fmt.Errorf("unexpected %T in a watch event of type %q", event.Object, event.Type)
}
