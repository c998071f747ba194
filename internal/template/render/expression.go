// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// compiler compiles the expressions of one template. It collects the errors.
type compiler struct {
	manifestCheck
	// env is the environment, and itemEnv that of objects with forEach.
	env, itemEnv *cel.Env
	// variables are the types of the variables that are compiled already.
	variables map[string]*types.Type
	// used are the fields of ns that an expression uses.
	used map[string]bool
	// lists are the maximum numbers of elements of the parameters that are lists.
	lists map[string]int
	// sources describe the label or annotation of each parameter.
	sources map[string]string
	// trial is an evaluation for an empty Namespace.
	trial *evaluation
	// hasItem is true if the current object has forEach.
	hasItem bool

	count      int
	source     int
	failures   int
	complexity float64
	// values is the number of values in objects.
	values int
}

func newCompiler(spec *v1alpha1.NamespaceTemplateSpec) (*compiler, error) {
	c := &compiler{
		manifestCheck: manifestCheck{template: true}, variables: map[string]*types.Type{}, used: map[string]bool{},
		lists: map[string]int{}, sources: map[string]string{},
	}
	parameters, parameterTypes := map[string]any{}, map[string]*types.Type{}
	for i := range spec.Parameters {
		parameter := &spec.Parameters[i]
		name := parameter.Name
		parameters[name], parameterTypes[name], c.sources[name] = "", cel.StringType, sourceOf(parameter)
		if templateset.IsList(parameter) {
			parameters[name], parameterTypes[name] = []string{}, cel.ListType(cel.StringType)
			c.lists[name] = templateset.MaxItems(parameter)
		}
	}
	c.trial = newEvaluation(map[string]any{
		fieldName: "", fieldLabels: map[string]string{}, fieldAnnotations: map[string]string{},
	}, parameters, map[string]any{}, "")
	var err error
	if c.env, err = newEnvironment(parameterTypes, c.variables); err == nil {
		c.itemEnv, err = c.env.Extend(cel.Variable(varItem, cel.StringType))
	}
	if err != nil {
		return nil, fmt.Errorf("failed to create the CEL environment: %w", err)
	}
	return c, nil
}

// expression is a compiled expression.
type expression struct {
	program cel.Program
	output  *types.Type
	// positions are those of its nodes.
	positions *ast.SourceInfo
	// usesItem is true if it uses the element of forEach.
	usesItem bool
	// source is the beginning of the text, and parameters describes each parameter in it.
	source     string
	parameters map[string]string
}

var errTooComplex = errors.New(
	"the expressions of the template are too complex together: use fewer or simpler expressions")

// compile compiles an expression.
func (c *compiler) compile(source string) (*expression, error) {
	if err := c.admit(source); err != nil {
		return nil, err
	}
	parsed, issues := c.env.Parse(source)
	if issues.Err() != nil {
		return nil, issuesError(issues)
	}
	parameters, err := c.checkParsed(parsed.NativeRep())
	if err != nil {
		return nil, err
	}
	if c.complexity += complexity(source, parsed); c.complexity > maxComplexity {
		return nil, errTooComplex
	}
	addCalls(parsed)
	env, usesItem := c.env, false
	compiled, issues := env.Check(parsed)
	if issues.Err() != nil && c.hasItem {
		env, usesItem = c.itemEnv, true
		compiled, issues = env.Check(parsed)
	}
	if issues.Err() != nil {
		return nil, issuesError(issues)
	}
	checked := compiled.NativeRep()
	if err := checkTypes(checked); err != nil {
		return nil, err
	}
	program, err := env.Program(compiled,
		cel.CustomDecoratorV2(metered(checked)), cel.InterruptCheckFrequency(interruptFrequency))
	if err != nil {
		return nil, fmt.Errorf("failed to plan the expression: %w", err)
	}
	result := &expression{
		program: program, output: compiled.OutputType(), positions: checked.SourceInfo(), usesItem: usesItem,
		source: abbreviate(source), parameters: parameters,
	}
	// Other errors can depend on the values, which are missing.
	if _, err := result.evaluate(context.Background(), c.trial); isTooExpensive(err) {
		return nil, err
	}
	return result, nil
}

// admit counts an expression.
func (c *compiler) admit(source string) error {
	c.count++
	c.source += len(source)
	switch {
	case len(source) > maxExpression:
		return fmt.Errorf("the expression has %d bytes; at most %d are permitted", len(source), maxExpression)
	case c.count > maxExpressions:
		return fmt.Errorf("the template has too many expressions; at most %d are permitted", maxExpressions)
	case c.source > maxSource:
		return fmt.Errorf("the expressions of the template are too long together; at most %d bytes are permitted",
			maxSource)
	case !utf8.ValidString(source):
		return errors.New("the expression is not valid UTF-8")
	}
	return nil
}

