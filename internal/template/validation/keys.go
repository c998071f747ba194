// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// schemaTimeout limits the time for the schemas of all kinds of a template: a warning must not delay the author.
	schemaTimeout = 500 * time.Millisecond
	// maxUnknownKeys is the number of unknown keys in a warning.
	maxUnknownKeys = 5

	refPrefix = "#/components/schemas/"
)

// document is the part of an OpenAPI document of a group and version that states which keys exist.
type document struct {
	Components struct {
		Schemas map[string]*keySchema `json:"schemas"`
	} `json:"components"`
}

type keySchema struct {
	Ref        string                `json:"$ref"`
	AllOf      []*keySchema          `json:"allOf"`
	Properties map[string]*keySchema `json:"properties"`
	// AdditionalProperties is a schema or a boolean.
	AdditionalProperties json.RawMessage           `json:"additionalProperties"`
	Items                *keySchema                `json:"items"`
	PreservesUnknown     bool                      `json:"x-kubernetes-preserve-unknown-fields"`
	Kinds                []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
}

// schemaReader reads the schemas of kinds for one template.
type schemaReader struct {
	*Validator
	documents map[schema.GroupVersion]*document
}

// unknownKeys returns a warning about keys of a manifest that the schema of its kind does not have; empty if there are
// none, or if the schema is unknown. Expressions are not evaluated.
func (r *schemaReader) unknownKeys(ctx context.Context, manifest *unstructured.Unstructured) string {
	kind := manifest.GroupVersionKind()
	found, ok := r.documents[kind.GroupVersion()]
	if !ok {
		var err error
		if found, err = r.read(ctx, kind.GroupVersion()); err != nil {
			log.FromContext(ctx).Error(err, "Failed to read the schema of a kind", "kind", kind)
		}
		r.documents[kind.GroupVersion()] = found
	}
	if found == nil {
		return ""
	}
	var keys []string
	for _, candidate := range found.Components.Schemas {
		if slices.Contains(candidate.Kinds, metav1.GroupVersionKind(kind)) {
			found.collect(candidate, manifest.Object, "", func(path string) { keys = append(keys, fmt.Sprintf("%q", path)) })
		}
	}
	switch more := len(keys) - maxUnknownKeys; {
	case len(keys) == 0:
		return ""
	case more > 0:
		return fmt.Sprintf("unknown fields %s and %d more", strings.Join(keys[:maxUnknownKeys], ", "), more)
	case len(keys) == 1:
		return "unknown field " + keys[0]
	}
	return "unknown fields " + strings.Join(keys, ", ")
}

// read returns the document of a group and version; nil if there have been many requests.
func (r *schemaReader) read(ctx context.Context, of schema.GroupVersion) (*document, error) {
	if !r.lookups.Allow() {
		return nil, nil
	}
	path := "/openapi/v3/apis/" + of.String()
	if of.Group == "" {
		path = "/openapi/v3/api/" + of.Version
	}
	content, err := r.openAPI.Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	decoded := &document{}
	return decoded, json.Unmarshal(content, decoded)
}

// maxReferences limits how often a schema refers to another one: an aggregated API server could return a cycle.
const maxReferences = 16

// resolve returns the schema to which a schema refers.
func (d *document) resolve(of *keySchema) *keySchema {
	for range maxReferences {
		switch {
		case of == nil || len(of.Properties) > 0 || of.Ref == "" && len(of.AllOf) != 1:
			return of
		case of.Ref != "":
			of = d.Components.Schemas[strings.TrimPrefix(of.Ref, refPrefix)]
		default:
			of = of.AllOf[0]
		}
	}
	return nil
}

// collect calls add for each key in a value that its schema does not have.
func (d *document) collect(of *keySchema, value any, path string, add func(path string)) {
	if of = d.resolve(of); of == nil {
		return
	}
	switch content := value.(type) {
	case []any:
		for i, item := range content {
			d.collect(of.Items, item, fmt.Sprintf("%s[%d]", path, i), add)
		}
	case map[string]any:
		additional := &keySchema{}
		// A boolean is no schema.
		_ = json.Unmarshal(of.AdditionalProperties, additional)
		isOpen := of.PreservesUnknown || len(of.Properties) == 0 ||
			cmp.Or(string(of.AdditionalProperties), "false") != "false"
		for _, key := range slices.Sorted(maps.Keys(content)) {
			child := strings.TrimPrefix(path+"."+key, ".")
			switch property, ok := of.Properties[key]; {
			case ok:
				d.collect(property, content[key], child, add)
			case isOpen:
				d.collect(additional, content[key], child, add)
			case !strings.Contains(key, "${"):
				add(child)
			}
		}
	}
}
