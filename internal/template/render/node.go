// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// node is a part of a compiled manifest. Expressions are positions in this tree, and their values are
// never parsed: a value cannot change anything outside its position.
type node interface {
	// render returns the value. ok is false if the value is dropped from the list or map that contains it.
	render(ctx context.Context, in *evaluation) (value any, ok bool, err error)
}

// evaluation is the state of one rendering.
type evaluation struct {
	variables map[string]any
	meter     *meter
	converter converter
	// metadata are the labels and annotations of all objects, and metadataSize is their size.
	metadata     map[string]any
	metadataSize int
}

func newEvaluation(namespace, parameters, variables map[string]any, requestedBy string) *evaluation {
	output := budget(maxOutput)
	meter := &meter{total: maxTotalCost}
	return &evaluation{
		variables: map[string]any{
			varNamespace: namespace, varParameters: parameters, varVariables: variables, varRequestedBy: requestedBy,
			varItem: "", varMeter: meter,
		},
		meter:     meter,
		converter: converter{budget: &output, longest: maxString},
	}
}

// literal is a part without expressions.
type literal struct {
	value any
	size  int
}

// whole is a string that is one expression: its value keeps its type.
type whole struct {
	path       *field.Path
	expression *expression
}

// text is a string that contains expressions.
type text struct {
	path  *field.Path
	parts []textPart
}

// textPart is a literal if the expression is nil.
type textPart struct {
	literal    string
	expression *expression
}

type mapping struct {
	keys   []string
	values map[string]node
}

type sequence []node

func (n *literal) render(_ context.Context, in *evaluation) (any, bool, error) {
	if err := in.converter.budget.spend(n.size); err != nil {
		return nil, false, err
	}
	return runtime.DeepCopyJSONValue(n.value), true, nil
}

func (n *whole) render(ctx context.Context, in *evaluation) (any, bool, error) {
	value, err := n.expression.evaluate(ctx, in)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", n.path, err)
	}
	converted, ok, err := in.converter.toJSON(value)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", n.path, err)
	}
	return converted, ok, nil
}

func (n *text) render(ctx context.Context, in *evaluation) (any, bool, error) {
	var result strings.Builder
	for _, part := range n.parts {
		if part.expression == nil {
			if err := in.converter.budget.spend(len(part.literal)); err != nil {
				return nil, false, err
			}
			result.WriteString(part.literal)
			continue
		}
		value, err := part.expression.evaluate(ctx, in)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", n.path, err)
		}
		converted, err := in.converter.toText(value)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", n.path, err)
		}
		result.WriteString(converted)
	}
	if result.Len() > maxString {
		return nil, false, fmt.Errorf("%s: %w", n.path, errTooLarge)
	}
	return result.String(), true, nil
}

func (n *mapping) render(ctx context.Context, in *evaluation) (any, bool, error) {
	result := make(map[string]any, len(n.keys))
	for _, key := range n.keys {
		value, ok, err := n.values[key].render(ctx, in)
		if err != nil {
			return nil, false, err
		}
		if err := in.converter.budget.spend(len(key) + sizeScalar); err != nil {
			return nil, false, err
		}
		if ok {
			result[key] = value
		}
	}
	return result, true, nil
}

func (n sequence) render(ctx context.Context, in *evaluation) (any, bool, error) {
	result := make([]any, 0, len(n))
	for _, item := range n {
		value, ok, err := item.render(ctx, in)
		if err != nil {
			return nil, false, err
		}
		if ok {
			result = append(result, value)
		}
	}
	return result, true, nil
}

