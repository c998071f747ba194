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
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// compiler compiles the expressions of one template.
type compiler struct {
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
	// repetitions is how often the current object can be rendered; 0 if it has no forEach.
	repetitions int

	count      int
	source     int
	failures   int
	complexity float64
	// values is the number of values in objects.
	values int
}

func newCompiler(spec *v1alpha1.NamespaceTemplateSpec) (*compiler, error) {
	env, variables, err := newEnvironment(spec.Parameters)
	if err != nil {
		return nil, fmt.Errorf("failed to create the CEL environment: %w", err)
	}
	lists := map[string]int{}
	parameters, sources := map[string]any{}, map[string]string{}
	for i := range spec.Parameters {
		parameter := &spec.Parameters[i]
		parameters[parameter.Name], sources[parameter.Name] = "", sourceOf(parameter)
		if templateset.IsList(parameter) {
			lists[parameter.Name] = templateset.MaxItems(parameter)
			parameters[parameter.Name] = []string{}
		}
	}
	itemEnv, err := env.Extend(cel.Variable(varItem, cel.StringType))
	if err != nil {
		return nil, fmt.Errorf("failed to create the CEL environment: %w", err)
	}
	return &compiler{
		env: env, itemEnv: itemEnv, variables: variables, used: map[string]bool{}, lists: lists,
		sources: sources,
		trial: newEvaluation(map[string]any{
			fieldName: "", fieldLabels: map[string]string{}, fieldAnnotations: map[string]string{},
		}, parameters, map[string]any{}, ""),
	}, nil
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

// errSkipped means that earlier errors suffice.
var errSkipped = errors.New("the expression was not compiled")

// compile compiles an expression. After some errors, it returns errSkipped.
func (c *compiler) compile(source string) (*expression, error) {
	if c.failures >= maxFailures {
		return nil, errSkipped
	}
	compiled, err := c.compileSource(source)
	if err != nil {
		c.failures++
	}
	return compiled, err
}

// invalid adds the error of an expression.
func invalid(errs field.ErrorList, path *field.Path, source string, err error) field.ErrorList {
	if errors.Is(err, errSkipped) {
		return errs
	}
	return append(errs, field.Invalid(path, abbreviate(source), err.Error()))
}

func (c *compiler) compileSource(source string) (*expression, error) {
	if err := c.admit(source); err != nil {
		return nil, err
	}
	parsed, issues := c.env.Parse(source)
	if issues.Err() != nil {
		return nil, issuesError(issues)
	}
	if err := c.checkParsed(parsed); err != nil {
		return nil, err
	}
	if c.complexity += complexity(source, parsed); c.complexity > maxComplexity {
		return nil, errors.New(msgTooComplex)
	}
	meterKeys(parsed)
	env, usesItem := c.env, false
	compiled, issues := env.Check(parsed)
	if issues.Err() != nil && c.repetitions > 0 {
		env, usesItem = c.itemEnv, true
		compiled, issues = env.Check(parsed)
	}
	if issues.Err() != nil {
		return nil, issuesError(issues)
	}
	checked := compiled.NativeRep()
	if err := checkTypes(checked); err != nil {
		return nil, located(checked.SourceInfo(), err)
	}
	program, err := env.Program(compiled,
		cel.CustomDecoratorV2(metered(checked)), cel.InterruptCheckFrequency(interruptFrequency))
	if err != nil {
		return nil, fmt.Errorf("failed to plan the expression: %w", err)
	}
	result := &expression{
		program: program, output: compiled.OutputType(), positions: checked.SourceInfo(), usesItem: usesItem,
		source: abbreviate(source), parameters: c.parametersIn(parsed),
	}
	// Other errors can depend on the values, which are missing.
	if _, err := result.evaluate(context.Background(), c.trial); isTooExpensive(err) {
		return nil, err
	}
	return result, nil
}

// parametersIn describes the parameters that an expression contains, by name.
func (c *compiler) parametersIn(parsed *cel.Ast) map[string]string {
	found := map[string]string{}
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(node ast.Expr) {
		if node.Kind() != ast.SelectKind {
			return
		}
		operand, name := node.AsSelect().Operand(), node.AsSelect().FieldName()
		if operand.Kind() == ast.IdentKind && operand.AsIdent() == varParameters {
			found[name] = c.sources[name]
		}
	}))
	return found
}

