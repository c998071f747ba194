// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

const prometheusPackage = "github.com/prometheus/client_golang/prometheus"

// metric is the definition of a metric.
type metric struct {
	name, kind, help string
	labels           []string
}

// renderMetrics renders the metrics that the packages define.
func renderMetrics(source []*packages.Package) (string, error) {
	var metrics []metric
	for _, one := range source {
		finder := &metricFinder{info: one.TypesInfo, syntax: one.Syntax}
		metrics = append(metrics, finder.find()...)
		if len(finder.errs) > 0 {
			return "", errors.Join(finder.errs...)
		}
	}
	if len(metrics) == 0 {
		return "", errors.New("no metrics found")
	}
	slices.SortFunc(metrics, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	var out strings.Builder
	out.WriteString("# Metrics of the manager\n\n" +
		"The metrics of controller-runtime and of the Go runtime are served as well.\n\n" +
		"| name | type | labels | description |\n| --- | --- | --- | --- |\n")
	for _, one := range metrics {
		labels := make([]string, 0, len(one.labels))
		for _, label := range one.labels {
			labels = append(labels, code(label))
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", code(one.name), one.kind, strings.Join(labels, ", "), cell(one.help))
	}
	return out.String(), nil
}

// metricFinder finds the metrics of a package.
type metricFinder struct {
	info   *types.Info
	syntax []*ast.File
	errs   []error
}

func (f *metricFinder) find() []metric {
	var metrics []metric
	for _, file := range f.syntax {
		for _, declaration := range file.Decls {
			function, _ := declaration.(*ast.FuncDecl)
			ast.Inspect(declaration, func(node ast.Node) bool {
				if call, ok := node.(*ast.CallExpr); ok {
					metrics = append(metrics, f.findInCall(call, function)...)
				}
				return true
			})
		}
	}
	return metrics
}

// findInCall returns the metrics that a call of a constructor of Prometheus defines: one, or one for
// each caller if the name is a parameter of the enclosing function.
func (f *metricFinder) findInCall(call *ast.CallExpr, function *ast.FuncDecl) []metric {
	constructor := f.prometheusFunction(call.Fun)
	if constructor == "NewDesc" {
		return []metric{f.newMetric(f.descKind(), []ast.Expr{call.Args[0]}, call.Args[1], call.Args[2], nil)}
	}
	kind := strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(constructor, "New"), "Vec"), "Func"))
	if !slices.Contains([]string{"counter", "gauge", "histogram", "summary"}, kind) {
		return nil
	}
	options, ok := call.Args[0].(*ast.CompositeLit)
	if !ok {
		f.errs = append(f.errs, fmt.Errorf("the options of %s are not a literal", constructor))
		return nil
	}
	fields := map[string]ast.Expr{}
	for _, element := range options.Elts {
		if field, ok := element.(*ast.KeyValueExpr); ok {
			fields[field.Key.(*ast.Ident).Name] = field.Value
		}
	}
	name := []ast.Expr{fields["Namespace"], fields["Subsystem"], fields["Name"]}
	var labels ast.Expr
	if strings.HasSuffix(constructor, "Vec") {
		labels = call.Args[1]
	}
	if _, isConstant := stringValue(f.info, fields["Name"]); isConstant || function == nil {
		return []metric{f.newMetric(kind, name, fields["Help"], labels, nil)}
	}
	var metrics []metric
	for _, arguments := range f.callsOf(function) {
		metrics = append(metrics, f.newMetric(kind, name, fields["Help"], labels, arguments))
	}
	return metrics
}

// newMetric evaluates the expressions of a metric. The arguments are the values of parameters.
func (f *metricFinder) newMetric(
	kind string, name []ast.Expr, help, labels ast.Expr, arguments map[types.Object]ast.Expr,
) metric {
	result := metric{kind: kind}
	var parts []string
	for _, part := range name {
		if part != nil {
			parts = append(parts, f.evaluate(part, arguments))
		}
	}
	result.name, result.help = strings.Join(parts, "_"), f.evaluate(help, arguments)
	for _, label := range f.elements(labels, arguments) {
		result.labels = append(result.labels, f.evaluate(label, arguments))
	}
	return result
}

func (f *metricFinder) evaluate(expression ast.Expr, arguments map[types.Object]ast.Expr) string {
	value, ok := stringValue(f.info, resolve(f.info, expression, arguments))
	if !ok {
		f.errs = append(f.errs, fmt.Errorf("a name, help text or label of a metric is not constant: %s",
			types.ExprString(expression)))
	}
	return value
}

// elements returns the elements of a list of labels.
func (f *metricFinder) elements(labels ast.Expr, arguments map[types.Object]ast.Expr) []ast.Expr {
	if labels == nil || f.info.Types[labels].IsNil() {
		return nil
	}
	literal, ok := resolve(f.info, labels, arguments).(*ast.CompositeLit)
	if !ok {
		f.errs = append(f.errs, fmt.Errorf("the labels of a metric are not a literal: %s", types.ExprString(labels)))
		return nil
	}
	return literal.Elts
}

// resolve returns the argument for a parameter, and any other expression unchanged.
func resolve(info *types.Info, expression ast.Expr, arguments map[types.Object]ast.Expr) ast.Expr {
	if name, ok := expression.(*ast.Ident); ok && arguments[info.Uses[name]] != nil {
		return arguments[info.Uses[name]]
	}
	return expression
}

// callsOf returns the arguments of each call of a function in the package, by parameter.
func (f *metricFinder) callsOf(function *ast.FuncDecl) []map[types.Object]ast.Expr {
	var parameters []types.Object
	for _, field := range function.Type.Params.List {
		for _, name := range field.Names {
			parameters = append(parameters, f.info.Defs[name])
		}
	}
	var calls []map[types.Object]ast.Expr
	for _, file := range f.syntax {
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			name, ok := call.Fun.(*ast.Ident)
			if !ok || f.info.Uses[name] != f.info.Defs[function.Name] {
				return true
			}
			arguments := map[types.Object]ast.Expr{}
			for i, parameter := range parameters {
				arguments[parameter] = call.Args[i]
			}
			calls = append(calls, arguments)
			return true
		})
	}
	return calls
}

// descKind returns the type of the metrics that the package creates from a Desc. They must all have
// the same type.
func (f *metricFinder) descKind() string {
	kinds := map[string]bool{}
	for _, file := range f.syntax {
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f.prometheusFunction(call.Fun) == "MustNewConstMetric" {
				value := types.ExprString(call.Args[1])
				value = value[strings.LastIndex(value, ".")+1:]
				kinds[strings.ToLower(strings.TrimSuffix(value, "Value"))] = true
			}
			return true
		})
	}
	if len(kinds) != 1 {
		f.errs = append(f.errs, fmt.Errorf("the type of the collected metrics is not unique: %v", kinds))
		return ""
	}
	for kind := range kinds {
		return kind
	}
	return ""
}

// prometheusFunction returns the name of a function of the package prometheus, or "" for any other.
func (f *metricFinder) prometheusFunction(function ast.Expr) string {
	selector, ok := function.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	object, ok := f.info.Uses[selector.Sel].(*types.Func)
	if !ok || object.Pkg() == nil || object.Pkg().Path() != prometheusPackage {
		return ""
	}
	return object.Name()
}
