// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package templateset decides which templates fit into the NamespaceInitializerSet, the parameter of the admission
// policies.
package templateset

import (
	"cmp"
	"encoding/json"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// MaxTemplateBytes limits Size. Without this limit, the author of an old template could displace many newer ones.
const MaxTemplateBytes = 16 << 10

// MaxBytes limits the sum of Size of the templates in the set. The API server stores at most 1.5 MiB in an object, of
// which the metadata have 512 KiB.
const MaxBytes = 512 << 10

// MaxMetadataBytes limits the metadata of all templates in the set, which bounds the cost of new Namespaces.
const MaxMetadataBytes = 64 << 10

// Compute returns the part of the templates that the admission policies use, sorted by name. It omits templates that
// do not fit. New Namespaces get the metadata in the current specs, by template, if they are not those of the template;
// none if a spec is nil.
func Compute(
	templates []v1alpha1.NamespaceTemplate, current map[string]*v1alpha1.NamespaceTemplateSpec,
) []internalv1alpha1.EffectiveTemplate {
	fitting := fit(templates, func(t *v1alpha1.NamespaceTemplate) (int, int) {
		return Size(&t.Spec), SizeOfMetadata(Values(&t.Spec))
	})
	effective := make([]internalv1alpha1.EffectiveTemplate, 0, len(fitting))
	for _, template := range fitting {
		next, spec := effectiveTemplate(template.Name, &template.Spec), &template.Spec
		if other, ok := current[template.Name]; ok {
			spec = other
		}
		if spec != nil && spec.Metadata != nil {
			next.Labels, next.Annotations = Values(spec)
			next.Lock = spec.Metadata.Lock
		}
		effective = append(effective, next)
	}
	slices.SortFunc(effective, func(a, b internalv1alpha1.EffectiveTemplate) int { return cmp.Compare(a.Name, b.Name) })
	return effective
}

// Selects reports whether the set selects new Namespaces as a template specifies.
func Selects(set *internalv1alpha1.NamespaceInitializerSet, template *v1alpha1.NamespaceTemplate) bool {
	want := effectiveTemplate(template.Name, &template.Spec)
	return slices.ContainsFunc(set.Templates, func(current internalv1alpha1.EffectiveTemplate) bool {
		return current.Name == want.Name && current.Access == want.Access &&
			apiequality.Semantic.DeepEqual(current.NamespaceSelector, want.NamespaceSelector) &&
			apiequality.Semantic.DeepEqual(current.Parameters, want.Parameters)
	})
}

// Omitted returns the names of the templates that do not fit. The function size returns Size and
// SizeOfMetadata.
func Omitted(
	templates []v1alpha1.NamespaceTemplate, size func(*v1alpha1.NamespaceTemplate) (bytes, metadata int),
) sets.Set[string] {
	omitted := sets.New[string]()
	for i := range templates {
		if templates[i].DeletionTimestamp == nil {
			omitted.Insert(templates[i].Name)
		}
	}
	for _, template := range fit(templates, size) {
		omitted.Delete(template.Name)
	}
	return omitted
}

// Size returns the size of a template in the set without its name and its metadata, in bytes.
func Size(spec *v1alpha1.NamespaceTemplateSpec) int {
	encoded, _ := json.Marshal(effectiveTemplate("", spec)) // Encoding this type cannot fail.
	return len(encoded)
}

// effectiveTemplate returns a template without its metadata, which can be those of another revision. Lists have
// maxItems, and no default that is invalid: the API server would reject all new Namespaces. The schema rejects other
// invalid defaults.
func effectiveTemplate(name string, spec *v1alpha1.NamespaceTemplateSpec) internalv1alpha1.EffectiveTemplate {
	spec = spec.DeepCopy()
	for i := range spec.Parameters {
		parameter := &spec.Parameters[i]
		parameter.Description = ""
		if !IsList(parameter) {
			continue
		}
		parameter.MaxItems = ptr.To(int32(MaxItems(parameter)))
		if parameter.Default != nil && CheckValue(parameter, *parameter.Default) != nil {
			parameter.Default = nil
		}
	}
	return internalv1alpha1.EffectiveTemplate{
		Name: name, NamespaceSelector: spec.NamespaceSelector, Access: spec.Access, Parameters: spec.Parameters,
	}
}

// fit returns the templates that fit, the oldest first: the author of a new template can neither displace older ones
// nor make the set too large to be written. Templates that are being deleted are omitted.
func fit(
	templates []v1alpha1.NamespaceTemplate, size func(*v1alpha1.NamespaceTemplate) (bytes, metadata int),
) []*v1alpha1.NamespaceTemplate {
	oldest := make([]*v1alpha1.NamespaceTemplate, 0, len(templates))
	for i := range templates {
		if templates[i].DeletionTimestamp == nil {
			oldest = append(oldest, &templates[i])
		}
	}
	slices.SortFunc(oldest, func(a, b *v1alpha1.NamespaceTemplate) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	sum, sumOfMetadata := 0, 0
	fitting := slices.DeleteFunc(oldest, func(template *v1alpha1.NamespaceTemplate) bool {
		bytes, bytesOfMetadata := size(template)
		if bytes > MaxTemplateBytes || sum+bytes > MaxBytes || sumOfMetadata+bytesOfMetadata > MaxMetadataBytes {
			return true
		}
		sum, sumOfMetadata = sum+bytes, sumOfMetadata+bytesOfMetadata
		return false
	})
	return fitting[:min(len(fitting), internalv1alpha1.MaxTemplates)]
}
