// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"math"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// costNode is the cost of evaluating a node of an expression, apart from the sizes of its operands.
const costNode = 200

// maxRefined is the number of nested loops that are estimated twice. It limits the time of an estimate.
const maxRefined = 3

// estimator computes upper bounds of the cost of an expression and of the values in it. CEL limits the
// actual cost too, but only after each step, and one step can allocate any amount of memory. So an
// expression is refused if its bounds are too large or not known.
type estimator struct {
	expression *ast.AST
	// objects are the fields of the variables that are not values: ns, params and variables.
	objects map[string]map[string]*size
	// scope contains the other variables.
	scope map[string]*size
	cost  float64
	// loops is the number of loops around the current node.
	loops int
}

// estimateError is a reason why an expression is refused, with the node that causes it.
type estimateError struct {
	node    int64
	message string
}

func (e *estimateError) Error() string { return e.message }

func refuse(node ast.Expr, format string, args ...any) error {
	return &estimateError{node: node.ID(), message: fmt.Sprintf(format, args...)}
}

// estimate returns the bound of the value of an expression, and its cost.
func estimate(compiled *cel.Ast, objects map[string]map[string]*size) (*size, float64, error) {
	e := &estimator{
		expression: compiled.NativeRep(),
		objects:    objects,
		scope:      map[string]*size{varRequestedBy: stringSize(maxUser), varItem: stringSize(templateset.MaxLength)},
	}
	result, err := e.visit(e.expression.Expr())
	return result, e.cost, err
}

// visit returns the bound of the value of a node and adds its cost.
func (e *estimator) visit(node ast.Expr) (*size, error) {
	result, err := e.visitKind(node)
	if err != nil {
		return nil, err
	}
	e.cost += costNode
	if result.total > maxValue {
		return nil, refuse(node, msgValueTooLarge, result.total, maxValue)
	}
	if e.cost > maxCost {
		return nil, refuse(node, msgTooExpensive, e.cost, maxCost)
	}
	return result, nil
}

func (e *estimator) visitKind(node ast.Expr) (*size, error) {
	switch node.Kind() {
	case ast.LiteralKind:
		return literalSize(node.AsLiteral()), nil
	case ast.IdentKind:
		return e.visitIdent(node)
	case ast.SelectKind:
		return e.visitSelect(node)
	case ast.CallKind:
		return e.visitCall(node)
	case ast.ListKind:
		return e.visitList(node)
	case ast.MapKind:
		return e.visitMap(node)
	case ast.ComprehensionKind:
		return e.visitComprehension(node)
	default:
		return nil, refuse(node, msgNoMessages)
	}
}

func literalSize(value ref.Val) *size {
	switch value := value.(type) {
	case types.String:
		return stringSize(float64(len(value)))
	case types.Bytes:
		return stringSize(float64(len(value)))
	default:
		return scalar
	}
}

func (e *estimator) visitIdent(node ast.Expr) (*size, error) {
	name := node.AsIdent()
	if bound, ok := e.scope[name]; ok {
		return bound, nil
	}
	if _, ok := e.objects[name]; ok {
		return nil, refuse(node, msgSelectField, name)
	}
	// The name of a type.
	return scalar, nil
}

// field returns the bound of a field of ns, params or variables.
func (e *estimator) field(operand ast.Expr, field string) (*size, bool) {
	if operand.Kind() != ast.IdentKind {
		return nil, false
	}
	name := operand.AsIdent()
	if _, ok := e.scope[name]; ok {
		return nil, false
	}
	bound, ok := e.objects[name][field]
	return bound, ok
}

func (e *estimator) visitSelect(node ast.Expr) (*size, error) {
	selection := node.AsSelect()
	bound, ok := e.field(selection.Operand(), selection.FieldName())
	if !ok {
		operand, err := e.visit(selection.Operand())
		if err != nil {
			return nil, err
		}
		bound = operand.item()
	}
	if selection.IsTestOnly() {
		return scalar, nil
	}
	return bound, nil
}

func (e *estimator) visitList(node ast.Expr) (*size, error) {
	result := &size{total: sizeScalar}
	for _, element := range node.AsList().Elements() {
		bound, err := e.visit(element)
		if err != nil {
			return nil, err
		}
		result = concatenation(result, listSize(1, bound))
	}
	return result, nil
}

func (e *estimator) visitMap(node ast.Expr) (*size, error) {
	result := &size{total: sizeScalar}
	for _, entry := range node.AsMap().Entries() {
		key, err := e.visit(entry.AsMapEntry().Key())
		if err != nil {
			return nil, err
		}
		value, err := e.visit(entry.AsMapEntry().Value())
		if err != nil {
			return nil, err
		}
		result = concatenation(result, mapSize(1, key, value))
	}
	return result, nil
}

