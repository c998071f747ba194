// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// boundedQuantity matches quantities with at most 32 digits on each side and an exponent of at most two.
// Larger exponents are valid, but then operations compute numbers with up to 10⁹ digits.
var boundedQuantity = regexp.MustCompile(`^[+-]?[0-9]{0,32}(\.[0-9]{0,32})?([a-zA-Z]{0,2}|[eE][+-]?[0-9]{1,2})$`)

// quantities replaces the functions of the Kubernetes library that parse quantities.
func quantities() []cel.EnvOption {
	arguments := []*cel.Type{cel.StringType}
	return []cel.EnvOption{
		cel.Function("quantity", cel.Overload("string_to_quantity", arguments, apiservercel.QuantityType,
			cel.UnaryBinding(func(value ref.Val) ref.Val {
				quantity, err := parseQuantity(value)
				if err != nil {
					return types.WrapErr(err)
				}
				return apiservercel.Quantity{Quantity: quantity}
			}))),
		cel.Function("isQuantity", cel.Overload("is_quantity_string", arguments, cel.BoolType,
			cel.UnaryBinding(func(value ref.Val) ref.Val {
				_, err := parseQuantity(value)
				return types.Bool(err == nil)
			}))),
	}
}

func parseQuantity(value ref.Val) (*resource.Quantity, error) {
	text, _ := value.(types.String)
	if !boundedQuantity.MatchString(string(text)) {
		return nil, fmt.Errorf("%q is not a quantity with at most 32 digits and an exponent of at most 99",
			abbreviate(string(text)))
	}
	quantity, err := resource.ParseQuantity(string(text))
	return &quantity, err
}
