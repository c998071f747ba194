// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"encoding/json"
)

// Literal returns the value of a string in a template; empty and false if it contains an expression.
func Literal(text string) (string, bool) {
	segments, err := split(text)
	switch {
	case err != nil || len(segments) > 1 || len(segments) == 1 && segments[0].expression:
		return "", false
	case len(segments) == 0:
		return "", true
	}
	return segments[0].text, true
}

// IsLiteral reports whether no string in a value contains an expression, or an escaped one.
func IsLiteral(value any) bool {
	encoded, err := json.Marshal(value)
	return err == nil && !bytes.Contains(encoded, []byte(exprStart))
}
