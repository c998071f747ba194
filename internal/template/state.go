// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Other returns another template for which a Namespace records an object, the first by name; empty if there is none.
func (s Record) Other(key ObjectKey, template string) string {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if name != template && s[name].Find(key) != nil {
			return name
		}
	}
	return ""
}

// Earlier returns what a Namespace records of an object for another template; nil if there is none.
func (s Record) Earlier(key ObjectKey, template string) *ObjectState {
	return s[s.Other(key, template)].Find(key)
}

// The kinds under which a Namespace records its own labels and annotations that templates set, as if they were objects.
// No API has them. The templates policy finds them in the record.
var (
	KindLabel      = schema.GroupKind{Kind: "Label"}
	KindAnnotation = schema.GroupKind{Kind: "Annotation"}
)

// IsMetadata reports whether a kind stands for a label or an annotation of the Namespace.
func IsMetadata(kind schema.GroupKind) bool { return kind == KindLabel || kind == KindAnnotation }

// HasMetadata reports whether a Namespace has the values of all labels and annotations in a state.
func (s Record) HasMetadata(namespace *corev1.Namespace) bool {
	for _, entry := range s {
		for _, object := range entry.Objects {
			if IsMetadata(object.Kind) && MetadataHash(namespace, object.Key()) != object.Fields {
				return false
			}
		}
	}
	return true
}

// MetadataHash returns the hash of the value of a label or annotation of a Namespace; empty if it does not exist.
func MetadataHash(namespace *corev1.Namespace, key ObjectKey) string {
	metadata := namespace.Annotations
	if key.Kind == KindLabel {
		metadata = namespace.Labels
	}
	if value, ok := metadata[key.Name]; ok {
		return HashOf(value)
	}
	return ""
}

// ObjectKey identifies an object in a Namespace. The version does not matter.
type ObjectKey struct {
	Kind schema.GroupKind
	Name string
}

// KeyOf returns the key of the object that a manifest describes.
func KeyOf(manifest *unstructured.Unstructured) ObjectKey {
	return ObjectKey{Kind: manifest.GroupVersionKind().GroupKind(), Name: manifest.GetName()}
}

// Record is the content of the annotation v1alpha1.AnnotationAppliedTemplates: the templates that a Namespace contains,
// by name.
type Record map[string]Entry

// Entry is what a Namespace contains of one template.
type Entry struct {
	// Revision is the revision of the template whose objects were all applied; empty if there is none.
	Revision string
	// Target is the revision that is being applied, if it is another one.
	Target string
	// Objects are the objects. Their order has no meaning.
	Objects []ObjectState
	// LockedLabels and LockedAnnotations are keys of the Namespace that the template locks, sorted.
	LockedLabels, LockedAnnotations []string
}

// ObjectState records one object.
type ObjectState struct {
	Kind schema.GroupKind
	// Name is metadata.name.
	Name string
	UID  types.UID
	// Content is the hash of the manifest.
	Content string
	// Fields is the hash of the managedFields entry, empty if there is none; of the value of a label or annotation.
	Fields string
	// IsAdopted is true if the object existed before the template was applied. It is never deleted.
	IsAdopted bool
	// IsDifferent is true if the object differed from the template after it was applied.
	IsDifferent bool
}

// Key identifies the object in its Namespace.
func (o ObjectState) Key() ObjectKey { return ObjectKey{Kind: o.Kind, Name: o.Name} }

// Newest returns the revision that the Namespace contains or is getting.
func (s Entry) Newest() string { return cmp.Or(s.Target, s.Revision) }

// Next returns what a Namespace contains of a template after a pass for a revision. It is complete if all objects of
// the revision were applied, and none of an earlier one remains.
func (s Entry) Next(revision string, objects []ObjectState, isComplete bool) Entry {
	next := Entry{Revision: s.Revision, Objects: objects}
	switch {
	case isComplete:
		next.Revision = revision
	case s.Revision != revision:
		next.Target = revision
	}
	return next
}

// Find returns the recorded state of an object, or nil.
func (s Entry) Find(key ObjectKey) *ObjectState {
	index := slices.IndexFunc(s.Objects, func(o ObjectState) bool { return o.Key() == key })
	if index < 0 {
		return nil
	}
	return &s.Objects[index]
}

// ObjectContent returns the value of ObjectState.Content for an object that is not a copy.
func ObjectContent(manifest *unstructured.Unstructured, isLocked bool) string {
	return HashOf(manifest.Object, isLocked)
}

// HashOf returns a short hash of values that can be encoded as JSON.
func HashOf(values ...any) string {
	hash := sha256.New()
	encoder := json.NewEncoder(hash)
	for _, value := range values {
		// Encoding API types and decoded JSON cannot fail.
		_ = encoder.Encode(value)
	}
	return hex.EncodeToString(hash.Sum(nil)[:hashSize])
}

// Put sets a value in a map, which is nil while it is empty: there can be one for each Namespace.
func Put[M ~map[K]V, K comparable, V any](values *M, key K, value V) {
	if *values == nil {
		*values = M{}
	}
	(*values)[key] = value
}
