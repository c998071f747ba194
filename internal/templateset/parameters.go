// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateset

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// MaxLength is the length of the value of a parameter, in characters. In the metadata of a Namespace, longer values are
// ignored, because the templates policy rejects them.
const MaxLength = 1024

// maxQuoted is the length of a value in a message.
const maxQuoted = 128

// defaultMaxItems is the default of maxItems, and its maximum.
const defaultMaxItems = 32

// IsList reports whether the value of a parameter is a list.
func IsList(parameter *v1alpha1.TemplateParameter) bool {
	return parameter.Type == v1alpha1.ParameterList
}

// MaxItems returns the maximum number of elements of a parameter that is a list.
func MaxItems(parameter *v1alpha1.TemplateParameter) int {
	return int(ptr.Deref(parameter.MaxItems, defaultMaxItems))
}

// Elements returns the elements of a parameter that is a list. The empty value is the empty list.
func Elements(value string) []string {
	if value == "" {
		return nil
	}
	return strings.Split(value, ",")
}

// CheckSize validates the length of a value and the number of its elements. It is a part of CheckValue.
func CheckSize(parameter *v1alpha1.TemplateParameter, value string) error {
	if n := utf8.RuneCountInString(value); n > MaxLength {
		return fmt.Errorf("the parameter %s has %d characters; at most %d are permitted", parameter.Name, n, MaxLength)
	}
	if !IsList(parameter) {
		return nil
	}
	if n := len(Elements(value)); n > MaxItems(parameter) {
		return fmt.Errorf("the list %s has %d elements; at most %d are permitted", parameter.Name, n, MaxItems(parameter))
	}
	return nil
}

// CheckValue validates a value of a parameter. The policy templates implements the same rules.
func CheckValue(parameter *v1alpha1.TemplateParameter, value string) error {
	if err := CheckSize(parameter, value); err != nil {
		return err
	}
	if !IsList(parameter) {
		return checkElement(parameter, value)
	}
	elements := Elements(value)
	if parameter.Required && len(elements) == 0 {
		return fmt.Errorf("the list %s is required, but is empty", parameter.Name)
	}
	for i, element := range elements {
		if element == "" || slices.Contains(elements[:i], element) {
			return fmt.Errorf("the list %s is %q, but must not contain empty or repeated elements", parameter.Name,
				printable.Cut(value, maxQuoted))
		}
		if err := checkElement(parameter, element); err != nil {
			return err
		}
	}
	return nil
}

// checkElement validates an element of a list, or a value that is not a list.
func checkElement(parameter *v1alpha1.TemplateParameter, value string) error {
	if len(parameter.Enum) > 0 && !slices.Contains(parameter.Enum, value) {
		return fmt.Errorf("the parameter %s is %q, but must be one of: %s", parameter.Name,
			printable.Cut(value, maxQuoted), strings.Join(parameter.Enum, ", "))
	}
	if parameter.Pattern == "" {
		return nil
	}
	pattern, err := regexp.Compile(parameter.Pattern)
	if err != nil {
		return errors.New("the regular expression is invalid: " + err.Error())
	}
	if !pattern.MatchString(value) {
		return fmt.Errorf("the parameter %s is %q, but must match the regular expression %s", parameter.Name,
			printable.Cut(value, maxQuoted), parameter.Pattern)
	}
	return nil
}
