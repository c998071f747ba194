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

	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

const (
	// watchDuration is how long the API server keeps a watch open.
	watchDuration = 10 * time.Minute
	// longestWatchDelay bounds the back-off of a watch that cannot be opened. Whoever waits
	// looks again at a deadline meanwhile.
	longestWatchDelay = 30 * time.Second
	// shortestWatch is how long a watch has to last for the next one to follow at once. A
	// server that ends each of them immediately would be asked without a pause otherwise.
	shortestWatch = time.Second
)

// Watches tell when something changes in namespaces that wait for objects to go. Of each
// type that anybody waits for there is one watch, of metadata alone and for the whole
// cluster: many namespaces wait for the same few types, pods first of all.
type Watches struct {
	content metadata.Interface
	wake    func(namespace string, isLast bool)
	log     logr.Logger

	lock       sync.Mutex
	namespaces map[string]*waiter
	// types are the running watches; the functions end them.
	types map[schema.GroupVersionResource]context.CancelFunc
}

// waiter is a namespace on which a pass is at work or that waits.
type waiter struct {
	// awaited is how many objects of each type it waits for.
	awaited map[schema.GroupVersionResource]int
	// changed are the types with an event since Begin.
	changed map[schema.GroupVersionResource]bool
}

// NewWatches returns Watches that call wake when something that a namespace waits for
// has changed. With isLast it was the last of the objects that were there, as far as can
// be told. Wake must not block, and must not call the Watches.
func NewWatches(content metadata.Interface, wake func(namespace string, isLast bool), log logr.Logger) *Watches {
	return &Watches{
		content: metadataclient.New(content), wake: wake, log: log,
		namespaces: map[string]*waiter{}, types: map[schema.GroupVersionResource]context.CancelFunc{},
	}
}

// Begin is to be called before a pass over a namespace, so that nothing that happens
// during the pass is missed.
func (w *Watches) Begin(namespace string) {
	w.lock.Lock()
	defer w.lock.Unlock()
	waiting := w.namespaces[namespace]
	if waiting == nil {
		waiting = &waiter{}
		w.namespaces[namespace] = waiting
	}
	waiting.changed = map[schema.GroupVersionResource]bool{}
}

// Await makes a namespace wait for what a pass has left. The watches go on from the
// lists of the pass, and end with the context.
func (w *Watches) Await(ctx context.Context, namespace string, remaining []Remaining) {
	w.lock.Lock()
	defer w.lock.Unlock()
	waiting := w.namespaces[namespace]
	if waiting == nil {
		return
	}
	before := waiting.awaited
	waiting.awaited = map[schema.GroupVersionResource]int{}
	hasChanged := false
	for i := range remaining {
		left := &remaining[i]
		if !left.Type.CanWatch || left.Terminating == 0 {
			continue // what nobody has deleted yet does not go by itself
		}
		gvr := left.Type.GroupVersionResource
		waiting.awaited[gvr] = left.Count
		_, wasAwaited := before[gvr]
		isRunning := w.types[gvr] != nil
		// A watch that runs for others may have got past what the list has missed.
		hasChanged = hasChanged || waiting.changed[gvr] || (isRunning && !wasAwaited)
		if !isRunning {
			watchContext, cancel := context.WithCancel(ctx)
			w.types[gvr] = cancel
			go w.run(watchContext, gvr, left.ResourceVersion)
		}
	}
	w.endUnused()
	if hasChanged {
		w.wake(namespace, false)
	}
}

// Forget ends what Begin has begun.
func (w *Watches) Forget(namespace string) {
	w.lock.Lock()
	defer w.lock.Unlock()
	delete(w.namespaces, namespace)
	w.endUnused()
}

// endUnused ends the watches that nobody needs.
func (w *Watches) endUnused() {
	for gvr, cancel := range w.types {
		isNeeded := false
		for _, waiting := range w.namespaces {
			if _, isAwaited := waiting.awaited[gvr]; isAwaited {
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

// run watches a type until the context ends. An unknown resource version makes it start
// from now.
func (w *Watches) run(ctx context.Context, gvr schema.GroupVersionResource, resourceVersion string) {
	log := w.log.WithValues("resource", gvr.String())
	log.V(1).Info("Watching a type that is waited for")
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 1000, Cap: longestWatchDelay}
	for ctx.Err() == nil {
		var err error
		if resourceVersion == "" {
			if resourceVersion, err = w.resourceVersion(ctx, gvr); err == nil {
				w.notifyAll(gvr) // of what may have happened in between
			}
		}
		if err == nil {
			if resourceVersion, err = w.follow(ctx, gvr, resourceVersion); err == nil {
				backoff.Duration, backoff.Steps = time.Second, 1000
				continue
			}
		}
		log.V(1).Info("A watch has ended", "error", err.Error())
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
		}
	}
}

// resourceVersion returns the one that a type is at now.
func (w *Watches) resourceVersion(ctx context.Context, gvr schema.GroupVersionResource) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := w.content.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
}

// follow reads one watch to its end and returns the resource version to go on from;
// none if that is unknown.
func (w *Watches) follow(
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
	opened := time.Now()
	for event := range watcher.ResultChan() {
		object, isObject := event.Object.(*metav1.PartialObjectMetadata)
		if event.Type == watch.Error || !isObject {
			return "", errorOf(event)
		}
		resourceVersion = object.ResourceVersion
		if event.Type != watch.Bookmark {
			w.notify(object.Namespace, gvr, event.Type == watch.Deleted)
		}
	}
	if lasted := time.Since(opened); lasted < shortestWatch {
		return resourceVersion, fmt.Errorf("it has lasted %s only", lasted)
	}
	return resourceVersion, nil
}

// notify hears of an event in a namespace.
func (w *Watches) notify(namespace string, gvr schema.GroupVersionResource, isDeletion bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	waiting := w.namespaces[namespace]
	if waiting == nil {
		return
	}
	waiting.changed[gvr] = true
	left, isAwaited := waiting.awaited[gvr]
	if !isAwaited {
		return
	}
	if isDeletion {
		left--
		waiting.awaited[gvr] = left
	}
	w.wake(namespace, left <= 0)
}

// notifyAll lets all that wait for a type look again.
func (w *Watches) notifyAll(gvr schema.GroupVersionResource) {
	w.lock.Lock()
	defer w.lock.Unlock()
	for name, waiting := range w.namespaces {
		waiting.changed[gvr] = true
		if _, isAwaited := waiting.awaited[gvr]; isAwaited {
			w.wake(name, false)
		}
	}
}

// errorOf is the error that ended a watch.
func errorOf(event watch.Event) error {
	if status, isStatus := event.Object.(*metav1.Status); isStatus {
		return &apierrors.StatusError{ErrStatus: *status}
	}
	return fmt.Errorf("unexpected %T in a watch event of type %q", event.Object, event.Type)
}
