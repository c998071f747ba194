// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Content is the part of a spec that a revision identifies.
type Content struct {
	Parameters []v1alpha1.TemplateParameter `json:"parameters,omitempty"`
	Variables  []v1alpha1.TemplateVariable  `json:"variables,omitempty"`
	Metadata   *v1alpha1.TemplateMetadata   `json:"metadata,omitempty"`
	// ObjectMetadata are the labels and annotations of all objects.
	ObjectMetadata *v1alpha1.TemplateObjectMetadata `json:"objectMetadata,omitempty"`
	Objects        []v1alpha1.TemplateObject        `json:"objects"`
}

// ContentOf returns the content of a spec, with the defaults of the schema.
func ContentOf(spec *v1alpha1.NamespaceTemplateSpec) Content {
	objects := slices.Clone(spec.Objects)
	for i := range objects {
		objects[i].NamespaceState = cmp.Or(objects[i].NamespaceState, v1alpha1.NamespaceStateInitializing)
		objects[i].Lock = cmp.Or(objects[i].Lock, v1alpha1.LockNone)
	}
	metadata := spec.Metadata.DeepCopy()
	if metadata != nil {
		metadata.Lock = cmp.Or(metadata.Lock, v1alpha1.LockNone)
	}
	return Content{
		Parameters: spec.Parameters, Variables: spec.Variables, Metadata: metadata,
		ObjectMetadata: spec.ObjectMetadata, Objects: objects,
	}
}

// Revision identifies the parameters, variables, metadata and objects of a template. Other fields, and descriptions,
// do not change what a Namespace contains.
func Revision(spec *v1alpha1.NamespaceTemplateSpec) string {
	identified := ContentOf(spec)
	identified.Parameters = slices.Clone(identified.Parameters)
	for i := range identified.Parameters {
		identified.Parameters[i].Description = ""
	}
	return HashOf(identified)
}

// EncodeContent sorts the fields by name, as most clients do: the API server rejects a PUT that changes a byte of the
// data.
func EncodeContent(stored Content) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&stored)
	if err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}
