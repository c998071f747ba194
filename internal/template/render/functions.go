// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"math"
	"regexp/syntax"
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

const optionalSelect = operators.OptSelect

// Lengths of the string forms of values.
const (
	// lengthNumber is the length of a number without, and lengthFixed with all its digits.
	lengthNumber = 32
	lengthFixed  = 400
	// The escaped form of a character has at most 8 characters, its UTF-8 form at most 4 bytes.
	escapedCharacter  = 8
	bytesPerCharacter = 4
)

// Costs of functions.
const (
	costPerSize        = 8
	costPerComparison  = 16
	costPerInstruction = 10
	costSubject        = 1000
	costInsert         = 1000
	// costFormat is the cost of an argument of format.
	costFormat = 50000
	// costCompilation is the cost of compiling an instruction of a regular expression, in matches.
	costCompilation = 200
)

// operands are the operands of a call, the target first.
type operands struct {
	node   ast.Expr
	nodes  []ast.Expr
	sizes  []*size
	result *types.Type
}

func (o *operands) total() float64 {
	total := 0.0
	for _, bound := range o.sizes {
		total += bound.total
	}
	return total
}

// function returns a bound of the result of a function, and its cost.
type function func(o *operands) (*size, float64, error)

// functions are the functions and operators that expressions can use.
var functions = map[string]function{
	operators.Conditional:      conditional,
	operators.LogicalAnd:       linear,
	operators.LogicalOr:        linear,
	operators.LogicalNot:       linear,
	operators.NotStrictlyFalse: linear,
	operators.Equals:           linear,
	operators.NotEquals:        linear,
	operators.Less:             linear,
	operators.LessEquals:       linear,
	operators.Greater:          linear,
	operators.GreaterEquals:    linear,
	operators.Add:              add,
	operators.Subtract:         linear,
	operators.Multiply:         linear,
	operators.Divide:           linear,
	operators.Modulo:           linear,
	operators.Negate:           linear,
	operators.In:               linear,
	operators.Index:            item,
	operators.OptIndex:         item,
	operators.OptSelect:        item,
	"cel.@mapInsert":           mapInsert,
	"size":                     linear,
	"dyn":                      same,
	"bool":                     linear,
	"bytes":                    toBytes,
	"double":                   linear,
	"int":                      linear,
	"string":                   toString,
	"uint":                     linear,

	"optional.of":             same,
	"optional.ofNonZeroValue": same,
	"optional.none":           linear,
	"hasValue":                linear,
	"value":                   same,
	"or":                      alternative,
	"orValue":                 alternative,

	"charAt":        same,
	"contains":      linear,
	"endsWith":      linear,
	"format":        format,
	"indexOf":       search,
	"join":          join,
	"lastIndexOf":   search,
	"lowerAscii":    same,
	"replace":       replace,
	"split":         splitString,
	"startsWith":    linear,
	"strings.quote": quote,
	"substring":     same,
	"trim":          same,
	"upperAscii":    same,
	"matches":       matches,
	"find":          matches,
	"base64.decode": same,
	"base64.encode": quote,

	"distinct":        distinct,
	"first":           item,
	"flatten":         flatten,
	"includes":        linear,
	"isSorted":        linear,
	"last":            item,
	"lists.range":     listRange,
	"max":             extreme,
	"min":             extreme,
	"reverse":         same,
	"slice":           same,
	"sort":            sorted,
	"sum":             linear,
	"sets.contains":   pairs,
	"sets.equivalent": pairs,
	"sets.intersects": pairs,

	"quantity":           linear,
	"isQuantity":         linear,
	"sign":               linear,
	"isGreaterThan":      linear,
	"isLessThan":         linear,
	"compareTo":          linear,
	"asApproximateFloat": linear,
	"asInteger":          linear,
	"isInteger":          linear,
	"add":                linear,
	"sub":                linear,

	"subject": toSubject,
}

// linear is the rule for functions that read their operands and return a value without a length.
func linear(o *operands) (*size, float64, error) {
	return scalar, costPerSize * o.total(), nil
}

// same is the rule for functions whose result is not larger than their first operand.
func same(o *operands) (*size, float64, error) {
	return o.sizes[0], costPerSize * o.total(), nil
}

func item(o *operands) (*size, float64, error) {
	return o.sizes[0].item(), costNode, nil
}

func extreme(o *operands) (*size, float64, error) {
	return o.sizes[0].item(), costPerSize * o.total(), nil
}

func conditional(o *operands) (*size, float64, error) {
	return either(o.sizes[1], o.sizes[2]), 0, nil
}

func alternative(o *operands) (*size, float64, error) {
	return either(o.sizes[0], o.sizes[1]), 0, nil
}

func add(o *operands) (*size, float64, error) {
	switch o.result.Kind() {
	case types.IntKind, types.UintKind, types.DoubleKind:
		return scalar, costNode, nil
	default:
		// The step of a loop adds to its accumulator without a copy.
		result := concatenation(o.sizes[0], o.sizes[1])
		return result, costPerSize * result.total, nil
	}
}

