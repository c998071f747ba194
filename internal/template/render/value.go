// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	messageNotJSON = "a value of type %s cannot be part of an object; convert it to a string, number, list or map"
	messageNotText = "a value of type %s cannot be part of a text; convert it to a string"
)

var errTooLarge = errors.New("the size exceeds the limit")

// toJSON returns a value as it is in a decoded manifest. It shares no memory with larger strings that it is a part of.
// An optional value without a value is dropped: ok is false.
func (e *evaluation) toJSON(value ref.Val) (converted any, ok bool, err error) {
	if optional, isOptional := value.(*types.Optional); isOptional {
		if !optional.HasValue() {
			return nil, false, nil
		}
		value = optional.GetValue()
	}
	converted, err = e.convert(value, 0)
	return converted, true, err
}

func (e *evaluation) convert(value ref.Val, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("the value is nested more than %d times", maxDepth)
	}
	if err := e.spend(sizeScalar); err != nil {
		return nil, err
	}
	switch value := value.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(value), nil
	case types.Int:
		return int64(value), nil
	case types.Uint:
		if value > math.MaxInt64 {
			return nil, errors.New("the number is larger than the largest integer")
		}
		return int64(value), nil
	case types.Double:
		return finite(value)
	case types.String:
		return e.clone(string(value))
	case traits.Mapper:
		return e.convertMap(value, depth)
	case traits.Lister:
		return e.convertList(value, depth)
	case *types.Optional:
		return nil, errors.New("a list or map cannot contain an optional value")
	}
	if quantity, ok := value.Value().(*resource.Quantity); ok {
		return e.clone(quantity.String())
	}
	return nil, fmt.Errorf(messageNotJSON, value.Type().TypeName())
}

func finite(value types.Double) (float64, error) {
	if math.IsNaN(float64(value)) || math.IsInf(float64(value), 0) {
		return 0, errors.New("the number is not finite")
	}
	return float64(value), nil
}

// clone returns a copy of a string. Strings that are not valid UTF-8 cannot be JSON.
func (e *evaluation) clone(text string) (string, error) {
	if len(text) > maxString {
		return "", errTooLarge
	}
	if err := e.spend(len(text)); err != nil {
		return "", err
	}
	return strings.ToValidUTF8(strings.Clone(text), "\uFFFD"), nil
}

func (e *evaluation) convertList(list traits.Lister, depth int) ([]any, error) {
	result := []any{}
	for it := list.Iterator(); it.HasNext() == types.True; {
		item, err := e.convert(it.Next(), depth+1)
		if err != nil {
			return nil, err
		}
		result = append(result, item)
	}
	return result, nil
}

func (e *evaluation) convertMap(values traits.Mapper, depth int) (map[string]any, error) {
	result := map[string]any{}
	for it := values.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, errors.New("the keys of a map must be strings")
		}
		copied, err := e.clone(string(name))
		if err != nil {
			return nil, err
		}
		if result[copied], err = e.convert(values.Get(key), depth+1); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// toText returns a value as part of a text.
func (e *evaluation) toText(value ref.Val) (string, error) {
	switch value := value.(type) {
	case types.String:
		return e.clone(string(value))
	case types.Bool, types.Int, types.Uint:
		return fmt.Sprint(value.Value()), nil
	case types.Double:
		number, err := finite(value)
		return strconv.FormatFloat(number, 'f', -1, 64), err
	}
	if quantity, ok := value.Value().(*resource.Quantity); ok {
		return e.clone(quantity.String())
	}
	return "", fmt.Errorf(messageNotText, value.Type().TypeName())
}
