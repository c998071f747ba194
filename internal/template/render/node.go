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

	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// text is a string of a compiled manifest that contains expressions. Their values are never parsed: a value cannot
// change anything outside its position.
type text struct {
	path  *field.Path
	parts []segment
}

// usesItem reports whether an expression uses the element of forEach.
func (t *text) usesItem() bool {
	return slices.ContainsFunc(t.parts, func(part segment) bool { return part.expression && part.compiled.usesItem })
}

// evaluation is the state of one rendering.
type evaluation struct {
	variables map[string]any
	meter     *meter
	// left is the size that objects can still use.
	left int
	// metadata are the labels and annotations of all objects, and metadataSize is their size.
	metadata     map[string]any
	metadataSize int
}

func newEvaluation(namespace, parameters, variables map[string]any, requestedBy string) *evaluation {
	meter := &meter{total: maxTotalCost}
	return &evaluation{
		variables: map[string]any{
			varNamespace: namespace, varParameters: parameters, varVariables: variables, varRequestedBy: requestedBy,
			varItem: "", varMeter: meter,
		},
		meter: meter,
		left:  maxOutput,
	}
}

// spend subtracts a size.
func (e *evaluation) spend(size int) error {
	if e.left -= size; e.left < 0 {
		return errTooLarge
	}
	return nil
}

// render returns the value of a part of a compiled manifest. It shares no map or list with it. ok is false if the value
// is dropped from the list or map that contains it.
func (e *evaluation) render(ctx context.Context, part any) (value any, ok bool, err error) {
	switch part := part.(type) {
	case *text:
		if value, ok, err = e.renderText(ctx, part.parts); err != nil {
			return nil, false, fmt.Errorf("%s: %w", part.path, err)
		}
		return value, ok, nil
	case map[string]any:
		value, err = e.renderMap(ctx, part)
	case []any:
		value, err = e.renderList(ctx, part)
	case string:
		value, err = part, e.spend(len(part))
	default:
		value = part
	}
	if err == nil {
		err = e.spend(sizeScalar)
	}
	return value, true, err
}

func (e *evaluation) renderText(ctx context.Context, parts []segment) (any, bool, error) {
	if len(parts) == 1 { // The value keeps its type.
		value, err := parts[0].compiled.evaluate(ctx, e)
		if err != nil {
			return nil, false, err
		}
		return e.toJSON(value)
	}
	var result strings.Builder
	for _, part := range parts {
		content, err := e.renderPart(ctx, part)
		if err != nil {
			return nil, false, err
		}
		result.WriteString(content)
	}
	if result.Len() > maxString {
		return nil, false, errTooLarge
	}
	return result.String(), true, nil
}

func (e *evaluation) renderPart(ctx context.Context, part segment) (string, error) {
	if !part.expression {
		return part.text, e.spend(len(part.text))
	}
	value, err := part.compiled.evaluate(ctx, e)
	if err != nil {
		return "", err
	}
	return e.toText(value)
}

func (e *evaluation) renderMap(ctx context.Context, values map[string]any) (map[string]any, error) {
	result := make(map[string]any, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) { // An error is the same in each pass.
		value, ok, err := e.render(ctx, values[key])
		if err == nil {
			err = e.spend(len(key))
		}
		if err != nil {
			return nil, err
		}
		if ok {
			result[key] = value
		}
	}
	return result, nil
}

func (e *evaluation) renderList(ctx context.Context, items []any) ([]any, error) {
	result := make([]any, 0, len(items))
	for _, item := range items {
		value, ok, err := e.render(ctx, item)
		if err != nil {
			return nil, err
		}
		if ok {
			result = append(result, value)
		}
	}
	return result, nil
}

// sizeOf returns the number of values in a decoded manifest, and to which depth they are nested.
func sizeOf(value any) (count, depth int) {
	count = 1
	add := func(nested any) {
		nestedCount, nestedDepth := sizeOf(nested)
		count, depth = count+nestedCount, max(depth, nestedDepth+1)
	}
	switch value := value.(type) {
	case map[string]any:
		for _, entry := range value {
			add(entry)
		}
	case []any:
		for _, item := range value {
			add(item)
		}
	}
	return count, depth
}

// compileValue compiles a decoded manifest or a part of it: it replaces strings that contain expressions by their
// *text. After some errors, it skips the rest.
func (c *compiler) compileValue(path *field.Path, value any) any {
	if c.failures >= maxFailures {
		return nil
	}
	switch value := value.(type) {
	case string:
		return c.compileString(path, value)
	case map[string]any:
		result := make(map[string]any, len(value))
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if strings.Contains(key, exprStart) {
				c.failures++
				c.invalid(path, key, "keys cannot contain expressions")
				continue
			}
			result[key] = c.compileValue(childPath(path, key), value[key])
		}
		return result
	case []any:
		result := make([]any, 0, len(value))
		for i, item := range value {
			result = append(result, c.compileValue(path.Index(i), item))
		}
		return result
	default:
		return value
	}
}

func (c *compiler) compileString(path *field.Path, value string) any {
	parts, err := split(value)
	if err != nil {
		c.failures++
		c.invalid(path, value, err.Error())
		return nil
	}
	if literal, ok := literalOf(parts); ok {
		return literal
	}
	permits, message := isTextType, messageNotText
	if len(parts) == 1 {
		permits, message = isValueType, messageNotJSON
	}
	for i, part := range parts {
		if part.expression {
			parts[i].compiled = c.compileAt(path, part.text, permits, message)
		}
	}
	return &text{path: path, parts: parts}
}

// compileAt compiles the expression of a field, whose type must be permitted. It returns nil after an error, and
// compiles nothing after some errors.
func (c *compiler) compileAt(
	path *field.Path, source string, permits func(*types.Type) bool, notPermitted string,
) *expression {
	if c.failures >= maxFailures {
		return nil
	}
	compiled, err := c.compile(source)
	switch {
	case err != nil:
		c.failures++
		c.invalid(path, source, err.Error())
		return nil
	case !permits(compiled.output):
		c.invalid(path, source, fmt.Sprintf(notPermitted, compiled.output))
		return nil
	}
	return compiled
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
