// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// ResolveParameters returns the values that a Namespace has for the parameters. The map contains each
// declared parameter; an optional parameter without a value and a default is "". The rules are those of
// PolicyTemplates, which the API server applies when a value changes: an empty annotation is a value.
func ResolveParameters(
	parameters []v1alpha1.TemplateParameter, namespace *corev1.Namespace,
) (map[string]string, error) {
	values := make(map[string]string, len(parameters))
	var errs []error
	for i := range parameters {
		value, err := resolveParameter(&parameters[i], namespace)
		errs = append(errs, err)
		values[parameters[i].Name] = value
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &Error{Reason: v1alpha1.ReasonInvalidParameter, Err: err}
	}
	return values, nil
}

func resolveParameter(parameter *v1alpha1.TemplateParameter, namespace *corev1.Namespace) (string, error) {
	value, ok := namespace.Annotations[v1alpha1.PrefixParameter+parameter.Name]
	if parameter.LabelKey != "" {
		value, ok = namespace.Labels[parameter.LabelKey]
	}
	switch {
	case ok:
		return value, templateset.CheckValue(parameter, value)
	case parameter.Default != nil:
		return *parameter.Default, templateset.CheckValue(parameter, *parameter.Default)
	case parameter.Required:
		return "", fmt.Errorf("the parameter %s is required: set the %s", parameter.Name, sourceOf(parameter))
	default:
		return "", nil
	}
}

// sourceOf describes where users set a parameter.
func sourceOf(parameter *v1alpha1.TemplateParameter) string {
	if parameter.LabelKey != "" {
		return "label " + parameter.LabelKey
	}
	return "annotation " + v1alpha1.PrefixParameter + parameter.Name
}

// checkParameters validates what the schema of the API cannot.
func (c *compiler) checkParameters(path *field.Path, parameters []v1alpha1.TemplateParameter) {
	names := map[string]bool{}
	for i := range parameters {
		parameter, path := &parameters[i], path.Index(i)
		if names[parameter.Name] {
			c.errs = append(c.errs, field.Duplicate(path.Child("name"), parameter.Name))
		}
		names[parameter.Name] = true
		if parameter.Pattern != "" {
			if _, err := patternSize(parameter.Pattern); err != nil {
				c.invalid(path.Child("pattern"), parameter.Pattern, err.Error())
				continue
			}
		}
		if parameter.Default != nil {
			if err := templateset.CheckValue(parameter, *parameter.Default); err != nil {
				c.invalid(path.Child("default"), *parameter.Default, err.Error())
			}
		}
	}
}
