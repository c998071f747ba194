// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printable escapes text from a cluster: names, messages and annotations of objects, and
// responses of servers and webhooks. A terminal interprets or hides some of its characters, and a
// line break makes one line look like two. It also counts nouns in messages.
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

// lineLayout is the white space that Lines, JSON and YAML keep.
const lineLayout = "\n\t"

// Escape returns text as one line of printable characters. Control characters, line breaks,
// characters that change the direction of text, invisible characters and invalid UTF-8 become
// escape sequences of Go. Escape changes nothing in text that it has returned.
func Escape(text string) string { return replace(text, "", escapeGo) }

// Lines is Escape for text that may have several lines. It keeps line feeds and tabs.
func Lines(text string) string { return replace(text, lineLayout, escapeGo) }

// Name returns a name for a list or a table: quoted unless it is plain. Names of RBAC objects can
// contain spaces and commas.
func Name(name string) string {
	if name == "" || strings.ContainsAny(name, " ,;\"'`\\") || !isPrintable(name, "") {
		return Quote(name)
	}
	return name
}

// Quote returns text as a string literal of Go.
func Quote(text string) string { return Escape(strconv.Quote(text)) }

// JSON escapes a JSON document. Decoders read the same values from it as before.
func JSON(document string) string {
	return replace(document, lineLayout, func(char rune) string {
		if high, low := utf16.EncodeRune(char); high != unicode.ReplacementChar {
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, char)
	})
}

// YAML escapes a JSON document that is read as YAML, which has no surrogate pairs.
func YAML(document string) string {
	return replace(document, lineLayout, func(char rune) string {
		if char > 0xffff {
			return fmt.Sprintf(`\U%08x`, char)
		}
		return fmt.Sprintf(`\u%04x`, char)
	})
}

// IsDocument reports whether JSON and YAML return a document unchanged.
func IsDocument(document string) bool { return isPrintable(document, lineLayout) }

// Log is the destination of a log in JSON or for a console. It takes whole lines in each Write.
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

// replace escapes characters that are neither printable nor in keep. Bytes that are not valid UTF-8
// become \x and two digits.
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

// isPrintableChar is unicode.IsPrint without the letters and marks that fonts do not show. The only
// white space that it accepts is the space. It rejects category Cf, which includes bidirectional
// controls.
func isPrintableChar(char rune) bool {
	return unicode.IsPrint(char) &&
		!unicode.In(char, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
