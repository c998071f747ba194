// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	celfunctions "github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// varMeter is the variable that contains the meter. Expressions cannot name it.
const varMeter = "@meter"

// The functions that expressions call without naming them.
const (
	// functionKey has a key of a map as its argument.
	functionKey = "@key"
	// functionRange has what a loop iterates over as its argument.
	functionRange = "@range"
)

var (
	errExpensive    = fmt.Errorf("the expression costs more than %d", maxCost)
	errAllExpensive = fmt.Errorf("the expressions of the template cost more than %d together", maxTotalCost)
)

// meter limits the cost of the expressions in one rendering. It stops an expression before a call that costs too
// much, and so limits the memory that one call can allocate. CEL checks its own limit after each call, and does not
// count iterations that a filter drops.
type meter struct {
	// total is what all expressions can still cost, and left what the current one can.
	total, left int
	// limit is the error if the current expression exceeds its limit, and exceededBy the node that does.
	limit      error
	isExceeded bool
	exceededBy int64
}

// start sets what the next expression can cost.
func (m *meter) start() {
	m.left, m.limit, m.isExceeded = maxCost, errExpensive, false
	if m.total < maxCost {
		m.left, m.limit = m.total, errAllExpensive
	}
}

// spend panics if a node costs more than the expression still can, as CEL does when its own limit is exceeded: an
// expression can ignore an error.
func (m *meter) spend(node int64, cost int) {
	m.total -= cost
	m.left -= cost
	if m.left < 0 {
		m.isExceeded, m.exceededBy = true, node
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: m.limit.Error()})
	}
}

// meterOf returns the meter of an evaluation. It panics if there is none, which CEL returns as an error.
func meterOf(frame *interpreter.ExecutionFrame) *meter {
	value, _ := frame.ResolveName(varMeter)
	return value.(*meter)
}

// metered returns a decorator that adds calls and iterations to the meter. All other nodes need constant time, and
// the complexity of a template limits their number.
func metered(checked *ast.AST) interpreter.InterpretableDecoratorV2 {
	steps := map[int64]int{}
	ast.PostOrderVisit(checked.Expr(), ast.NewExprVisitor(func(node ast.Expr) {
		if node.Kind() == ast.ComprehensionKind {
			loop := node.AsComprehension()
			steps[loop.LoopStep().ID()] = costNode * (nodes(loop.LoopStep()) + nodes(loop.LoopCondition()))
		}
	}))
	return func(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		id := node.ID()
		if call, ok := node.(interpreter.InterpretableCall); ok && functions[call.Function()] != nil {
			implementation, err := implementationOf(call)
			if err != nil {
				return nil, err
			}
			node = &meteredCall{id, call.Args(), functions[call.Function()], implementation}
		}
		if cost, ok := steps[id]; ok {
			node = &meteredStep{node, cost}
		}
		return node, nil
	}
}

func nodes(expression ast.Expr) int {
	count := 0
	ast.PostOrderVisit(expression, ast.NewExprVisitor(func(ast.Expr) { count++ }))
	return count
}

// meteredStep is what a loop evaluates in each iteration.
type meteredStep struct {
	interpreter.InterpretableV2
	cost int
}

// Exec implements interpreter.InterpretableV2.
func (s *meteredStep) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	meterOf(frame).spend(s.ID(), s.cost)
	return s.InterpretableV2.Exec(frame)
}

// Eval implements interpreter.Interpretable.
func (s *meteredStep) Eval(vars interpreter.Activation) ref.Val {
	return s.Exec(interpreter.AsFrame(vars))
}

// meteredCall is a call of a function with a cost. It is no InterpretableCall, because CEL replaces some of these, such
// as searches in literal lists, after it has called this decorator.
type meteredCall struct {
	id             int64
	args           []interpreter.InterpretableV2
	cost           cost
	implementation celfunctions.FunctionOp
}

// ID implements interpreter.Interpretable.
func (c *meteredCall) ID() int64 { return c.id }

// Exec implements interpreter.InterpretableV2.
func (c *meteredCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	values := make([]ref.Val, len(c.args))
	for i, arg := range c.args {
		values[i] = arg.Exec(frame)
		if types.IsUnknownOrError(values[i]) {
			return values[i]
		}
	}
	meter := meterOf(frame)
	meter.spend(c.id, c.cost(&operands{values: values, limit: meter.left / costPerSize}))
	return types.LabelErrNode(c.id, c.implementation(values...))
}

