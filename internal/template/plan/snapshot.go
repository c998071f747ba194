// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// Snapshot contains all inputs of the decision about a Namespace, except [Memory]. It sends no requests. If an input
// could not be read, the snapshot contains the error instead.
type Snapshot struct {
	Namespace *corev1.Namespace
	// State is the record of the Namespace.
	State template.Record
	// Templates are all templates, and Applicable those that apply to the Namespace, sorted by name.
	Templates  []v1alpha1.NamespaceTemplate
	Applicable []TemplateSnapshot
	// Refusal is the result for a new Namespace that exceeds a limit; nil otherwise.
	Refusal *metav1.Status
	// Now is the local time of the snapshot. Durations in the memory depend on it: the API server's time can jump, for
	// example if two API servers respond in turns.
	Now time.Time
	// ServerNow is the API server's time of the snapshot, to compare with times in objects. Start is the API server's time
	// of the operator's first snapshot.
	ServerNow, Start time.Time
	// FullPassInterval is the time between two full passes.
	FullPassInterval time.Duration
}

// TemplateSnapshot is what is known about a template that applies to a Namespace.
type TemplateSnapshot struct {
	// Template has the ServiceAccount of the revision.
	Template *v1alpha1.NamespaceTemplate
	Choice   Choice
	// Latest is the revision of the spec, and LatestContents are its objects.
	Latest         string
	LatestContents Contents
	// Contents are the objects that the Namespace can contain with the chosen revision, and Objects those that it should
	// contain, after the labels and annotations of the Namespace. Objects is empty if what the Namespace records is kept.
	Contents Contents
	Objects  []ObjectSnapshot
	// IsPartial is true if some objects are created only after the Namespace is initialized.
	IsPartial bool
	// Unknown is the error that prevented the operator from reading the contents of the template; nil if there is none.
	Unknown error
}

// Choice is the revision of a template that a Namespace gets now.
type Choice struct {
	// Revision is empty if the Namespace gets none yet.
	Revision string
	// Current is the revision that new Namespaces get.
	Current string
	// Delay is the time until the turn of the Namespace to get another revision; 0 if it does not wait for one.
	Delay time.Duration
}

// ObjectSnapshot is an object that a template contains, and what is known about it in the cluster.
type ObjectSnapshot struct {
	// Name is the name of the object in the template; empty for a label or annotation.
	Name     string
	Manifest *unstructured.Unstructured
	// Content is the hash of the manifest. For a copy, it identifies the content of the source.
	Content  string
	IsLocked bool
	// Value is the value of a label or annotation of the Namespace.
	Value string
	// Current is nil if no object with the name has the label of a template.
	Current *Observed
	// Unknown is why the source of a copy, or the object in the cluster, is unknown; nil if it is known.
	Unknown error
	// MissingRole is the problem of a RoleBinding in an initialized Namespace whose ClusterRole does not exist.
	MissingRole error
}

// NewObject returns a rendered object. The content of a copy is set later.
func NewObject(rendered render.Object) ObjectSnapshot {
	object := ObjectSnapshot{Name: rendered.Name, Manifest: rendered.Manifest, IsLocked: rendered.Locked}
	if !rendered.IsCopy {
		object.Content = template.ObjectContent(rendered.Manifest, rendered.Locked)
	}
	return object
}

// MetadataOf returns the labels and annotations that a template sets on a Namespace, sorted by key.
func MetadataOf(
	labels, annotations []internalv1alpha1.EffectiveValue, namespace *corev1.Namespace,
) (objects []ObjectSnapshot) {
	requestedBy := namespace.Annotations[v1alpha1.AnnotationRequestedBy]
	add := func(kind schema.GroupKind, values map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			objects = append(objects, NewMetadata(kind, key, values[key], namespace))
		}
	}
	add(template.KindLabel, templateset.Evaluate(labels, namespace, requestedBy))
	add(template.KindAnnotation, templateset.Evaluate(annotations, namespace, requestedBy))
	return objects
}

// NewMetadata returns a label or annotation of a Namespace.
func NewMetadata(kind schema.GroupKind, key, value string, namespace *corev1.Namespace) ObjectSnapshot {
	manifest := &unstructured.Unstructured{Object: map[string]any{}}
	manifest.SetKind(kind.Kind)
	manifest.SetName(key)
	object := ObjectSnapshot{Manifest: manifest, Value: value, Content: template.HashOf(value)}
	if hash := template.MetadataHash(namespace, object.Key()); hash != "" {
		object.Current = &Observed{UID: namespace.UID, NamespaceUID: namespace.UID, Fields: hash}
	}
	return object
}

// IsMetadata reports whether the object is a label or annotation of the Namespace.
func (o *ObjectSnapshot) IsMetadata() bool { return template.IsMetadata(o.Key().Kind) }

// Key identifies the object in its Namespace.
func (o *ObjectSnapshot) Key() template.ObjectKey { return template.KeyOf(o.Manifest) }

// Contents are the objects that a Namespace can contain with a revision of a template. The name is empty if an
// expression computes it.
type Contents sets.Set[template.ObjectKey]

// has reports whether the Namespace can contain an object.
func (c Contents) has(key template.ObjectKey) bool {
	set := sets.Set[template.ObjectKey](c)
	return set.Has(key) || set.Has(template.ObjectKey{Kind: key.Kind})
}

// Observed is the metadata of an object in the cluster.
type Observed struct {
	UID             types.UID
	ResourceVersion string
	// Template and NamespaceUID are the label and the annotation that the operator has written.
	Template     string
	NamespaceUID types.UID
	// Fields is the hash of the managedFields entry of the template, empty if there is none; of the value of a label or
	// annotation.
	Fields        string
	IsTerminating bool
	// IsCounted is true if the object is a ResourceQuota that kube-controller-manager has counted.
	IsCounted bool
	// IsCrowded is true if the object has too many field managers.
	IsCrowded bool
	// IsShared is true if another client also claims fields that a template has set.
	IsShared bool
}

// maxUID is the length of a UID. Annotations of tenants can have any size.
const maxUID = 36

// ObservedOf returns what decisions depend on of the metadata of an object.
func ObservedOf(metadata *metav1.ObjectMeta) *Observed {
	observed := &Observed{
		UID: metadata.UID, ResourceVersion: metadata.ResourceVersion,
		Template:      metadata.Labels[v1alpha1.LabelManagedByTemplate],
		NamespaceUID:  types.UID(metadata.Annotations[v1alpha1.AnnotationNamespaceUID]),
		IsTerminating: metadata.DeletionTimestamp != nil, IsCrowded: IsCrowded(metadata.ManagedFields),
		IsShared: hasSharedFields(metadata.ManagedFields, metadata.Labels[v1alpha1.LabelManagedByTemplate]),
	}
	if len(observed.NamespaceUID) > maxUID {
		observed.NamespaceUID = "" // It is not the UID of a Namespace.
	}
	observed.Fields = FieldsOf(metadata.ManagedFields, observed.Template)
	return observed
}

// FieldsOf returns the hash of the managedFields entry of a template, including its time: if a client applies other
// values as the same field manager, only the time changes.
func FieldsOf(entries []metav1.ManagedFieldsEntry, templateName string) string {
	index := slices.IndexFunc(entries, claimsOf(templateName))
	if index < 0 {
		return ""
	}
	return template.HashOf(entries[index].FieldsV1.GetRawString(), entries[index].Time)
}
