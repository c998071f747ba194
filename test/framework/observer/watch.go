// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// resourceWatch records all changes of the objects of one type.
type resourceWatch struct {
	resource string
	client   dynamic.NamespaceableResourceInterface

	lock    sync.Mutex
	changes []Change
	// last contains the last version of each object.
	last map[types.UID]Change
	err  error
}

// start lists the objects and watches them until the context is canceled.
func (w *resourceWatch) start(ctx context.Context, done *sync.WaitGroup) error {
	list, err := w.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("failed to list %s: %w", w.resource, err)
	}
	for i := range list.Items {
		if err := w.record(&list.Items[i], Change{IsListed: true}); err != nil {
			return err
		}
	}
	// The API server closes slow watches, so the watch resumes from the last resourceVersion.
	events, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: w.client.Watch,
	})
	if err != nil {
		return fmt.Errorf("failed to watch %s: %w", w.resource, err)
	}
	done.Go(func() {
		for event := range events.ResultChan() {
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type == watch.Error {
				w.fail(fmt.Errorf("failed to watch %s: %v", w.resource, event.Object))
			} else if err := w.record(object, Change{IsDeleted: event.Type == watch.Deleted}); err != nil {
				w.fail(err)
			}
		}
		if ctx.Err() == nil {
			w.fail(fmt.Errorf("failed to watch %s: %w", w.resource, errWatchEnded))
		}
	})
	return nil
}

func (w *resourceWatch) record(object *unstructured.Unstructured, change Change) error {
	text, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("failed to encode a watch event: %w", err)
	}
	if err := json.Unmarshal(text, &change.Object); err != nil {
		return fmt.Errorf("failed to decode a watch event: %w", err)
	}
	change.Resource, change.Seen = w.resource, time.Now()
	w.lock.Lock()
	defer w.lock.Unlock()
	w.changes = append(w.changes, change)
	w.last[object.GetUID()] = change
	return nil
}

// fail stores the first error.
func (w *resourceWatch) fail(err error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// waitUntilCurrent waits until the watch has returned everything up to the revision of a list, and returns the
// revision.
func (w *resourceWatch) waitUntilCurrent(ctx context.Context) (uint64, error) {
	list, err := w.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("failed to list %s: %w", w.resource, err)
	}
	revision, listed := parseRevision(list.GetResourceVersion()), map[types.UID]uint64{}
	for i := range list.Items {
		listed[list.Items[i].GetUID()] = parseRevision(list.Items[i].GetResourceVersion())
	}
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		w.lock.Lock()
		defer w.lock.Unlock()
		return w.hasReturned(listed, revision), w.err
	})
	if err != nil {
		return 0, fmt.Errorf("the watch of %s is stale: %w", w.resource, err)
	}
	return revision, nil
}

// hasReturned reports whether the watch has returned the revisions of all listed objects, and the removals of all
// others. It can have returned later changes, too.
func (w *resourceWatch) hasReturned(listed map[types.UID]uint64, revision uint64) bool {
	for uid, listedRevision := range listed {
		if last := w.last[uid]; revisionOf(&last.Object) < listedRevision {
			return false
		}
	}
	for uid, last := range w.last {
		if _, isListed := listed[uid]; !isListed && !last.IsDeleted && revisionOf(&last.Object) <= revision {
			return false
		}
	}
	return true
}

// recorded returns the changes up to a revision.
func (w *resourceWatch) recorded(revision uint64) []Change {
	w.lock.Lock()
	defer w.lock.Unlock()
	return slices.DeleteFunc(slices.Clone(w.changes), func(c Change) bool { return revisionOf(&c.Object) > revision })
}
