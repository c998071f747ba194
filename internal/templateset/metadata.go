// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateset

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

const (
	prefixParams  = "params."
	exprRequester = "requestedBy"
	maxParts      = 64
)

// expression is an expression in a value, or an escaped "${".
var expression = regexp.MustCompile(`\$\$\{|\$\{([^}]*)\}`)

// Values returns the labels and annotations that a spec sets on Namespaces, sorted by key.
func Values(spec *v1alpha1.NamespaceTemplateSpec) (labels, annotations []internalv1alpha1.EffectiveValue) {
	if spec.Metadata == nil {
		return nil, nil
	}
	return valuesOf(spec.Metadata.Labels, spec), valuesOf(spec.Metadata.Annotations, spec)
}

// Evaluate returns labels or annotations of a Namespace that a user has requested. Those with an empty parameter or
// requester are omitted. The policy inject implements the same rules.
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
	switch {
	case part.Text != "":
		return part.Text
	case part.Label != "":
		return namespace.Labels[part.Label]
	case part.Annotation == "":
		return requestedBy
	}
	if value, ok := namespace.Annotations[part.Annotation]; ok {
		return value
	}
	return part.Default
}

// CheckValue returns an error if the value of a label or annotation contains an expression that cannot be evaluated.
func CheckValue(value v1alpha1.TemplateMetadataValue, parameters []v1alpha1.TemplateParameter) error {
	_, err := split(value, parameters)
	return err
}

// valuesOf returns the labels or annotations of a spec, sorted by key. It omits those with an error.
func valuesOf(
	metadata map[string]v1alpha1.TemplateMetadataValue, spec *v1alpha1.NamespaceTemplateSpec,
) []internalv1alpha1.EffectiveValue {
	var values []internalv1alpha1.EffectiveValue
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if parts, err := split(metadata[key], spec.Parameters); err == nil {
			values = append(values, internalv1alpha1.EffectiveValue{Key: key, Parts: parts})
		}
	}
	return values
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
	for _, parameter := range parameters {
		switch {
		case parameter.Name != name:
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
