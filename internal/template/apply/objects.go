// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

const (
	// The marks in a summary.
	markCounted, markCrowded = "counted", "crowded"

	// OwnWriteTimeout is how long the response to a write replaces a cache that does not contain the
	// object yet. The watch is late by milliseconds normally.
	OwnWriteTimeout = 30 * time.Second

	// WatchRetention is how long the kind of an object is watched after the last pass that used it, if no
	// template contains it.
	WatchRetention = 10 * time.Minute
)

// quotas is the only kind that is cached with content: its status shows whether it is effective.
var quotas = corev1.SchemeGroupVersion.WithKind("ResourceQuota")

// Objects provides the metadata of all objects with the label v1alpha1.LabelManagedByTemplate. It watches the
// kinds that templates contain.
type Objects struct {
	cache   cache.Cache
	records *Records
	clock   clock.PassiveClock
	// changed is called with the name of the Namespace when an object has changed.
	changed func(namespace string)

	mutex   sync.Mutex
	watched map[schema.GroupVersionKind]*watch
}

// CacheOptions returns the options of the cache. In addition to the objects of templates, it contains
// the ServiceAccounts and ControllerRevisions in the system namespace.
func CacheOptions(systemNamespace string) cache.Options {
	hasTemplate, err := labels.NewRequirement(v1alpha1.LabelManagedByTemplate, selection.Exists, nil)
	utilruntime.Must(err)
	return cache.Options{
		DefaultLabelSelector: labels.NewSelector().Add(*hasTemplate),
		DefaultTransform:     stripObject,
		NewInformer:          newInformer,
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

// newInformer omits the index by namespace of objects that are only read by name. It would be as large as the objects.
func newInformer(
	source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	if _, isListed := object.(*appsv1.ControllerRevision); !isListed {
		indexers = toolscache.Indexers{}
	}
	return toolscache.NewSharedIndexInformer(source, object, resync, indexers)
}

// watch is the watch of a kind.
type watch struct {
	cache.Informer
	// used is when a pass has last used it.
	used time.Time
}

// NewObjects returns Objects that use a cache. The cache must have the options that
// CacheOptions returns.
func NewObjects(
	objects cache.Cache, records *Records, now clock.PassiveClock, changed func(namespace string),
) *Objects {
	return &Objects{
		cache: objects, records: records, clock: now, changed: changed, watched: map[schema.GroupVersionKind]*watch{},
	}
}

// ensure starts the watch of a kind. It returns template.ErrNotSynced until the watch has listed all objects.
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
		if needed[kind] {
			o.notifyAll(ctx, kind)
		}
		// An object that the cache was not asked for cannot fail to be removed.
		_ = o.cache.RemoveInformer(ctx, emptyObject(kind))
		delete(o.watched, kind)
	}
	return isUnneededWatched
}

// notifyAll calls changed for all objects of a kind whose watch ends, because their deletions may not be observed.
func (o *Objects) notifyAll(ctx context.Context, kind schema.GroupVersionKind) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := o.cache.List(ctx, list); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list the objects of a kind that is not served", "kind", kind.Kind)
	}
	for i := range list.Items {
		o.changed(list.Items[i].Namespace)
	}
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
) (*plan.Observed, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if _, ok := o.watched[kind]; !ok {
		return nil, template.NotSyncedUnless(false, kind.Kind)
	}
	object := emptyObject(kind)
	err := o.cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("failed to get %s %q from the cache: %w", kind.Kind, name, err)
	}
	var current *plan.Observed
	if !apierrors.IsNotFound(err) {
		current = observe(object)
	}
	return o.records.newest(namespace, template.ObjectKey{Kind: kind.GroupKind(), Name: name}, current, o.clock.Now()), nil
}

// record stores the response to a write.
func (o *Objects) record(
	kind schema.GroupVersionKind, namespace string, response *metav1.PartialObjectMetadata,
) *plan.Observed {
	result := observe(&metav1.PartialObjectMetadata{ObjectMeta: strip(&response.ObjectMeta)})
	o.records.wrote(namespace, template.ObjectKey{Kind: kind.GroupKind(), Name: response.Name}, *result, o.clock.Now())
	return result
}