func mapInsert(o *operands) (*size, float64, error) {
	added := o.sizes[1]
	if len(o.sizes) > 2 {
		added = mapSize(1, o.sizes[1], o.sizes[2])
	}
	return concatenation(o.sizes[0], added), costInsert + costPerSize*added.total, nil
}

func toBytes(o *operands) (*size, float64, error) {
	length := bytesPerCharacter * o.sizes[0].length
	return stringSize(length), length, nil
}

func toString(o *operands) (*size, float64, error) {
	return stringSize(math.Max(o.sizes[0].length, lengthNumber)), costPerSize * o.total(), nil
}

// quote is the rule for functions that return at most two characters for each.
func quote(o *operands) (*size, float64, error) {
	length := 2*o.sizes[0].length + 4
	return stringSize(length), costPerSize * length, nil
}

// search is the rule for the search in a string, which compares at each position, and in a list.
func search(o *operands) (*size, float64, error) {
	comparisons := product(o.sizes[0].length, math.Max(o.sizes[1].length, 1))
	return scalar, costPerSize * (o.total() + comparisons), nil
}

func replace(o *operands) (*size, float64, error) {
	text, replacement := o.sizes[0].length, o.sizes[2].length
	count := text + 1
	if old, ok := literalString(o.nodes[1]); ok && old != "" {
		count = text / float64(utf8.RuneCountInString(old))
		replacement = math.Max(replacement-float64(utf8.RuneCountInString(old)), 0)
	}
	result := stringSize(text + product(count, replacement))
	return result, costPerSize * (o.total() + result.total), nil
}

func splitString(o *operands) (*size, float64, error) {
	length := o.sizes[0].length
	result := partsSize(length, length+1)
	return result, costPerSize * result.total, nil
}

func join(o *operands) (*size, float64, error) {
	list := o.sizes[0]
	length := list.text
	if len(o.sizes) > 1 {
		length += product(list.length, o.sizes[1].length)
	}
	return stringSize(length), costPerSize * (list.total + length), nil
}

func format(o *operands) (*size, float64, error) {
	list := o.sizes[1]
	length := o.sizes[0].length + escapedCharacter*list.total + product(list.length, lengthFixed)
	return stringSize(length), costPerSize*length + costFormat*list.length, nil
}

// matches requires a literal, since the time that a regular expression takes depends on the number of its
// instructions.
func matches(o *operands) (*size, float64, error) {
	pattern, ok := literalString(o.nodes[1])
	if !ok {
		return nil, 0, refuse(o.node, msgPatternLiteral)
	}
	instructions, err := patternSize(pattern)
	if err != nil {
		return nil, 0, refuse(o.node, "%v", err)
	}
	cost := costPerInstruction * product(instructions, o.sizes[0].length+costCompilation)
	if o.result.Kind() == types.StringKind {
		return o.sizes[0], cost, nil
	}
	return scalar, cost, nil
}

// patternSize returns the number of instructions of a regular expression.
func patternSize(pattern string) (float64, error) {
	if len(pattern) > maxPattern {
		return 0, fmt.Errorf(msgPatternTooLong, len(pattern), maxPattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", msgPatternInvalid, err)
	}
	compiled, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, fmt.Errorf("%s: %w", msgPatternInvalid, err)
	}
	if len(compiled.Inst) > maxPatternSize {
		return 0, fmt.Errorf(msgPatternTooLarge, len(compiled.Inst), maxPatternSize)
	}
	return float64(len(compiled.Inst)), nil
}

// distinct compares all pairs of elements.
func distinct(o *operands) (*size, float64, error) {
	return o.sizes[0], comparisons(o.sizes[0], o.sizes[0]), nil
}

func pairs(o *operands) (*size, float64, error) {
	return scalar, comparisons(o.sizes[0], o.sizes[1]), nil
}

func comparisons(a, b *size) float64 {
	return costPerComparison*product(a.length, b.length) + product(a.length, b.nested()) + product(b.length, a.nested())
}

func flatten(o *operands) (*size, float64, error) {
	if len(o.sizes) > 1 {
		return nil, 0, refuse(o.node, msgFlattenDepth)
	}
	outer := o.sizes[0]
	inner := outer.item()
	result := &size{
		length:  outer.total / sizeEntry,
		total:   outer.total,
		text:    outer.text,
		element: either(inner, inner.element),
	}
	return result, costPerSize * outer.total, nil
}

func listRange(o *operands) (*size, float64, error) {
	node := o.nodes[0]
	if node.Kind() == ast.LiteralKind {
		if length, ok := node.AsLiteral().(types.Int); ok && 0 <= length && length <= maxRange {
			return listSize(float64(length), scalar), costPerSize * float64(length), nil
		}
	}
	return nil, 0, refuse(node, msgRangeLiteral, maxRange)
}

func sorted(o *operands) (*size, float64, error) {
	return o.sizes[0], costPerSize * o.total() * math.Log2(o.sizes[0].length+2), nil
}

func toSubject(o *operands) (*size, float64, error) {
	short := stringSize(sizeEntry)
	result := concatenation(mapSize(2, short, short), mapSize(1, short, o.sizes[0]))
	return result, costSubject * (1 + o.sizes[0].length/10), nil
}
