// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"fmt"
	"math/bits"
	"regexp/syntax"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Costs of functions. The sizes are those of the arguments, in bytes.
const (
	costPerSize        = 8
	costPerComparison  = 8
	costPerInstruction = 10
	costSubject        = 1000
	costInsert         = 1000
	costQuantity       = 2000
	// costFormat is the cost of an argument of format, and formatted the size of its escaped form per byte.
	costFormat = 50000
	formatted  = 8
	// costKey is the cost of a key of a map that is sorted, and comparedPerCost the number of bytes of keys that are
	// compared at the cost of 1.
	costKey         = 32
	comparedPerCost = 64
	// costCompilation is the cost of compiling an instruction of a regular expression, in matches.
	costCompilation = 200
)

// cost returns an upper bound of what a call needs, in time and memory, before the call. It is nil for functions
// and operators that need the same for all arguments: the cost of an iteration includes them.
type cost func(in *operands) int

// functions are the functions and operators that expressions can use.
var functions = map[string]cost{
	operators.Conditional:      nil,
	operators.LogicalAnd:       nil,
	operators.LogicalOr:        nil,
	operators.LogicalNot:       nil,
	operators.NotStrictlyFalse: nil,
	operators.Equals:           linear,
	operators.NotEquals:        linear,
	operators.Less:             linear,
	operators.LessEquals:       linear,
	operators.Greater:          linear,
	operators.GreaterEquals:    linear,
	operators.Add:              add,
	operators.Subtract:         nil,
	operators.Multiply:         nil,
	operators.Divide:           nil,
	operators.Modulo:           nil,
	operators.Negate:           nil,
	operators.In:               contains,
	operators.Index:            nil,
	operators.OptIndex:         nil,
	operators.OptSelect:        nil,
	functionKey:                length,
	functionRange:              iteration,
	"cel.@mapInsert":           mapInsert,
	"size":                     length,
	"dyn":                      nil,
	"bool":                     length,
	"bytes":                    length,
	"double":                   length,
	"int":                      length,
	"string":                   linear,
	"uint":                     length,

	"optional.of":             nil,
	"optional.ofNonZeroValue": nil,
	"optional.none":           nil,
	"hasValue":                nil,
	"value":                   nil,
	"or":                      nil,
	"orValue":                 nil,

	"charAt":        linear,
	"contains":      linear,
	"endsWith":      linear,
	"format":        format,
	"indexOf":       search,
	"join":          join,
	"lastIndexOf":   search,
	"lowerAscii":    linear,
	"replace":       replace,
	"split":         splitString,
	"startsWith":    linear,
	"strings.quote": double,
	"substring":     linear,
	"trim":          linear,
	"upperAscii":    linear,
	"matches":       matches,
	"find":          matches,
	"base64.decode": linear,
	"base64.encode": double,

	"distinct":        distinct,
	"first":           nil,
	"flatten":         linear,
	"includes":        linear,
	"isSorted":        linear,
	"last":            nil,
	"lists.range":     listRange,
	"max":             linear,
	"min":             linear,
	"reverse":         linear,
	"slice":           linear,
	"sort":            sorted,
	"sum":             linear,
	"sets.contains":   pairs,
	"sets.equivalent": pairs,
	"sets.intersects": pairs,

	"quantity":           quantity,
	"isQuantity":         quantity,
	"sign":               quantity,
	"isGreaterThan":      quantity,
	"isLessThan":         quantity,
	"compareTo":          quantity,
	"asApproximateFloat": quantity,
	"asInteger":          quantity,
	"isInteger":          quantity,
	"add":                quantity,
	"sub":                quantity,

	"subject": subjectCost,
}

// operands are the arguments of a call, the target first.
type operands struct {
	values []ref.Val
	// limit is the size above which the exact size of a value is irrelevant.
	limit int
}

// length returns the number of bytes of a string, or of entries of a list or map.
func (o *operands) length(i int) int {
	switch value := o.values[i].(type) {
	case types.String:
		return len(value)
	case types.Bytes:
		return len(value)
	case traits.Sizer:
		size, _ := value.Size().(types.Int)
		return int(size)
	default:
		return 0
	}
}

// size returns the size of a value with all that it contains, or a number above the limit. Values can contain
// the same list more than once, so the size can be exponential in the memory that they use.
func (o *operands) size(i int) int {
	left := o.limit
	measure(o.values[i], sizeEntry, 0, &left)
	return o.limit - left
}

// measure subtracts the size of a value with all that it contains until nothing is left. entry is what a value needs in
// a list. Nothing is left if values are nested more deeply than those of variables in a literal.
func measure(value ref.Val, entry, depth int, left *int) {
	if *left -= sizeScalar; depth > maxDepth+maxNesting {
		*left = -1
		return
	}
	switch value := value.(type) {
	case types.String:
		*left -= len(value)
	case types.Bytes:
		*left -= len(value)
	case *types.Optional:
		if value.HasValue() {
			measure(value.GetValue(), entry, depth+1, left)
		}
	case traits.Mapper:
		for it := value.Iterator(); *left >= 0 && it.HasNext() == types.True; {
			*left -= 2 * entry
			key := it.Next()
			measure(key, entry, depth+1, left)
			measure(value.Get(key), entry, depth+1, left)
		}
	case traits.Lister:
		for it := value.Iterator(); *left >= 0 && it.HasNext() == types.True; {
			*left -= entry
			measure(it.Next(), entry, depth+1, left)
		}
	}
}

// linear is the rule for functions that read their arguments once, and whose result is not larger.
func linear(in *operands) int {
	total := 0
	for i := range in.values {
		total += in.size(i)
	}
	return costPerSize * total
}

