// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printable escapes text from a cluster: names, messages and annotations of objects, and
// responses of servers and webhooks. Terminals interpret or hide some characters in such text, and
// a line break can make one message look like two. The package also formats counts in messages.
package printable

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// lineLayout contains the white space that Lines, JSON and YAML keep.
const lineLayout = "\n\t"

// Escape returns text as one line of printable characters. It replaces control characters, line
// breaks, invisible characters, invalid UTF-8, and characters that change the direction of text
// with Go escape sequences. Escaping text twice has the same result as escaping it once.
func Escape(text string) string { return replace(text, "", escapeGo) }

// Lines is like Escape, but for multi-line text: it keeps line feeds and tabs.
func Lines(text string) string { return replace(text, lineLayout, escapeGo) }

// Name returns a name for a list or a table. It quotes names with special characters, because the
// names of RBAC objects can contain spaces and commas.
func Name(name string) string {
	if name == "" || strings.ContainsAny(name, " ,;\"'`\\") || !isPrintable(name, "") {
		return Quote(name)
	}
	return name
}

// Quote returns text as a Go string literal.
func Quote(text string) string { return Escape(strconv.Quote(text)) }

// JSON escapes a JSON document. Decoders read the same values from the result.
func JSON(document string) string {
	return replace(document, lineLayout, func(char rune) string {
		if high, low := utf16.EncodeRune(char); high != unicode.ReplacementChar {
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, char)
	})
}

// YAML escapes a JSON document that is decoded as YAML. YAML has no surrogate pairs.
func YAML(document string) string {
	return replace(document, lineLayout, func(char rune) string {
		if char > 0xffff {
			return fmt.Sprintf(`\U%08x`, char)
		}
		return fmt.Sprintf(`\u%04x`, char)
	})
}

// IsDocument reports whether a document needs no escaping by JSON or YAML.
func IsDocument(document string) bool { return isPrintable(document, lineLayout) }

// Log escapes a log in the JSON or console format. Each Write must contain only complete lines.
type Log struct{ io.Writer }

// Write implements io.Writer.
func (l Log) Write(lines []byte) (int, error) {
	if _, err := io.WriteString(l.Writer, JSON(string(lines))); err != nil {
		return 0, err
	}
	return len(lines), nil
}

func escapeGo(char rune) string {
	quoted := strconv.QuoteRuneToASCII(char)
	return quoted[1 : len(quoted)-1]
}

// replace escapes all characters that are neither printable nor in keep. It replaces each invalid
// UTF-8 byte with \x and two digits.
func replace(text, keep string, escape func(char rune) string) string {
	if isPrintable(text, keep) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); {
		char, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case char == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[i])
		case isPrintableChar(char) || strings.ContainsRune(keep, char):
			out.WriteString(text[i : i+size])
		default:
			out.WriteString(escape(char))
		}
		i += size
	}
	return out.String()
}

func isPrintable(text, keep string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(char rune) bool {
		return !isPrintableChar(char) && !strings.ContainsRune(keep, char)
	})
}

// isPrintableChar is like unicode.IsPrint, but also rejects invisible letters and marks. Like
// unicode.IsPrint, it rejects all white space except the space character, and all characters in
// category Cf, such as bidirectional controls.
func isPrintableChar(char rune) bool {
	return unicode.IsPrint(char) &&
		!unicode.In(char, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
