// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

const (
	exprStart = "${"
	escaped   = "$" + exprStart
)

var errUnterminated = errors.New(`"${" has no matching "}"; write "$${" for a literal "${"`)

// segment is a part of a string in a template: literal text or an expression.
type segment struct {
	text       string
	expression bool
	// compiled is the expression, once it is compiled.
	compiled *expression
}

// split returns the parts of a string.
func split(text string) ([]segment, error) {
	var segments []segment
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			segments = append(segments, segment{text: literal.String()})
			literal.Reset()
		}
	}
	for {
		start := strings.Index(text, exprStart)
		if start < 0 {
			literal.WriteString(text)
			flush()
			return segments, nil
		}
		before, after := text[:start], text[start+len(exprStart):]
		if strings.HasSuffix(text[:start+len(exprStart)], escaped) {
			literal.WriteString(before[:start-1] + exprStart)
			text = after
			continue
		}
		literal.WriteString(before)
		flush()
		end := expressionEnd(after)
		if end < 0 {
			return nil, errUnterminated
		}
		segments = append(segments, segment{text: after[:end], expression: true})
		text = after[end+1:]
	}
}

// Literal returns the value of a string in a template; empty and false if it contains an expression.
func Literal(text string) (string, bool) {
	segments, err := split(text)
	if err != nil {
		return "", false
	}
	return literalOf(segments)
}

func literalOf(segments []segment) (string, bool) {
	switch {
	case len(segments) == 0:
		return "", true
	case len(segments) > 1 || segments[0].expression:
		return "", false
	}
	return segments[0].text, true
}

// IsLiteral reports whether no string in a value contains an expression, or an escaped one.
func IsLiteral(value any) bool {
	encoded, err := json.Marshal(value)
	return err == nil && !bytes.Contains(encoded, []byte(exprStart))
}

// expressionEnd returns the position of the brace that ends an expression, or -1. Braces in strings and
// comments do not count.
func expressionEnd(text string) int {
	depth := 0
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '{':
			depth++
			i++
		case c == '}' && depth == 0:
			return i
		case c == '}':
			depth--
			i++
		case c == '\'' || c == '"':
			i = skipString(text, i, false)
		case isIdentifier(c):
			i = skipIdentifier(text, i)
		case strings.HasPrefix(text[i:], "//"):
			if end := strings.IndexByte(text[i:], '\n'); end >= 0 {
				i += end
			} else {
				i = len(text)
			}
		default:
			i++
		}
	}
	return -1
}

// skipIdentifier returns the position after an identifier or number and, if the identifier is the prefix
// of a string, after the string.
func skipIdentifier(text string, i int) int {
	start := i
	for i < len(text) && isIdentifier(text[i]) {
		i++
	}
	if i == len(text) || text[i] != '\'' && text[i] != '"' {
		return i
	}
	prefix := strings.ToLower(text[start:i])
	return skipString(text, i, prefix == "r" || prefix == "br")
}

// skipString returns the position after the string that starts at i. In a raw string, a backslash is a
// character like any other.
func skipString(text string, i int, raw bool) int {
	quote := text[i : i+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(text[i:], triple) {
		quote = triple
	}
	for i += len(quote); i < len(text); i++ {
		if text[i] == '\\' && !raw {
			i++
		} else if strings.HasPrefix(text[i:], quote) {
			return i + len(quote)
		}
	}
	return len(text)
}

func isIdentifier(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