// notify ignores the events of the operator's own writes.
func (o *Objects) notify(kind schema.GroupVersionKind, object any) {
	current, ok := object.(client.Object)
	if !ok {
		return
	}
	key := template.ObjectKey{Kind: kind.GroupKind(), Name: current.GetName()}
	if o.records.isOwnWrite(current.GetNamespace(), key, current.GetResourceVersion()) {
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
	key := template.ObjectKey{Kind: kind.GroupKind(), Name: deleted.GetName()}
	o.records.deleted(deleted.GetNamespace(), key, deleted.GetUID())
	o.changed(deleted.GetNamespace())
}

// isNewer reports whether a resource version is newer than another one (KEP-5504).
func isNewer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order > 0
}

// observe returns what strip has kept of an object.
func observe(object client.Object) *plan.Observed {
	parts := append(strings.SplitN(object.GetGenerateName(), separator, 4), "", "", "")
	return &plan.Observed{
		UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		IsTerminating: object.GetDeletionTimestamp() != nil, Fields: parts[0],
		IsCounted: strings.Contains(parts[1], markCounted), IsCrowded: strings.Contains(parts[1], markCrowded),
		Template: parts[2], NamespaceUID: types.UID(parts[3]),
	}
}

// fieldsOf returns the hash of the managedFields entry of a template, including its time: if a client
// applies other values as the same field manager, only the time changes.
func fieldsOf(entries []metav1.ManagedFieldsEntry, templateName string) string {
	manager := template.FieldManager(templateName)
	for _, entry := range entries {
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			var raw []byte
			if entry.FieldsV1 != nil {
				raw = entry.FieldsV1.GetRawBytes()
			}
			return template.HashOf(string(raw), entry.Time)
		}
	}
	return ""
}

// maxUID is the length of a UID. Annotations of tenants can have any size.
const maxUID = 36

// separator is not a character of a hash, of a label or of a mark. The rest is the UID of the Namespace.
const separator = "/"

// strip returns only the metadata that observe reads. Its summary is in the field GenerateName, which nothing else
// reads: a map of labels or annotations needs as much memory as everything else.
func strip(metadata *metav1.ObjectMeta, marks ...string) metav1.ObjectMeta {
	owner := metadata.Labels[v1alpha1.LabelManagedByTemplate]
	namespaceUID := metadata.Annotations[v1alpha1.AnnotationNamespaceUID]
	if len(namespaceUID) > maxUID {
		namespaceUID = "" // It is not the UID of a Namespace.
	}
	if plan.IsCrowded(metadata.ManagedFields) {
		marks = append(marks, markCrowded)
	}
	return metav1.ObjectMeta{
		Name: metadata.Name, Namespace: metadata.Namespace, UID: metadata.UID,
		ResourceVersion: metadata.ResourceVersion, DeletionTimestamp: metadata.DeletionTimestamp,
		GenerateName: strings.Join([]string{
			fieldsOf(metadata.ManagedFields, owner), strings.Join(marks, ","), owner, namespaceUID,
		}, separator),
	}
}

// stripObject is the transform of the cache. The cache also calls it for stripped objects, which have no
// creation time.
func stripObject(object any) (any, error) {
	if metadata, ok := object.(metav1.Object); ok && metadata.GetCreationTimestamp().Time.IsZero() {
		return object, nil
	}
	switch full := object.(type) {
	case *metav1.PartialObjectMetadata:
		return &metav1.PartialObjectMetadata{TypeMeta: full.TypeMeta, ObjectMeta: strip(&full.ObjectMeta)}, nil
	case *corev1.ResourceQuota:
		var marks []string
		if isCounted(full) {
			marks = append(marks, markCounted)
		}
		return &corev1.ResourceQuota{ObjectMeta: strip(&full.ObjectMeta, marks...)}, nil
	}
	return object, nil
}

// isCounted reports whether kube-controller-manager has counted a ResourceQuota.
func isCounted(quota *corev1.ResourceQuota) bool {
	return len(quota.Spec.Hard) == 0 || apiequality.Semantic.DeepEqual(quota.Spec.Hard, quota.Status.Hard)
}