// contains is the rule for the search in a list, or for the key of a map.
func contains(in *operands) int {
	if _, isMap := in.values[1].(traits.Mapper); isMap {
		return length(in)
	}
	return linear(in)
}

// length is the rule for functions that read only one string.
func length(in *operands) int {
	return costPerSize * in.length(0)
}

// double is the rule for functions that return at most two characters for each.
func double(in *operands) int {
	return 2 * linear(in)
}

// add is the rule for sums of numbers, strings and lists.
func add(in *operands) int {
	if _, isAccumulator := in.values[0].(traits.MutableLister); isAccumulator {
		return costPerSize * sizeEntry * in.length(1) // It is not copied.
	}
	entry := 1
	if _, isList := in.values[0].(traits.Lister); isList {
		entry = sizeEntry
	}
	return costPerSize * entry * (in.length(0) + in.length(1))
}

// mapInsert is the rule for the accumulators of macros.
func mapInsert(in *operands) int {
	if len(in.values) > 2 {
		return costInsert + costPerSize*in.length(1)
	}
	return costInsert*in.length(1) + costPerSize*in.size(1)
}

// search is the rule for the search in a string, which compares at each position, and in a list.
func search(in *operands) int {
	return linear(in) + costPerSize*in.length(0)*in.length(1)
}

// occurrences is a bound of how often a string contains another one.
func (o *operands) occurrences() int {
	return o.length(0)/max(o.length(1), 1) + 1
}

func replace(in *operands) int {
	return linear(in) + costPerSize*in.occurrences()*in.length(2)
}

func splitString(in *operands) int {
	return linear(in) + costPerSize*in.occurrences()*(sizeEntry+sizeScalar)
}

func join(in *operands) int {
	result := linear(in)
	if len(in.values) > 1 {
		result += costPerSize * in.length(0) * in.length(1)
	}
	return result
}

func format(in *operands) int {
	return formatted*linear(in) + costFormat*in.length(1)
}

// matches is the rule for regular expressions: their time depends on the number of their instructions.
func matches(in *operands) int {
	pattern, _ := in.values[1].(types.String)
	instructions, _ := patternSize(string(pattern)) // checkCall has refused invalid ones.
	return costPerInstruction * instructions * (in.length(0) + costCompilation)
}

// patternSize returns the number of instructions of a regular expression.
func patternSize(pattern string) (int, error) {
	if len(pattern) > maxPattern {
		return 0, fmt.Errorf("the regular expression has %d bytes; at most %d are permitted", len(pattern), maxPattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("the regular expression is invalid: %w", err)
	}
	compiled, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, fmt.Errorf("the regular expression is invalid: %w", err)
	}
	if len(compiled.Inst) > maxPatternSize {
		return 0, fmt.Errorf("the regular expression has %d instructions when it is compiled; at most %d are permitted: "+
			"reduce the repetitions", len(compiled.Inst), maxPatternSize)
	}
	return len(compiled.Inst), nil
}

// distinct compares all pairs of elements.
func distinct(in *operands) int { return in.comparisons(0, 0) }

func pairs(in *operands) int { return in.comparisons(0, 1) }

func (o *operands) comparisons(a, b int) int {
	n, m := o.length(a), o.length(b)
	return linear(o) + costPerComparison*n*m + n*o.content(b) + m*o.content(a)
}

// content returns the size of the elements of a list, without what it needs for numbers. If the size exceeds the limit,
// its exact value is not known.
func (o *operands) content(i int) int { return max(o.size(i)-o.length(i)*(sizeEntry+sizeScalar), 0) }

func listRange(in *operands) int {
	n, _ := in.values[0].(types.Int)
	return costPerSize * (sizeEntry + sizeScalar) * int(max(min(n, maxCost), 0))
}

func sorted(in *operands) int {
	return linear(in) * bits.Len(uint(in.length(0)+1))
}

// iteration is the rule for what a loop iterates over. The keys of a map are sorted: strings are compared fast.
func iteration(in *operands) int {
	values, isMap := in.values[0].(traits.Mapper)
	if !isMap {
		return length(in)
	}
	compared := 0
	for it := values.Iterator(); compared <= in.limit && it.HasNext() == types.True; {
		key, _ := it.Next().(types.String) // Other keys have a constant size.
		compared += len(key)
	}
	return (costKey*in.length(0) + compared/comparedPerCost) * bits.Len(uint(in.length(0)+1))
}

func quantity(in *operands) int {
	return costQuantity + linear(in)
}

func subjectCost(in *operands) int {
	return costSubject * (1 + in.length(0)/10)
}

// checkCall refuses functions that expressions cannot use, and arguments for which no cost is known before the call.
func (c *compiler) checkCall(call ast.CallExpr) error {
	name := qualifiedName(call)
	_, ok := functions[name]
	arguments := call.Args()
	switch {
	case !ok:
		return fmt.Errorf("the function %s is not available", name)
	case name == "flatten" && len(arguments) > 0:
		return errors.New("flatten with a depth is not available")
	case (name == "matches" || name == "find") && len(arguments) > 0:
		pattern, ok := literalString(arguments[len(arguments)-1])
		if !ok {
			return errors.New("the regular expression must be a literal")
		}
		instructions, err := patternSize(pattern)
		if c.complexity += float64(instructions) / instructionsPerUnit; err == nil && c.complexity > maxComplexity {
			err = errTooComplex
		}
		return err
	}
	return nil
}

func literalString(node ast.Expr) (string, bool) {
	if node.Kind() != ast.LiteralKind {
		return "", false
	}
	value, ok := node.AsLiteral().(types.String)
	return string(value), ok
}
