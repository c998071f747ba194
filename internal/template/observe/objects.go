// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// WatchRetention is how long the kind of an object is watched after the last pass that used it, if no template contains
// it.
const WatchRetention = 10 * time.Minute

// Objects provides the metadata of all objects with the label v1alpha1.LabelManagedByTemplate. It watches the
// kinds that templates contain.
type Objects struct {
	cache  cache.Cache
	writes *Writes
	clock  clock.PassiveClock
	// changed is called with the name of the Namespace when an object has changed.
	changed func(namespace string)

	mutex   sync.Mutex
	watched map[schema.GroupVersionKind]*watch
}

// ObjectCacheOptions returns the options of the cache for NewObjects.
func ObjectCacheOptions() cache.Options {
	return cache.Options{
		DefaultLabelSelector: hasTemplate(), DefaultTransform: compact, NewInformer: newInformer,
	}
}

// SystemCacheOptions returns the options of a cache for the ServiceAccounts, and the revisions of templates, in the
// system namespace.
func SystemCacheOptions(systemNamespace string) cache.Options {
	return cache.Options{
		DefaultNamespaces: map[string]cache.Config{systemNamespace: {}},
		DefaultTransform:  cache.TransformStripManagedFields(),
		ByObject:          map[client.Object]cache.ByObject{&appsv1.ControllerRevision{}: {Label: hasTemplate()}},
	}
}

func hasTemplate() labels.Selector {
	selector, err := labels.Parse(v1alpha1.LabelManagedByTemplate)
	utilruntime.Must(err)
	return selector
}

// newInformer omits the index by namespace, because objects are only read by name. It would be as large as the objects.
func newInformer(
	source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, _ toolscache.Indexers,
) toolscache.SharedIndexInformer {
	return toolscache.NewSharedIndexInformer(source, object, resync, toolscache.Indexers{})
}

// watch is the watch of a kind.
type watch struct {
	toolscache.SharedIndexInformer
	// used is when a pass has last used it.
	used time.Time
}

// NewObjects returns Objects that use a cache. The cache must have the options that
// ObjectCacheOptions returns.
func NewObjects(
	objects cache.Cache, writes *Writes, now clock.PassiveClock, changed func(namespace string),
) *Objects {
	return &Objects{
		cache: objects, writes: writes, clock: now, changed: changed, watched: map[schema.GroupVersionKind]*watch{},
	}
}

// ensure starts the watch of a kind. It returns template.ErrNotSynced until the watch has listed all objects.
func (o *Objects) ensure(ctx context.Context, kind schema.GroupVersionKind) error {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	watched, ok := o.watched[kind]
	if !ok {
		found, err := o.cache.GetInformer(ctx, emptyObject(kind), cache.BlockUntilSynced(false))
		informer, isShared := found.(toolscache.SharedIndexInformer)
		switch {
		case err != nil:
		case !isShared:
			err = fmt.Errorf("the informer is a %T", found)
		default:
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(object any) { o.notify(kind, object) },
				UpdateFunc: func(_, object any) { o.notify(kind, object) },
				DeleteFunc: func(object any) { o.notifyDeleted(kind, object) },
			})
		}
		if err != nil {
			return fmt.Errorf("failed to watch %s: %w", kind.Kind, err)
		}
		watched = &watch{SharedIndexInformer: informer}
		o.watched[kind] = watched
	}
	watched.used = o.clock.Now()
	return template.NotSyncedUnless(watched.HasSynced(), kind.Kind)
}

// retain stops the watches of kinds that are not served, and of kinds that are not needed and that no pass
// has used for some time. It reports whether watches that are not needed remain.
func (o *Objects) retain(
	ctx context.Context, needed map[schema.GroupVersionKind]bool, isServed func(schema.GroupVersionKind) bool,
) (isUnneededWatched bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for kind, watched := range o.watched {
		if isServed(kind) && (needed[kind] || o.clock.Since(watched.used) < WatchRetention) {
			isUnneededWatched = isUnneededWatched || !needed[kind]
			continue
		}
		if needed[kind] { // The deletions of its objects may not be observed.
			for _, object := range watched.GetStore().List() {
				if known, ok := object.(*cachedObject); ok {
					o.changed(known.namespace())
				}
			}
		}
		// An object that the cache was not asked for cannot fail to be removed.
		_ = o.cache.RemoveInformer(ctx, emptyObject(kind))
		delete(o.watched, kind)
	}
	return isUnneededWatched
}