// Eval implements interpreter.Interpretable.
func (c *meteredCall) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// implementations are the functions of the environment, by overload and by name.
var implementations = sync.OnceValues(func() (map[string]*celfunctions.Overload, error) {
	env, err := baseEnvironment()
	if err != nil {
		return nil, err
	}
	result := map[string]*celfunctions.Overload{}
	for _, declaration := range env.Functions() {
		overloads, err := declaration.Bindings()
		if err != nil {
			return nil, err
		}
		for _, overload := range overloads {
			result[overload.Operator] = overload
		}
	}
	return result, nil
})

// implementationOf returns what CEL runs for a call, except that sums of lists are copies: those of CEL refer to their
// operands, so an access to an element needs time for each of them.
func implementationOf(call interpreter.InterpretableCall) (celfunctions.FunctionOp, error) {
	all, err := implementations()
	if err != nil {
		return nil, err
	}
	overload := all[call.OverloadID()]
	if overload == nil {
		overload = all[call.Function()]
	}
	function := func(args ...ref.Val) ref.Val { return invoke(overload, args) }
	switch call.Function() {
	case operators.Equals:
		return func(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }, nil
	case operators.NotEquals:
		return func(args ...ref.Val) ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) }, nil
	case operators.Add:
		return func(args ...ref.Val) ref.Val { return flat(function(args...)) }, nil
	default:
		return function, nil
	}
}

func invoke(overload *celfunctions.Overload, args []ref.Val) ref.Val {
	switch {
	case overload == nil || overload.OperandTrait != 0 && !args[0].Type().HasTrait(overload.OperandTrait):
		return types.MaybeNoSuchOverloadErr(args[0])
	case len(args) == 1 && overload.Unary != nil:
		return overload.Unary(args[0])
	case len(args) == 2 && overload.Binary != nil:
		return overload.Binary(args[0], args[1])
	case overload.Function != nil:
		return overload.Function(args...)
	default:
		return types.MaybeNoSuchOverloadErr(args[0])
	}
}

// flat returns a copy of a list that is no accumulator.
func flat(value ref.Val) ref.Val {
	list, ok := value.(traits.Lister)
	if _, isAccumulator := value.(traits.MutableLister); !ok || isAccumulator {
		return value
	}
	var elements []ref.Val
	for it := list.Iterator(); it.HasNext() == types.True; {
		elements = append(elements, it.Next())
	}
	return types.NewRefValList(types.DefaultTypeAdapter, elements)
}

// addCalls makes each computed key of a map, and what each loop iterates over, the argument of a call: an access to a
// map is no call, but CEL needs time for each byte of the key, and a loop iterates over a map in a random order.
func addCalls(parsed *cel.Ast) {
	tree := parsed.NativeRep()
	id := ast.MaxID(tree)
	addCall := func(function string, node ast.Expr) {
		if node.Kind() == ast.LiteralKind {
			return
		}
		position, _ := tree.SourceInfo().GetOffsetRange(node.ID())
		factory := ast.NewExprFactory()
		argument := factory.CopyExpr(node)
		argument.RenumberIDs(func(original int64) int64 {
			if original == node.ID() {
				return id
			}
			return original
		})
		node.SetKindCase(factory.NewCall(node.ID(), function, argument))
		tree.SourceInfo().SetOffsetRange(id, position)
		id++
	}
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(node ast.Expr) {
		switch node.Kind() {
		case ast.CallKind:
			if name := node.AsCall().FunctionName(); name == operators.Index || name == operators.OptIndex {
				addCall(functionKey, node.AsCall().Args()[1])
			}
		case ast.ComprehensionKind:
			addCall(functionRange, node.AsComprehension().IterRange())
		case ast.MapKind:
			for _, entry := range node.AsMap().Entries() {
				addCall(functionKey, entry.AsMapEntry().Key())
			}
		}
	}))
}

// sortedMap is a map whose keys are sorted.
type sortedMap struct{ traits.Mapper }

// Iterator implements traits.Iterable.
func (m sortedMap) Iterator() traits.Iterator {
	var keys []ref.Val
	for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	slices.SortFunc(keys, compareKeys)
	return types.NewRefValList(types.DefaultTypeAdapter, keys).(traits.Iterable).Iterator()
}

// compareKeys orders keys of maps by type and value.
func compareKeys(a, b ref.Val) int {
	if order := strings.Compare(a.Type().TypeName(), b.Type().TypeName()); order != 0 {
		return order
	}
	order, _ := a.(traits.Comparer).Compare(b).(types.Int)
	return int(order)
}

// orderedRange returns what a loop iterates over, in an order that depends only on its content.
func orderedRange(value ref.Val) ref.Val {
	if values, ok := value.(traits.Mapper); ok {
		return sortedMap{values}
	}
	return value
}