// checkParsed refuses expressions that could be expensive to check, and records which fields of the Namespace the
// expression can read. It returns the descriptions of the parameters in the expression, by name.
func (c *compiler) checkParsed(parsed *ast.AST) (map[string]string, error) {
	var err error
	parameters := map[string]string{}
	ast.PostOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(node ast.Expr) {
		if err != nil {
			return
		}
		switch node.Kind() {
		case ast.SelectKind:
			operand, name := node.AsSelect().Operand(), node.AsSelect().FieldName()
			c.used[name] = true
			if operand.Kind() == ast.IdentKind && operand.AsIdent() == varParameters {
				parameters[name] = c.sources[name]
			}
		case ast.StructKind:
			err = errors.New("message literals are not available")
		case ast.CallKind:
			err = c.checkCall(node.AsCall())
			for _, argument := range node.AsCall().Args() {
				if field, ok := literalString(argument); ok {
					c.used[field] = true
				}
			}
		}
		if err != nil {
			err = located(parsed.SourceInfo(), node.ID(), err)
		}
	}))
	if err == nil {
		err = checkLoops(parsed)
	}
	return parameters, err
}

// checkLoops limits nested loops: the type checker needs time for each type that they compute.
func checkLoops(parsed *ast.AST) error {
	isLoop := ast.KindMatcher(ast.ComprehensionKind)
	for _, loop := range ast.MatchDescendants(ast.NavigateAST(parsed), isLoop) {
		depth := 1
		for parent, ok := loop.Parent(); ok; parent, ok = parent.Parent() {
			if isLoop(parent) {
				depth++
			}
		}
		if depth > maxLoops {
			return located(parsed.SourceInfo(), loop.ID(), fmt.Errorf("loops can be nested at most %d times", maxLoops))
		}
	}
	return nil
}

// qualifiedName returns the name of a function, with its qualifier if it has one such as sets.contains. A
// method of an operand whose name is a variable is not qualified.
func qualifiedName(call ast.CallExpr) string {
	if call.IsMemberFunction() && call.Target().Kind() == ast.IdentKind {
		qualified := call.Target().AsIdent() + "." + call.FunctionName()
		if _, ok := functions[qualified]; ok {
			return qualified
		}
	}
	return call.FunctionName()
}

// located adds the line and column of a node to an error.
func located(source *ast.SourceInfo, node int64, err error) error {
	location := source.GetStartLocation(node)
	if location == common.NoLocation {
		return err
	}
	return fmt.Errorf("line %d, column %d: %w", location.Line(), location.Column()+1, err)
}

// issuesError returns the first error of CEL with its line and column.
func issuesError(issues *cel.Issues) error {
	first := issues.Errors()[0]
	return fmt.Errorf("line %d, column %d: %s", first.Location.Line(), first.Location.Column()+1, first.Message)
}

// evaluate returns the value of the expression.
func (e *expression) evaluate(ctx context.Context, in *evaluation) (ref.Val, error) {
	in.meter.start()
	value, _, err := e.program.ContextEval(ctx, in.variables)
	switch {
	case in.meter.isExceeded:
		return nil, located(e.positions, in.meter.exceededBy, in.meter.limit)
	case err != nil:
		return value, e.describe(err, in.variables)
	}
	return value, nil
}

// describe replaces the error of CEL for a missing key. The error does not show an empty key, where the key comes from,
// or in which map it is missing.
func (e *expression) describe(err error, variables map[string]any) error {
	key, isKey := strings.CutPrefix(err.Error(), "no such key: ")
	if !isKey {
		return err
	}
	text := fmt.Sprintf("no such key %q in %s", key, e.source)
	values, _ := variables[varParameters].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(e.parameters)) {
		text += fmt.Sprintf("; parameter %s is %q: see the %s", name, values[name], e.parameters[name])
	}
	return errors.New(text)
}

// isValueType reports whether objects can contain values of the type. Values of dyn are checked when they
// are computed.
func isValueType(t *types.Type) bool {
	switch t.Kind() {
	case types.NullTypeKind, types.AnyKind, types.TypeParamKind:
		return true
	case types.ListKind:
		return isValueType(t.Parameters()[0])
	case types.MapKind:
		key := t.Parameters()[0].Kind()
		return (key == types.StringKind || key == types.DynKind || key == types.TypeParamKind) &&
			isValueType(t.Parameters()[1])
	case types.OpaqueKind:
		return types.NewOptionalType(types.DynType).IsAssignableType(t) && isValueType(t.Parameters()[0])
	default:
		return isTextType(t)
	}
}

// isTextType reports whether values of the type can be part of a text.
func isTextType(t *types.Type) bool {
	switch t.Kind() {
	case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.StringKind, types.DynKind:
		return true
	default:
		return t.IsExactType(apiservercel.QuantityType)
	}
}