// visitComprehension estimates the loop of a macro. All macros either compute a bool or a number, or add
// the same to their accumulator in each iteration. Expressions cannot refer to the accumulator. So the
// result of the first step, from an empty accumulator, is what each iteration adds.
func (e *estimator) visitComprehension(node ast.Expr) (*size, error) {
	loop := node.AsComprehension()
	items, err := e.visit(loop.IterRange())
	if err != nil {
		return nil, err
	}
	initial, err := e.visit(loop.AccuInit())
	if err != nil {
		return nil, err
	}
	added, cost, err := e.visitSteps(loop, items)
	if err != nil {
		return nil, err
	}
	e.cost += cost
	defer e.bind(loop.AccuVar(), concatenation(initial, added))()
	return e.visit(loop.Result())
}

// visitSteps returns what all iterations add to the accumulator, and their cost. A list of strings can have
// either many or long elements, as a result of split does, but not both. The bounds of a step are convex
// functions of the length of an element: they are sums, products and maxima of such functions. So the
// bounds of all steps are between those for empty elements and for elements of the maximum length.
func (e *estimator) visitSteps(loop ast.ComprehensionExpr, items *size) (*size, float64, error) {
	e.loops++
	defer func() { e.loops-- }()
	longest, cost, err := e.visitStep(loop, items)
	if err != nil {
		return nil, 0, err
	}
	added := longest.repeated(items.length)
	cost = product(cost, items.length)
	element := items.item()
	if !element.isString() || items.key != nil || e.loops > maxRefined {
		return added, cost, nil
	}
	shortened := *items
	shortened.element = stringSize(0)
	shortest, least, err := e.visitStep(loop, &shortened)
	if err != nil {
		return nil, 0, err
	}
	long := math.Min(items.text/element.length, items.length)
	added.total = sizeScalar + product(shortest.total, items.length) + product(longest.total-shortest.total, long)
	added.text = product(shortest.text, items.length) + product(longest.text-shortest.text, long)
	return added, product(least, items.length) + product(cost/items.length-least, long), nil
}

// visitStep returns what one iteration adds to the accumulator, and its cost.
func (e *estimator) visitStep(loop ast.ComprehensionExpr, items *size) (*size, float64, error) {
	first, second := e.iteration(loop, items)
	defer e.bind(loop.IterVar(), first)()
	if loop.HasIterVar2() {
		defer e.bind(loop.IterVar2(), second)()
	}
	defer e.bind(loop.AccuVar(), empty)()
	before := e.cost
	defer func() { e.cost = before }()
	added, err := e.visit(loop.LoopStep())
	if err == nil {
		_, err = e.visit(loop.LoopCondition())
	}
	return added, e.cost - before, err
}

// iteration returns the bounds of the variables of an iteration. The first is the index of a list or the
// key of a map; if it is the only one, it is the element of a list or the key of a map.
func (e *estimator) iteration(loop ast.ComprehensionExpr, items *size) (first, second *size) {
	switch kind := e.expression.GetType(loop.IterRange().ID()).Kind(); {
	case kind == types.ListKind && loop.HasIterVar2():
		return scalar, items.item()
	case kind == types.ListKind:
		return items.item(), nil
	case kind == types.MapKind && items.key == nil:
		return empty, items.item()
	case kind == types.MapKind:
		return items.key, items.item()
	default:
		return either(items.content(), scalar), items.item()
	}
}

// bind adds a variable to the scope, and returns a function that removes it.
func (e *estimator) bind(name string, bound *size) func() {
	previous, shadowed := e.scope[name]
	e.scope[name] = bound
	return func() {
		if shadowed {
			e.scope[name] = previous
		} else {
			delete(e.scope, name)
		}
	}
}

func (e *estimator) visitCall(node ast.Expr) (*size, error) {
	call := node.AsCall()
	name := call.FunctionName()
	function, ok := functions[name]
	if !ok {
		return nil, refuse(node, msgNoFunction, name)
	}
	in := &operands{node: node, result: e.expression.GetType(node.ID())}
	nodes := call.Args()
	if call.IsMemberFunction() {
		nodes = append([]ast.Expr{call.Target()}, nodes...)
	}
	for i, argument := range nodes {
		bound, err := e.visitArgument(name, nodes, i)
		if err != nil {
			return nil, err
		}
		in.nodes = append(in.nodes, argument)
		in.sizes = append(in.sizes, bound)
	}
	result, cost, err := function(in)
	if err != nil {
		return nil, err
	}
	e.cost += math.Max(cost, 0)
	return result, nil
}

// visitArgument estimates an argument. The first argument of an optional selection can be ns, params or
// variables; its bound is then that of the field.
func (e *estimator) visitArgument(function string, nodes []ast.Expr, i int) (*size, error) {
	if function == optionalSelect && i == 0 {
		if field, ok := literalString(nodes[1]); ok {
			if bound, ok := e.field(nodes[0], field); ok {
				return &size{element: bound, total: bound.total}, nil
			}
		}
	}
	return e.visit(nodes[i])
}

func literalString(node ast.Expr) (string, bool) {
	if node.Kind() != ast.LiteralKind {
		return "", false
	}
	value, ok := node.AsLiteral().(types.String)
	return string(value), ok
}
