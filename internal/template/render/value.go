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
	apiservercel "k8s.io/apiserver/pkg/cel"
)

var (
	errTooLarge     = errors.New("the size exceeds the limit")
	errExpensive    = fmt.Errorf(msgTooExpensive, maxCost)
	errAllExpensive = fmt.Errorf(msgAllTooExpensive, maxTotalCost)
	errTooDeep      = fmt.Errorf("the value is nested more than %d times", maxDepth)
	errNotFinite    = errors.New("the number is not finite")
	errUintRange    = errors.New("the number is larger than the largest integer")
	errKeyType      = errors.New("the keys of a map must be strings")
	errNestedNone   = errors.New("a list or map cannot contain an optional value")
)

// budget is the size that values can still use.
type budget int

// spend subtracts the size of a value.
func (b *budget) spend(n int) error {
	*b -= budget(n)
	if *b < 0 {
		return errTooLarge
	}
	return nil
}

// converter copies values out of CEL. The copies share no memory with larger strings that they are a part
// of.
type converter struct {
	budget *budget
	// longest is the limit of each string.
	longest int
}

// toJSON returns a value as it is in a decoded manifest. An optional value without a value is dropped: ok
// is false.
func (c *converter) toJSON(value ref.Val) (converted any, ok bool, err error) {
	if optional, isOptional := value.(*types.Optional); isOptional {
		if !optional.HasValue() {
			return nil, false, nil
		}
		value = optional.GetValue()
	}
	converted, err = c.convert(value, 0)
	return converted, true, err
}

func (c *converter) convert(value ref.Val, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	if err := c.budget.spend(sizeScalar); err != nil {
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
		return convertUint(value)
	case types.Double:
		return convertDouble(value)
	case types.String:
		return c.clone(string(value))
	case traits.Mapper:
		return c.convertMap(value, depth)
	case traits.Lister:
		return c.convertList(value, depth)
	case *types.Optional:
		return nil, errNestedNone
	}
	if quantity, ok := quantityOf(value); ok {
		return c.clone(quantity.String())
	}
	return nil, fmt.Errorf(msgNotJSON, value.Type().TypeName())
}

func convertUint(value types.Uint) (any, error) {
	if value > math.MaxInt64 {
		return nil, errUintRange
	}
	return int64(value), nil
}

func convertDouble(value types.Double) (any, error) {
	if math.IsNaN(float64(value)) || math.IsInf(float64(value), 0) {
		return nil, errNotFinite
	}
	return float64(value), nil
}

// clone returns a copy of a string. Strings that are not valid UTF-8 cannot be JSON.
func (c *converter) clone(text string) (string, error) {
	if len(text) > c.longest {
		return "", errTooLarge
	}
	if err := c.budget.spend(len(text)); err != nil {
		return "", err
	}
	return strings.ToValidUTF8(strings.Clone(text), "\uFFFD"), nil
}

func (c *converter) convertList(list traits.Lister, depth int) ([]any, error) {
	result := []any{}
	for it := list.Iterator(); it.HasNext() == types.True; {
		item, err := c.convert(it.Next(), depth+1)
		if err != nil {
			return nil, err
		}
		result = append(result, item)
	}
	return result, nil
}

func (c *converter) convertMap(values traits.Mapper, depth int) (map[string]any, error) {
	result := map[string]any{}
	for it := values.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, errKeyType
		}
		copied, err := c.clone(string(name))
		if err != nil {
			return nil, err
		}
		if result[copied], err = c.convert(values.Get(key), depth+1); err != nil {
			return nil, err
		}
	}
	return result, nil
}

func quantityOf(value ref.Val) (*resource.Quantity, bool) {
	switch value := value.(type) {
	case apiservercel.Quantity:
		return value.Quantity, true
	case *apiservercel.Quantity:
		return value.Quantity, true
	default:
		return nil, false
	}
}

// toText returns a value as part of a text.
func (c *converter) toText(value ref.Val) (string, error) {
	switch value := value.(type) {
	case types.String:
		return c.clone(string(value))
	case types.Bool:
		return strconv.FormatBool(bool(value)), nil
	case types.Int:
		return strconv.FormatInt(int64(value), 10), nil
	case types.Uint:
		return strconv.FormatUint(uint64(value), 10), nil
	case types.Double:
		if _, err := convertDouble(value); err != nil {
			return "", err
		}
		return strconv.FormatFloat(float64(value), 'f', -1, 64), nil
	}
	if quantity, ok := quantityOf(value); ok {
		return c.clone(quantity.String())
	}
	return "", fmt.Errorf(msgNotText, value.Type().TypeName())
}

// detach returns a copy of the value of a variable, which other expressions can use.
func (c *converter) detach(value ref.Val, depth int) (ref.Val, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	if err := c.budget.spend(sizeScalar); err != nil {
		return nil, err
	}
	switch value := value.(type) {
	case types.String:
		copied, err := c.clone(string(value))
		return types.String(copied), err
	case types.Bytes:
		copied, err := c.clone(string(value))
		return types.Bytes(copied), err
	case *types.Optional:
		if !value.HasValue() {
			return value, nil
		}
		content, err := c.detach(value.GetValue(), depth+1)
		if err != nil {
			return nil, err
		}
		return types.OptionalOf(content), nil
	case traits.Mapper:
		return c.detachMap(value, depth)
	case traits.Lister:
		return c.detachList(value, depth)
	default:
		return value, nil
	}
}

func (c *converter) detachList(list traits.Lister, depth int) (ref.Val, error) {
	var result []ref.Val
	for it := list.Iterator(); it.HasNext() == types.True; {
		item, err := c.detach(it.Next(), depth+1)
		if err != nil {
			return nil, err
		}
		result = append(result, item)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, result), nil
}

func (c *converter) detachMap(values traits.Mapper, depth int) (ref.Val, error) {
	result := map[ref.Val]ref.Val{}
	for it := values.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		copied, err := c.detach(key, depth+1)
		if err != nil {
			return nil, err
		}
		if result[copied], err = c.detach(values.Get(key), depth+1); err != nil {
			return nil, err
		}
	}
	return types.NewRefValMap(types.DefaultTypeAdapter, result), nil
}