// admitValue counts the values of a decoded manifest, and returns an error if there are too many or if they
// are nested too deeply.
func (c *compiler) admitValue(path *field.Path, value any, depth int) *field.Error {
	if c.values++; c.values > maxManifestValues {
		return field.Invalid(path, "", fmt.Sprintf(msgTooManyValues, maxManifestValues))
	}
	if depth > maxDepth {
		return field.Invalid(path, "", fmt.Sprintf(msgTooDeep, maxDepth))
	}
	switch value := value.(type) {
	case map[string]any:
		for _, entry := range value {
			if err := c.admitValue(path, entry, depth+1); err != nil {
				return err
			}
		}
	case []any:
		for _, item := range value {
			if err := c.admitValue(path, item, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// compileNode compiles a decoded manifest or a part of it. After some errors, it skips the rest.
func (c *compiler) compileNode(path *field.Path, value any) (node, field.ErrorList) {
	if c.failures >= maxFailures {
		return &literal{}, nil
	}
	switch value := value.(type) {
	case string:
		return c.compileString(path, value)
	case map[string]any:
		return c.compileMap(path, value)
	case []any:
		return c.compileList(path, value)
	default:
		return &literal{value: value, size: sizeScalar}, nil
	}
}

func (c *compiler) compileMap(path *field.Path, values map[string]any) (node, field.ErrorList) {
	result := &mapping{keys: slices.Sorted(maps.Keys(values)), values: map[string]node{}}
	var errs field.ErrorList
	static, total := map[string]any{}, sizeScalar
	for _, key := range result.keys {
		if strings.Contains(key, exprStart) {
			c.failures++
			errs = append(errs, field.Invalid(path, abbreviate(key), msgExpressionInKey))
			continue
		}
		child, childErrs := c.compileNode(childPath(path, key), values[key])
		errs = append(errs, childErrs...)
		result.values[key] = child
		if known, ok := child.(*literal); ok {
			static[key] = known.value
			total += known.size + len(key)
		}
	}
	if len(static) == len(values) {
		return &literal{value: static, size: total}, errs
	}
	return result, errs
}

func (c *compiler) compileList(path *field.Path, values []any) (node, field.ErrorList) {
	result := make(sequence, 0, len(values))
	var errs field.ErrorList
	static, total := make([]any, 0, len(values)), sizeScalar
	for i, value := range values {
		child, childErrs := c.compileNode(path.Index(i), value)
		errs = append(errs, childErrs...)
		result = append(result, child)
		if known, ok := child.(*literal); ok {
			static = append(static, known.value)
			total += known.size
		}
	}
	if len(static) == len(values) {
		return &literal{value: static, size: total}, errs
	}
	return result, errs
}

func (c *compiler) compileString(path *field.Path, value string) (node, field.ErrorList) {
	segments, err := split(value)
	if err != nil {
		c.failures++
		return &text{}, field.ErrorList{field.Invalid(path, abbreviate(value), err.Error())}
	}
	result := &text{path: path}
	var errs field.ErrorList
	for _, part := range segments {
		if !part.expression {
			result.parts = append(result.parts, textPart{literal: part.text})
			continue
		}
		compiled, err := c.compilePart(part.text, len(segments) == 1)
		if err != nil {
			errs = invalid(errs, path, part.text, err)
			continue
		}
		result.parts = append(result.parts, textPart{expression: compiled})
	}
	switch {
	case len(result.parts) < len(segments):
		return result, errs
	case len(result.parts) == 0:
		return &literal{value: "", size: sizeScalar}, nil
	case len(result.parts) > 1:
		return result, nil
	case result.parts[0].expression != nil:
		return &whole{path: path, expression: result.parts[0].expression}, nil
	default:
		text := result.parts[0].literal
		return &literal{value: text, size: sizeScalar + len(text)}, nil
	}
}

func (c *compiler) compilePart(source string, isWhole bool) (*expression, error) {
	compiled, err := c.compile(source)
	switch {
	case err != nil:
		return nil, err
	case isWhole && !isValueType(compiled.output):
		return nil, fmt.Errorf(msgNotJSON, compiled.output)
	case !isWhole && !isTextType(compiled.output):
		return nil, fmt.Errorf(msgNotText, compiled.output)
	}
	return compiled, nil
}

// childPath returns the path of an entry of a map.
func childPath(path *field.Path, key string) *field.Path {
	if key == "" || strings.ContainsFunc(key, isOther) {
		return path.Key(strconv.Quote(abbreviate(key)))
	}
	return path.Child(key)
}

// isOther reports whether a character cannot be part of an identifier.
func isOther(r rune) bool { return r > unicode.MaxASCII || !isIdentifier(byte(r)) }

// abbreviate returns the start of a text that is too long for a message.
func abbreviate(text string) string { return printable.Cut(text, 128) }
