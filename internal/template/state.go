// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// State is the value of v1alpha1.AnnotationTemplates: the templates that a Namespace contains, by name.
type State map[string]Entry

// Entry is what a Namespace contains of one template.
type Entry struct {
	// Revision is the revision of the template whose objects were all applied; empty if there is none.
	Revision string `json:"revision,omitempty"`
	// Target is the revision that is being applied, if it is another one.
	Target string `json:"target,omitempty"`
	// Objects are the objects, in the order in which they were applied.
	Objects []ObjectState `json:"objects,omitempty"`
}

// ObjectState records one object.
type ObjectState struct {
	// Name is the name of the object in the template.
	Name       string `json:"name"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// ObjectName is metadata.name.
	ObjectName string    `json:"objectName"`
	UID        types.UID `json:"uid"`
	// Content is the hash of the manifest.
	Content string `json:"content"`
	// Fields is the hash of the managedFields entry.
	Fields string `json:"fields"`
	// IsAdopted is true if the object existed before the template was applied. It is never deleted.
	IsAdopted bool `json:"adopted,omitempty"`
}

// key identifies the object in its Namespace.
func (o ObjectState) key() objectKey {
	group, _ := schema.ParseGroupVersion(o.APIVersion)
	return objectKey{kind: group.WithKind(o.Kind).GroupKind(), name: o.ObjectName}
}

// ParseState returns the state that a Namespace records. The guard policy allows only holders of the
// verb "initialize" to change it.
func ParseState(namespace *corev1.Namespace) (State, error) {
	text := namespace.Annotations[v1alpha1.AnnotationTemplates]
	if text == "" {
		return State{}, nil
	}
	var state State
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		return nil, fmt.Errorf("failed to parse annotation %s of namespace %q: %w",
			v1alpha1.AnnotationTemplates, namespace.Name, err)
	}
	return state, nil
}

// String returns the value of the annotation; empty if there are no templates.
func (s State) String() string {
	if len(s) == 0 {
		return ""
	}
	// Encoding this type cannot fail. The keys of maps are sorted.
	encoded, _ := json.Marshal(s)
	return string(encoded)
}

// target returns the revision that the Namespace contains or is getting.
func (s Entry) target() string { return cmp.Or(s.Target, s.Revision) }

// find returns the recorded state of an object, or nil.
func (s Entry) find(key objectKey) *ObjectState {
	index := slices.IndexFunc(s.Objects, func(o ObjectState) bool { return o.key() == key })
	if index < 0 {
		return nil
	}
	return &s.Objects[index]
}

// ObjectContent returns the value of ObjectState.Content for an object that is not a copy.
func ObjectContent(manifest *unstructured.Unstructured, isLocked bool) string {
	return hashOf(manifest.Object, isLocked)
}

// hashOf returns a short hash of values that can be encoded as JSON.
func hashOf(values ...any) string {
	hash := sha256.New()
	encoder := json.NewEncoder(hash)
	for _, value := range values {
		// Encoding API types and decoded JSON cannot fail.
		_ = encoder.Encode(value)
	}
	return hex.EncodeToString(hash.Sum(nil)[:6])
}
