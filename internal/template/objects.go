// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

const (
	// These annotations exist only in the cache.
	annotationFields  = "fields"
	annotationCounted = "counted"
	annotationCrowded = "crowded"

	// ownWriteTimeout is how long the response to a write replaces a cache that does not contain the
	// object yet. The watch is late by milliseconds normally.
	ownWriteTimeout = 30 * time.Second

	// WatchRetention is how long the kind of an object is watched after the last pass that used it, if no
	// template contains it.
	WatchRetention = 10 * time.Minute
)

// quotas is the only kind that is cached with content: its status shows whether it is effective.
var quotas = corev1.SchemeGroupVersion.WithKind("ResourceQuota")

// Objects provides the metadata of all objects with the label v1alpha1.LabelTemplate. It watches the
// kinds that templates contain.
type Objects struct {
	cache cache.Cache
	clock clock.PassiveClock
	// changed is called with the name of the Namespace when an object has changed.
	changed func(namespace string)

	mutex   sync.Mutex
	watched map[schema.GroupVersionKind]*watch
	// written has the metadata in the responses to the operator's writes, which the cache may not contain
	// yet.
	written map[writtenKey]written
}

// CacheOptions returns the options of the cache. In addition to the objects of templates, it contains
// the ServiceAccounts and ControllerRevisions in the system namespace.
func CacheOptions(systemNamespace string) cache.Options {
	hasTemplate, err := labels.NewRequirement(v1alpha1.LabelTemplate, selection.Exists, nil)
	utilruntime.Must(err)
	return cache.Options{
		DefaultLabelSelector: labels.NewSelector().Add(*hasTemplate),
		DefaultTransform:     stripObject,
		ByObject: map[client.Object]cache.ByObject{&corev1.ServiceAccount{}: {
			// Templates can contain ServiceAccounts.
			Namespaces: map[string]cache.Config{
				systemNamespace:     {LabelSelector: labels.Everything(), Transform: cache.TransformStripManagedFields()},
				cache.AllNamespaces: {},
			},
		}, &appsv1.ControllerRevision{}: {
			Namespaces: map[string]cache.Config{systemNamespace: {}},
			Transform:  cache.TransformStripManagedFields(),
		}},
	}
}

// watch is the watch of a kind.
type watch struct {
	cache.Informer
	// used is when a pass has last used it.
	used time.Time
}

type writtenKey struct {
	kind            schema.GroupKind
	namespace, name string
}

type written struct {
	observed
	at time.Time
}

// NewObjects returns Objects that use a cache. The cache must have the options that
// CacheOptions returns.
func NewObjects(objects cache.Cache, now clock.PassiveClock, changed func(namespace string)) *Objects {
	return &Objects{
		cache: objects, clock: now, changed: changed,
		watched: map[schema.GroupVersionKind]*watch{}, written: map[writtenKey]written{},
	}
}

// ensure starts the watch of a kind. It returns errNotSynced until the watch has listed all objects.
func (o *Objects) ensure(ctx context.Context, kind schema.GroupVersionKind) error {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	watched, ok := o.watched[kind]
	if !ok {
		informer, err := o.cache.GetInformer(ctx, emptyObject(kind), cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("failed to watch %s: %w", kind.Kind, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { o.notify(kind, object) },
			UpdateFunc: func(_, object any) { o.notify(kind, object) },
			DeleteFunc: func(object any) { o.notifyDeleted(kind, object) },
		})
		if err != nil {
			return fmt.Errorf("failed to watch %s: %w", kind.Kind, err)
		}
		watched = &watch{Informer: informer}
		o.watched[kind] = watched
	}
	watched.used = o.clock.Now()
	return notSyncedUnless(watched.HasSynced(), kind.Kind)
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
		// An object that the cache was not asked for cannot fail to be removed.
		_ = o.cache.RemoveInformer(ctx, emptyObject(kind))
		delete(o.watched, kind)
	}
	return isUnneededWatched
}

