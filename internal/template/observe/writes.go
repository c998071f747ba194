// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// OwnWriteTimeout is how long the response to a write replaces a cache that does not contain the object yet. The watch
// is late by milliseconds normally.
const OwnWriteTimeout = 30 * time.Second

// Writes has the operator's own writes that the caches may not contain yet. It is empty after a restart.
type Writes struct {
	Clock clock.PassiveClock

	mutex  sync.Mutex
	byName map[string]*namespaceWrites
}

// namespaceWrites are the writes to a Namespace and its objects.
type namespaceWrites struct {
	uid types.UID
	// state is what the Namespace contains, if the cache may not contain it yet. The operator writes the annotation of a
	// new Namespace only when it is initialized, in the same request.
	state template.Record
	// version is the resourceVersion of the Namespace that records the state; empty if none does.
	version string
	// objects has the metadata in the responses to writes.
	objects map[template.ObjectKey]written
}

// written is the metadata in the response to a write.
type written struct {
	plan.Observed
	at time.Time
}

// get returns the writes to a Namespace; nil if there are none. Those to an earlier one with its name do not count.
func (w *Writes) get(namespace *corev1.Namespace) *namespaceWrites {
	if known := w.byName[namespace.Name]; known != nil && known.uid == namespace.UID {
		return known
	}
	return nil
}

func (w *Writes) getOrAdd(namespace *corev1.Namespace) *namespaceWrites {
	known := w.get(namespace)
	if known == nil {
		known = &namespaceWrites{uid: namespace.UID}
		template.Put(&w.byName, namespace.Name, known)
	}
	return known
}

// Forget forgets the writes to a Namespace that is being deleted or does not exist.
func (w *Writes) Forget(name string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.byName, name)
}

// State returns what a Namespace contains. The cache can be older than the operator's last write.
func (w *Writes) State(namespace *corev1.Namespace) (template.Record, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if known := w.get(namespace); known != nil && known.state != nil {
		if known.version == "" || isNewer(known.version, namespace.ResourceVersion) {
			return known.state, nil
		}
		known.state, known.version = nil, ""
	}
	return template.ParseRecord(namespace)
}

// IsStale reports whether a Namespace from the cache is older than the operator's last write. The watch event
// for that write follows.
func (w *Writes) IsStale(namespace *corev1.Namespace) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	known := w.get(namespace)
	return known != nil && isNewer(known.version, namespace.ResourceVersion)
}

// SetState stores what a Namespace contains, with the resourceVersion that records it; empty if none does.
func (w *Writes) SetState(namespace *corev1.Namespace, state template.Record, version string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	known := w.getOrAdd(namespace)
	known.state, known.version = state, version
}

// Wrote stores the response to the write of an object.
func (w *Writes) Wrote(namespace *corev1.Namespace, key template.ObjectKey, response *plan.Observed) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	known := w.getOrAdd(namespace)
	template.Put(&known.objects, key, written{Observed: *response, at: w.Clock.Now()})
}

// isOwn reports whether a version of an object is the response to the operator's last write.
func (w *Writes) isOwn(namespace string, key template.ObjectKey, version string) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	known := w.byName[namespace]
	if known == nil {
		return false
	}
	last, ok := known.objects[key]
	return ok && last.ResourceVersion == version
}

// newest returns the version of an object in the cache, which is nil if it does not exist, or that of the operator's
// last write if it is newer.
func (w *Writes) newest(namespace *corev1.Namespace, key template.ObjectKey, cached *plan.Observed) *plan.Observed {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	known := w.get(namespace)
	if known == nil {
		return cached
	}
	last, ok := known.objects[key]
	switch {
	case !ok:
		return cached
	case cached != nil && !isNewer(last.ResourceVersion, cached.ResourceVersion),
		w.Clock.Since(last.at) > OwnWriteTimeout:
		known.forget(key)
		return cached
	}
	return &last.Observed
}

// HasUnseen reports whether the cache does not contain all writes of the operator to the objects of a Namespace yet. If
// it misses the creation and the deletion of an object, for example because its watch ends, no event follows.
func (w *Writes) HasUnseen(namespace *corev1.Namespace) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	known := w.get(namespace)
	return known != nil && len(known.objects) > 0
}

// deleted forgets the last write of an object that was deleted. One that was created since has another UID.
func (w *Writes) deleted(namespace string, key template.ObjectKey, object types.UID) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if known := w.byName[namespace]; known != nil && known.objects[key].UID == object {
		known.forget(key)
	}
}

// forget forgets the last write of an object. An empty map would keep its memory.
func (w *namespaceWrites) forget(key template.ObjectKey) {
	if delete(w.objects, key); len(w.objects) == 0 {
		w.objects = nil
	}
}

// isNewer reports whether a resource version is newer than another one (KEP-5504).
func isNewer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order > 0
}
