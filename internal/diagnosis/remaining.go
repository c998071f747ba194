// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// MaxObjects is the maximum number of objects that a finding names.
const MaxObjects = 5

// The resource types that have separate rules.
var (
	PodResource = schema.GroupResource{Resource: "pods"}
	PVCResource = schema.GroupResource{Resource: "persistentvolumeclaims"}
)

// NamespaceType is the type of the Namespace itself.
var NamespaceType = resourcetypes.Type{
	GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace",
}

// RemainingObject is an object that still exists in the namespace.
type RemainingObject struct {
	resourcetypes.Type
	*metav1.PartialObjectMetadata
}

// Object returns a reference to the object for a finding.
func (o RemainingObject) Object() Object {
	return Object{Resource: o.Type.String(), Namespace: o.Namespace, Name: o.Name}
}

// DeletedAt returns the deletionTimestamp, or the zero time.
func (o RemainingObject) DeletedAt() time.Time {
	if o.DeletionTimestamp == nil {
		return time.Time{}
	}
	return o.DeletionTimestamp.Time
}

// RemainingObjects returns all listed objects, in the order of Content.
func (f *Facts) RemainingObjects() []RemainingObject {
	var objects []RemainingObject
	for _, content := range f.Content {
		for i := range content.Objects {
			objects = append(objects, RemainingObject{content.Type, &content.Objects[i]})
		}
	}
	return objects
}

// IsObjectOverdue reports whether the deletion of an object exceeds the progress deadline. The API
// server adds the grace period of a Pod to its deletionTimestamp.
func (f *Facts) IsObjectOverdue(object RemainingObject) bool {
	return object.DeletionTimestamp != nil && f.IsOverdue(object.DeletionTimestamp.Time)
}

// IsFinalizerProgressing reports whether a finalizer is being removed from objects. Other objects with
// the finalizer are then waiting to be processed.
func (f *Facts) IsFinalizerProgressing(finalizer string) bool {
	return f.Progress.Evidence != "" || f.Progress.Released[finalizer] > 0
}

// IsTypeProgressing reports whether objects of a type are being deleted.
func (f *Facts) IsTypeProgressing(resource schema.GroupResource) bool {
	return f.Progress.Evidence != "" || f.Progress.Deleted[resource] > 0
}

// OverdueByFinalizer groups the overdue objects by their finalizers.
func (f *Facts) OverdueByFinalizer() map[string][]RemainingObject {
	groups := map[string][]RemainingObject{}
	for _, object := range f.RemainingObjects() {
		if !f.IsObjectOverdue(object) {
			continue
		}
		for n, finalizer := range object.Finalizers {
			if slices.Index(object.Finalizers, finalizer) == n { // The list may contain duplicates.
				groups[finalizer] = append(groups[finalizer], object)
			}
		}
	}
	return groups
}

// WithRemaining returns the finding with the given objects.
func (f Finding) WithRemaining(remaining []RemainingObject) Finding {
	objects := make([]Object, 0, len(remaining))
	for _, object := range remaining {
		objects = append(objects, object.Object())
	}
	return f.WithObjects(objects)
}

// WithObjects returns the finding with the given objects. The finding counts all objects and names at
// most MaxObjects.
func (f Finding) WithObjects(objects []Object) Finding {
	slices.SortFunc(objects, compareObjects)
	objects = slices.Compact(objects)
	f.Count = len(objects)
	f.Objects = objects[:min(len(objects), MaxObjects)]
	return f
}

func compareObjects(a, b Object) int {
	return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
