// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"

	"golang.org/x/tools/go/packages"
)

// loadSource loads the packages that define conditions, causes and metric label values.
func loadSource(root string) ([]*packages.Package, error) {
	source, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo,
		Dir: root,
	}, "./api/v1alpha1", "./internal/diagnosis", "./internal/finalization", "./internal/metrics", "./internal/template")
	if err != nil {
		return nil, err
	}
	for _, one := range source {
		if len(one.Errors) > 0 {
			return nil, fmt.Errorf("failed to load %s: %w", one.PkgPath, one.Errors[0])
		}
	}
	return source, nil
}

// stringValue returns the value of a constant string expression.
func stringValue(info *types.Info, expression ast.Expr) (string, bool) {
	value := info.Types[expression].Value
	if value == nil || value.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(value), true
}
