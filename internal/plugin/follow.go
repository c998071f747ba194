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

// pollInterval is the time between two looks at a Namespace that may not be watched, or
// after a failure.
const pollInterval = time.Second

// sighting is how a Namespace was seen.
type sighting struct {
	// namespace is as it was seen; with isGone as it was seen last, if that is known.
	namespace *corev1.Namespace
	// isGone: the Namespace with the UID that is followed does not exist any more.
	isGone bool
	// isReplaced: it is gone, and there is another one of the same name.
	isReplaced bool
	// err: it could not be read; more may follow.
	err error
}

// follower watches one Namespace by its name and UID until it is gone. Who may only get
// namespaces, which is all that users need who create their own, is served by polling.
type follower struct {
	client corev1client.NamespaceInterface
	name   string
	uid    types.UID
	seen   chan sighting
}

// follow returns a channel with every change of a Namespace that is noticed. It is closed
// after the Namespace has gone, or the context has ended.
func follow(ctx context.Context, client corev1client.NamespaceInterface, namespace *corev1.Namespace) <-chan sighting {
	f := &follower{client: client, name: namespace.Name, uid: namespace.UID, seen: make(chan sighting)}
	go func() {
		defer close(f.seen)
		f.run(ctx)
	}()
	return f.seen
}

func (f *follower) run(ctx context.Context) {
	mayWatch := true
	for ctx.Err() == nil {
		version, isGone := f.look(ctx)
		if isGone {
			return
		}
		if mayWatch && version != "" {
			isGone, mayWatch = f.watch(ctx, version)
			if isGone {
				return
			}
		}
		// Also after a watch, which may have ended at once.
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// look reads the Namespace and returns its resourceVersion, or whether it is gone.
func (f *follower) look(ctx context.Context) (version string, isGone bool) {
	namespace, err := f.client.Get(ctx, f.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		f.send(ctx, sighting{isGone: true})
		return "", true
	case err != nil:
		f.send(ctx, sighting{err: err})
		return "", false
	case namespace.UID != f.uid:
		f.send(ctx, sighting{isGone: true, isReplaced: true})
		return "", true
	}
	f.send(ctx, sighting{namespace: namespace})
	return namespace.ResourceVersion, false
}

// watch tells every change until the watch ends. It returns whether the Namespace is gone,
// and whether watching is worth another try.
func (f *follower) watch(ctx context.Context, version string) (isGone, mayWatch bool) {
	watcher, err := f.client.Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String(),
		ResourceVersion: version,
	})
	if err != nil {
		return false, !apierrors.IsForbidden(err)
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		namespace, isNamespace := event.Object.(*corev1.Namespace)
		if !isNamespace {
			return false, true // an error, such as a version that is too old
		}
		switch {
		case namespace.UID != f.uid:
			f.send(ctx, sighting{isGone: true, isReplaced: true})
			return true, false
		case event.Type == watch.Deleted:
			f.send(ctx, sighting{namespace: namespace, isGone: true})
			return true, false
		}
		f.send(ctx, sighting{namespace: namespace})
	}
	return false, true
}

func (f *follower) send(ctx context.Context, seen sighting) {
	select {
	case f.seen <- seen:
	case <-ctx.Done():
	}
}