// admit counts an expression.
func (c *compiler) admit(source string) error {
	c.count++
	c.source += len(source)
	switch {
	case len(source) > maxExpression:
		return fmt.Errorf(msgExpressionTooLong, len(source), maxExpression)
	case c.count > maxExpressions:
		return fmt.Errorf(msgTooManyExpressions, maxExpressions)
	case c.source > maxSource:
		return fmt.Errorf(msgSourceTooLong, maxSource)
	case !utf8.ValidString(source):
		return errors.New(msgNotUTF8)
	}
	return nil
}

// checkParsed refuses expressions that could be expensive to check, and records which fields of the
// Namespace the expression can read.
func (c *compiler) checkParsed(parsed *cel.Ast) error {
	var err error
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(node ast.Expr) {
		if err != nil {
			return
		}
		switch node.Kind() {
		case ast.SelectKind:
			c.used[node.AsSelect().FieldName()] = true
		case ast.StructKind:
			err = refuse(node, msgNoMessages)
		case ast.CallKind:
			err = c.checkCall(node)
			for _, argument := range node.AsCall().Args() {
				if field, ok := literalString(argument); ok {
					c.used[field] = true
				}
			}
		}
	}))
	if err == nil {
		err = checkLoops(parsed.NativeRep())
	}
	return located(parsed.NativeRep().SourceInfo(), err)
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
			return refuse(loop, msgTooManyLoops, maxLoops)
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

// nodeError is an error with the node that causes it.
type nodeError struct {
	node int64
	err  error
}

func (e *nodeError) Error() string { return e.err.Error() }
func (e *nodeError) Unwrap() error { return e.err }

func refuse(node ast.Expr, format string, args ...any) error {
	return &nodeError{node: node.ID(), err: fmt.Errorf(format, args...)}
}

// located adds the line and column to a nodeError.
func located(source *ast.SourceInfo, err error) error {
	refused := (*nodeError)(nil)
	if !errors.As(err, &refused) {
		return err
	}
	location := source.GetStartLocation(refused.node)
	if location == common.NoLocation {
		return err
	}
	return fmt.Errorf(msgAtPosition, location.Line(), location.Column()+1, err)
}

// issuesError returns the first error of CEL with its line and column.
func issuesError(issues *cel.Issues) error {
	first := issues.Errors()[0]
	return fmt.Errorf(msgAtPositionText, first.Location.Line(), first.Location.Column()+1, first.Message)
}

// evaluate returns the value of the expression.
func (e *expression) evaluate(ctx context.Context, in *evaluation) (ref.Val, error) {
	in.meter.start()
	value, _, err := e.program.ContextEval(ctx, in.variables)
	switch {
	case in.meter.exceeded != nil:
		return nil, located(e.positions, in.meter.exceeded)
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
	text := fmt.Sprintf(msgNoSuchKey, key, e.source)
	values, _ := variables[varParameters].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(e.parameters)) {
		text += fmt.Sprintf(msgValueOfParameter, name, values[name], e.parameters[name])
	}
	return errors.New(text)
}

// isValueType reports whether objects can contain values of the type. Values of dyn are checked when they
// are computed.
func isValueType(t *types.Type) bool {
	switch t.Kind() {
	case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.StringKind,
		types.NullTypeKind, types.DynKind, types.AnyKind, types.TypeParamKind:
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
		return t.IsExactType(apiservercel.QuantityType)
	}
}

// isVariableType reports whether values of the type can be variables.
func isVariableType(t *types.Type) bool {
	return t.Kind() == types.BytesKind || isValueType(t)
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
