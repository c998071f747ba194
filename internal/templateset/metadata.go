// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateset

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

const (
	prefixParams  = "params."
	exprRequester = "requestedBy"
	maxParts      = 8
	// maxBytes limits the metadata of a template in the set.
	maxBytes = 4 << 10
)

// expression is an expression in a value, or an escaped "${".
var expression = regexp.MustCompile(`\$\$\{|\$\{([^}]*)\}`)

// Values returns the labels and annotations that a spec sets on Namespaces, sorted by key; none if CheckMetadata
// returns an error: an API server would reject all new Namespaces, or set a part of the metadata.
func Values(spec *v1alpha1.NamespaceTemplateSpec) (labels, annotations []internalv1alpha1.EffectiveValue) {
	labels, annotations, errs := parse(nil, spec)
	if len(errs) > 0 {
		return nil, nil
	}
	return labels, annotations
}

// Evaluate returns labels or annotations of a Namespace that a user has requested. Those with an empty or too long
// parameter or requester are omitted. The policy inject implements the same rules.
func Evaluate(
	values []internalv1alpha1.EffectiveValue, namespace *corev1.Namespace, requestedBy string,
) map[string]string {
	result := make(map[string]string, len(values))
	for _, value := range values {
		var text strings.Builder
		isSet := true
		for _, part := range value.Parts {
			resolved := resolve(part, namespace, requestedBy)
			text.WriteString(resolved)
			isSet = isSet && resolved != ""
		}
		if isSet {
			result[value.Key] = text.String()
		}
	}
	return result
}

func resolve(part internalv1alpha1.EffectivePart, namespace *corev1.Namespace, requestedBy string) string {
	value := requestedBy
	switch {
	case part.Text != "":
		value = part.Text
	case part.Label != "":
		value = namespace.Labels[part.Label]
	case part.Annotation != "":
		var ok bool
		if value, ok = namespace.Annotations[part.Annotation]; !ok {
			value = part.Default
		}
	}
	if utf8.RuneCountInString(value) > MaxLength {
		return ""
	}
	return value
}

// CheckMetadata validates what the schema of the API cannot. The errors are sorted.
func CheckMetadata(path *field.Path, spec *v1alpha1.NamespaceTemplateSpec) field.ErrorList {
	_, _, errs := parse(path, spec)
	return errs
}

func parse(
	path *field.Path, spec *v1alpha1.NamespaceTemplateSpec,
) (labels, annotations []internalv1alpha1.EffectiveValue, errs field.ErrorList) {
	if spec.Metadata == nil {
		return nil, nil, nil
	}
	labels, errs = valuesOf(path.Child("labels"), spec.Metadata.Labels, spec)
	for _, label := range labels {
		path := path.Child("labels").Key(label.Key)
		switch value, isSet := Evaluate([]internalv1alpha1.EffectiveValue{label}, &corev1.Namespace{}, "")[label.Key]; {
		case selectsBy(spec.NamespaceSelector, label.Key):
			errs = append(errs, field.Forbidden(path, "the selector of the template depends on this label"))
		case slices.ContainsFunc(spec.Parameters, func(p v1alpha1.TemplateParameter) bool { return p.LabelKey == label.Key }):
			errs = append(errs, field.Forbidden(path, "the label is the value of a parameter"))
		case isSet && len(validation.IsValidLabelValue(value)) > 0:
			errs = append(errs, field.Invalid(path, string(spec.Metadata.Labels[label.Key]),
				"with the defaults of the parameters: "+strings.Join(validation.IsValidLabelValue(value), "; ")))
		}
	}
	annotations, annotationErrs := valuesOf(path.Child("annotations"), spec.Metadata.Annotations, spec)
	if size := SizeOfMetadata(labels, annotations); size > maxBytes {
		errs = append(errs, field.Forbidden(path, fmt.Sprintf("the metadata have %d bytes, more than %d", size, maxBytes)))
	}
	return labels, annotations, append(errs, annotationErrs...)
}

// SizeOfMetadata returns the size of labels and annotations in the set, in bytes.
func SizeOfMetadata(labels, annotations []internalv1alpha1.EffectiveValue) int {
	if len(labels)+len(annotations) == 0 {
		return 0
	}
	encoded, _ := json.Marshal([][]internalv1alpha1.EffectiveValue{labels, annotations}) // This cannot fail.
	return len(encoded)
}

// selectsBy reports whether a selector, which can be nil, depends on a label.
func selectsBy(selector *v1alpha1.NamespaceSelector, key string) bool {
	if selector == nil {
		return false
	}
	_, isMatched := selector.MatchLabels[key]
	return isMatched || slices.ContainsFunc(selector.MatchExpressions, func(r v1alpha1.NamespaceSelectorRequirement) bool {
		return r.Key == key
	})
}

// valuesOf returns the labels or annotations of a spec, sorted by key, without those that have an error.
func valuesOf(
	path *field.Path, metadata map[string]v1alpha1.TemplateMetadataValue, spec *v1alpha1.NamespaceTemplateSpec,
) (values []internalv1alpha1.EffectiveValue, errs field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		parts, err := split(metadata[key], spec.Parameters)
		if err != nil {
			errs = append(errs, field.Invalid(path.Key(key), string(metadata[key]), err.Error()))
			continue
		}
		values = append(values, internalv1alpha1.EffectiveValue{Key: key, Parts: parts})
	}
	return values, errs
}

func split(
	value v1alpha1.TemplateMetadataValue, parameters []v1alpha1.TemplateParameter,
) ([]internalv1alpha1.EffectivePart, error) {
	var parts []internalv1alpha1.EffectivePart
	text, literal := string(value), ""
	flush := func() {
		if literal != "" {
			parts = append(parts, internalv1alpha1.EffectivePart{Text: literal})
		}
		literal = ""
	}
	for {
		found := expression.FindStringSubmatchIndex(text)
		if found == nil {
			break
		}
		literal += text[:found[0]]
		if found[2] < 0 {
			literal += "${"
		} else {
			part, err := parsePart(text[found[2]:found[3]], parameters)
			if err != nil {
				return nil, err
			}
			flush()
			parts = append(parts, part)
		}
		text = text[found[1]:]
	}
	literal += text
	flush()
	if len(parts) > maxParts {
		return nil, fmt.Errorf("the value has more than %d parts", maxParts)
	}
	return parts, nil
}

func parsePart(text string, parameters []v1alpha1.TemplateParameter) (internalv1alpha1.EffectivePart, error) {
	if text == exprRequester {
		return internalv1alpha1.EffectivePart{}, nil
	}
	name, ok := strings.CutPrefix(text, prefixParams)
	if !ok {
		return internalv1alpha1.EffectivePart{}, fmt.Errorf(
			"${%s} is not supported here: the API server evaluates only ${params.<name>} and ${requestedBy}", text)
	}
	for i := range parameters {
		switch parameter := &parameters[i]; {
		case parameter.Name != name:
		case IsList(parameter):
			return internalv1alpha1.EffectivePart{}, fmt.Errorf("parameter %q is a list", name)
		case parameter.LabelKey != "":
			return internalv1alpha1.EffectivePart{Label: parameter.LabelKey}, nil
		default:
			part := internalv1alpha1.EffectivePart{Annotation: v1alpha1.PrefixParameter + name}
			if parameter.Default != nil {
				part.Default = *parameter.Default
			}
			return part, nil
		}
	}
	return internalv1alpha1.EffectivePart{}, fmt.Errorf("the template has no parameter %q", name)
}
