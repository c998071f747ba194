// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// pollInterval is the time between two reads after a failure, or if the user is not allowed to
// watch namespaces.
const pollInterval = time.Second

// namespaceEvent describes a change to a Namespace.
type namespaceEvent struct {
	// namespace is the current object. If the Namespace is deleted, it is the last known state or nil.
	namespace *corev1.Namespace
	// isDeleted is set if the Namespace with the watched UID no longer exists.
	isDeleted bool
	// isReplaced is set if the Namespace is deleted and another one with the same name exists.
	isReplaced bool
	// err is set if the Namespace could not be read. More events might follow.
	err error
}

// outage is a series of failures to read a Namespace. It ends when the Namespace can be read again.
type outage struct{ reported string }

// warn prints a warning unless it equals the previous warning of the outage.
func (o *outage) warn(session *session, name string, err error) {
	if key := stateKey(err.Error()); key != o.reported {
		o.reported = key
		session.warnf("Failed to get namespace %q, retrying: %v", name, err)
	}
}

// namespaceWatcher watches the Namespace with the given UID until it is deleted. If the user is
// allowed to get but not to watch namespaces, namespaceWatcher polls.
type namespaceWatcher struct {
	client corev1client.NamespaceInterface
	name   string
	uid    types.UID
	events chan namespaceEvent
}

// watchNamespace returns a channel with the changes to a Namespace. The channel is closed after the
// Namespace is deleted or the context is canceled.
func watchNamespace(
	ctx context.Context, client corev1client.NamespaceInterface, namespace *corev1.Namespace,
) <-chan namespaceEvent {
	w := &namespaceWatcher{client: client, name: namespace.Name, uid: namespace.UID, events: make(chan namespaceEvent)}
	go func() {
		defer close(w.events)
		w.run(ctx)
	}()
	return w.events
}

func (w *namespaceWatcher) run(ctx context.Context) {
	mayWatch := true
	for ctx.Err() == nil {
		resourceVersion, isDeleted := w.get(ctx)
		if isDeleted {
			return
		}
		if mayWatch && resourceVersion != "" {
			isDeleted, mayWatch = w.watch(ctx, resourceVersion)
			if isDeleted {
				return
			}
		}
		// Also wait after a watch, because the API server might close it immediately.
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// get sends the current state of the Namespace. It returns its resourceVersion, or "" after an
// error, and whether the Namespace is deleted.
func (w *namespaceWatcher) get(ctx context.Context) (resourceVersion string, isDeleted bool) {
	namespace, err := w.client.Get(ctx, w.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		w.send(ctx, namespaceEvent{isDeleted: true})
		return "", true
	case err != nil:
		w.send(ctx, namespaceEvent{err: err})
		return "", false
	case namespace.UID != w.uid:
		w.send(ctx, namespaceEvent{isDeleted: true, isReplaced: true})
		return "", true
	}
	w.send(ctx, namespaceEvent{namespace: namespace})
	return namespace.ResourceVersion, false
}

// watch sends the changes until the watch closes. It returns whether the Namespace is deleted and
// whether the user is allowed to watch it.
func (w *namespaceWatcher) watch(ctx context.Context, resourceVersion string) (isDeleted, mayWatch bool) {
	watcher, err := w.client.Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String(),
		ResourceVersion: resourceVersion,
	})
	if err != nil {
		return false, !apierrors.IsForbidden(err)
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		namespace, ok := event.Object.(*corev1.Namespace)
		if !ok {
			return false, true // The event is an error, such as an expired resourceVersion.
		}
		switch {
		case namespace.UID != w.uid:
			w.send(ctx, namespaceEvent{isDeleted: true, isReplaced: true})
			return true, false
		case event.Type == watch.Deleted:
			w.send(ctx, namespaceEvent{namespace: namespace, isDeleted: true})
			return true, false
		}
		w.send(ctx, namespaceEvent{namespace: namespace})
	}
	return false, true
}

func (w *namespaceWatcher) send(ctx context.Context, event namespaceEvent) {
	select {
	case w.events <- event:
	case <-ctx.Done():
	}
}