func emptyObject(kind schema.GroupVersionKind) client.Object {
	if kind == quotas {
		return &corev1.ResourceQuota{}
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

// get returns the metadata of an object, or nil if it does not exist.
func (o *Objects) get(
	ctx context.Context, kind schema.GroupVersionKind, namespace, name string,
) (*observed, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if _, ok := o.watched[kind]; !ok {
		return nil, notSyncedUnless(false, kind.Kind)
	}
	object := emptyObject(kind)
	err := o.cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("failed to get %s %q from the cache: %w", kind.Kind, name, err)
	}
	var current *observed
	if !apierrors.IsNotFound(err) {
		current = observe(object)
	}
	key := writtenKey{kind.GroupKind(), namespace, name}
	last, ok := o.written[key]
	switch {
	case !ok:
		return current, nil
	case current != nil && !isNewer(last.resourceVersion, current.resourceVersion),
		o.clock.Since(last.at) > ownWriteTimeout:
		delete(o.written, key)
		return current, nil
	}
	newest := last.observed
	return &newest, nil
}

// record stores the response to a write.
func (o *Objects) record(
	kind schema.GroupVersionKind, namespace string, response *metav1.PartialObjectMetadata,
) *observed {
	fields := fieldsOf(response.ManagedFields, response.Labels[v1alpha1.LabelTemplate])
	stripped := strip(&response.ObjectMeta, fields)
	result := observe(&metav1.PartialObjectMetadata{ObjectMeta: stripped})
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.written[writtenKey{kind.GroupKind(), namespace, response.Name}] = written{observed: *result, at: o.clock.Now()}
	return result
}

// forget removes the responses for a Namespace that was deleted.
func (o *Objects) forget(namespace string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for key := range o.written {
		if key.namespace == namespace {
			delete(o.written, key)
		}
	}
}

// notify ignores the events of the operator's own writes.
func (o *Objects) notify(kind schema.GroupVersionKind, object any) {
	current, ok := object.(client.Object)
	if !ok {
		return
	}
	o.mutex.Lock()
	last, ok := o.written[writtenKey{kind.GroupKind(), current.GetNamespace(), current.GetName()}]
	o.mutex.Unlock()
	if ok && last.resourceVersion == current.GetResourceVersion() {
		return
	}
	o.changed(current.GetNamespace())
}

func (o *Objects) notifyDeleted(kind schema.GroupVersionKind, object any) {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	deleted, ok := object.(client.Object)
	if !ok {
		return
	}
	key := writtenKey{kind.GroupKind(), deleted.GetNamespace(), deleted.GetName()}
	o.mutex.Lock()
	// An object that was created since has another UID.
	if last, ok := o.written[key]; ok && last.uid == deleted.GetUID() {
		delete(o.written, key)
	}
	o.mutex.Unlock()
	o.changed(deleted.GetNamespace())
}

// isNewer reports whether a resource version is newer than another one (KEP-5504).
func isNewer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order > 0
}

func observe(object client.Object) *observed {
	annotations := object.GetAnnotations()
	return &observed{
		uid: object.GetUID(), resourceVersion: object.GetResourceVersion(),
		template:     object.GetLabels()[v1alpha1.LabelTemplate],
		namespaceUID: types.UID(annotations[v1alpha1.AnnotationNamespaceUID]),
		fields:       annotations[annotationFields], isCounted: annotations[annotationCounted] != "",
		isTerminating: object.GetDeletionTimestamp() != nil, isCrowded: annotations[annotationCrowded] != "",
	}
}

const fieldManagerPrefix = "nslifecycle-template:"

// FieldManager returns the field manager of a template.
func FieldManager(template string) string { return fieldManagerPrefix + template }

// fieldsOf returns the hash of the managedFields entry of a template, including its time: if a client
// applies other values as the same field manager, only the time changes.
func fieldsOf(entries []metav1.ManagedFieldsEntry, template string) string {
	manager := FieldManager(template)
	for _, entry := range entries {
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			var raw []byte
			if entry.FieldsV1 != nil {
				raw = entry.FieldsV1.GetRawBytes()
			}
			return hashOf(string(raw), entry.Time)
		}
	}
	return ""
}

// maxUID is the length of a UID. Annotations of tenants can have any size.
const maxUID = 36

// strip returns only the metadata that observe reads.
func strip(metadata *metav1.ObjectMeta, fields string) metav1.ObjectMeta {
	namespaceUID := metadata.Annotations[v1alpha1.AnnotationNamespaceUID]
	if len(namespaceUID) > maxUID {
		namespaceUID = "" // It is not the UID of a Namespace.
	}
	stripped := metav1.ObjectMeta{
		Name: metadata.Name, Namespace: metadata.Namespace, UID: metadata.UID,
		ResourceVersion: metadata.ResourceVersion, DeletionTimestamp: metadata.DeletionTimestamp,
		Labels: map[string]string{v1alpha1.LabelTemplate: metadata.Labels[v1alpha1.LabelTemplate]},
		Annotations: map[string]string{
			v1alpha1.AnnotationNamespaceUID: namespaceUID,
			annotationFields:                fields,
		},
	}
	if isCrowded(metadata.ManagedFields) {
		stripped.Annotations[annotationCrowded] = "true"
	}
	return stripped
}

// stripObject is the transform of the cache. The cache also calls it for stripped objects, which have no
// creation time.
func stripObject(object any) (any, error) {
	if metadata, ok := object.(metav1.Object); ok && metadata.GetCreationTimestamp().Time.IsZero() {
		return object, nil
	}
	switch full := object.(type) {
	case *metav1.PartialObjectMetadata:
		fields := fieldsOf(full.ManagedFields, full.Labels[v1alpha1.LabelTemplate])
		return &metav1.PartialObjectMetadata{TypeMeta: full.TypeMeta, ObjectMeta: strip(&full.ObjectMeta, fields)}, nil
	case *corev1.ResourceQuota:
		fields := fieldsOf(full.ManagedFields, full.Labels[v1alpha1.LabelTemplate])
		stripped := &corev1.ResourceQuota{ObjectMeta: strip(&full.ObjectMeta, fields)}
		if len(full.Spec.Hard) == 0 || apiequality.Semantic.DeepEqual(full.Spec.Hard, full.Status.Hard) {
			stripped.Annotations[annotationCounted] = "true"
		}
		return stripped, nil
	}
	return object, nil
}
