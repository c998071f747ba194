// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"math"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Parts of the complexity of an expression. A unit takes about 20 microseconds when the expression is
// compiled.
const (
	// literalsPerUnit is the number of list and map literals that double the time for each node: their
	// types nest.
	literalsPerUnit = 8
	// bracketsPerUnit is the number of opening brackets; the parser recurses into each of them.
	bracketsPerUnit = 2
	// instructionsPerUnit is the number of instructions of regular expressions, which are compiled to count them.
	instructionsPerUnit = 100
)

// complexity returns a measure of the time that CEL takes to check the types of an expression. It must be
// limited before the check: the type of a map contains those of its keys and of its values, so each map with
// a computed key can double the size of a type, as in [{1: 1}].map(a, [{a: a}].map(b, {b: b})).
func complexity(source string, parsed *cel.Ast) float64 {
	var nodes, literals, computedKeys float64
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(node ast.Expr) {
		nodes++
		switch node.Kind() {
		case ast.ListKind:
			literals++
		case ast.MapKind:
			literals++
			for _, entry := range node.AsMap().Entries() {
				if entry.AsMapEntry().Key().Kind() != ast.LiteralKind {
					computedKeys++
				}
			}
		}
	}))
	var brackets float64
	for _, bracket := range []string{"(", "[", "{"} {
		brackets += float64(strings.Count(source, bracket))
	}
	return brackets/bracketsPerUnit + nodes*(1+literals/literalsPerUnit)*math.Exp2(computedKeys)
}

// checkTypes refuses maps with keys of other types, and whole objects such as params. CEL panics if a key is bytes.
func checkTypes(checked *ast.AST) error {
	for _, node := range ast.MatchDescendants(ast.NavigateAST(checked), ast.AllMatcher()) {
		switch node.Kind() {
		case ast.IdentKind:
			parent, _ := node.Parent()
			if checked.GetType(node.ID()).Kind() == types.StructKind && !selectsField(parent) {
				return located(checked.SourceInfo(), node.ID(),
					fmt.Errorf("%s can be used only with one of its fields", node.AsIdent()))
			}
		case ast.MapKind:
			for _, entry := range node.AsMap().Entries() {
				key := entry.AsMapEntry().Key()
				switch t := checked.GetType(key.ID()); t.Kind() {
				case types.StringKind, types.IntKind, types.UintKind, types.BoolKind:
				default:
					return located(checked.SourceInfo(), key.ID(),
						fmt.Errorf("the keys of a map must be strings, integers or bools, not %s", t))
				}
			}
		}
	}
	return nil
}

// selectsField reports whether a node is the selection of a field.
func selectsField(node ast.Expr) bool {
	return node != nil && (node.Kind() == ast.SelectKind ||
		node.Kind() == ast.CallKind && node.AsCall().FunctionName() == operators.OptSelect)
}