func emptyObject(kind schema.GroupVersionKind) client.Object {
	if kind == plan.Quotas { // The only kind that is cached with content: its status shows whether it is effective.
		return &corev1.ResourceQuota{}
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

// get returns the state of an object in the cache, or nil if it does not exist.
func (o *Objects) get(
	kind schema.GroupVersionKind, namespace *corev1.Namespace, name string,
) (*plan.Observed, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	watched, ok := o.watched[kind]
	if !ok {
		return nil, template.NotSyncedUnless(false, kind.Kind)
	}
	// The store of an informer returns no error.
	found, _, _ := watched.GetStore().GetByKey(toolscache.NewObjectName(namespace.Name, name).String())
	var current *plan.Observed
	if known, ok := found.(*cachedObject); ok {
		current = known.observed()
	}
	return o.writes.newest(namespace, template.ObjectKey{Kind: kind.GroupKind(), Name: name}, current), nil
}

// notify ignores the events of the operator's own writes.
func (o *Objects) notify(kind schema.GroupVersionKind, object any) {
	current, ok := object.(*cachedObject)
	if !ok {
		return
	}
	namespace, key := current.namespace(), template.ObjectKey{Kind: kind.GroupKind(), Name: current.name.Value()}
	if o.writes.isOwn(namespace, key, current.observed().ResourceVersion) {
		return
	}
	o.changed(namespace)
}

func (o *Objects) notifyDeleted(kind schema.GroupVersionKind, object any) {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	deleted, ok := object.(*cachedObject)
	if !ok {
		return
	}
	namespace, key := deleted.namespace(), template.ObjectKey{Kind: kind.GroupKind(), Name: deleted.name.Value()}
	o.writes.deleted(namespace, key, deleted.observed().UID)
	o.changed(namespace)
}

// cachedObject is what the cache keeps of an object. There can be hundreds of thousands, so the texts that most objects
// have in common are shared, and the rest is one text.
type cachedObject struct {
	name, template unique.Handle[string]
	// text is the namespace, the UID, the resourceVersion, the UID of the Namespace and Fields, and ends has the ends of
	// all but the last.
	text                                          string
	ends                                          [4]uint32
	isTerminating, isCounted, isCrowded, isShared bool
}

// compact is the transform of the cache. The cache also calls it for its results.
func compact(object any) (any, error) {
	switch full := object.(type) {
	case *metav1.PartialObjectMetadata:
		return newCachedObject(&full.ObjectMeta, false), nil
	case *corev1.ResourceQuota:
		return newCachedObject(&full.ObjectMeta, IsCounted(full)), nil
	}
	return object, nil
}

func newCachedObject(metadata *metav1.ObjectMeta, isCounted bool) *cachedObject {
	observed := plan.ObservedOf(metadata)
	result := &cachedObject{
		name: unique.Make(metadata.Name), template: unique.Make(observed.Template),
		isTerminating: observed.IsTerminating, isCounted: isCounted, isCrowded: observed.IsCrowded,
		isShared: observed.IsShared,
	}
	parts := []string{
		metadata.Namespace, string(observed.UID), observed.ResourceVersion, string(observed.NamespaceUID), observed.Fields,
	}
	result.text = strings.Join(parts, "")
	end := 0
	for i := range result.ends {
		end += len(parts[i])
		result.ends[i] = uint32(end)
	}
	return result
}

func (c *cachedObject) namespace() string { return c.text[:c.ends[0]] }

func (c *cachedObject) observed() *plan.Observed {
	return &plan.Observed{
		UID: types.UID(c.text[c.ends[0]:c.ends[1]]), ResourceVersion: c.text[c.ends[1]:c.ends[2]],
		Template: c.template.Value(), NamespaceUID: types.UID(c.text[c.ends[2]:c.ends[3]]), Fields: c.text[c.ends[3]:],
		IsTerminating: c.isTerminating, IsCounted: c.isCounted, IsCrowded: c.isCrowded, IsShared: c.isShared,
	}
}

// GetObjectMeta returns the metadata that informers read.
func (c *cachedObject) GetObjectMeta() metav1.Object {
	observed := c.observed()
	return &metav1.ObjectMeta{
		Namespace: c.namespace(), Name: c.name.Value(), UID: observed.UID, ResourceVersion: observed.ResourceVersion,
	}
}

// IsCounted reports whether kube-controller-manager has counted a ResourceQuota.
func IsCounted(quota *corev1.ResourceQuota) bool {
	return len(quota.Spec.Hard) == 0 || apiequality.Semantic.DeepEqual(quota.Spec.Hard, quota.Status.Hard)
}
