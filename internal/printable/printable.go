// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printable escapes text from a cluster: names, messages and annotations of objects, and
// responses of servers and webhooks. Terminals interpret or hide some characters in such text, and
// a line break can make one message look like two. The package also shortens texts, and formats counts in
// messages.
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

// Count returns a number with a noun, for example "1 object" or "2 objects".
func Count(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}

// Cut truncates text to the given number of bytes. It does not split multi-byte characters, because the API server
// counts an invalid character as three bytes.
func Cut(text string, most int) string {
	const mark = "..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(mark)], "") + mark
}

// Truncate returns text for a field of an object or an Event: escaped, because users control some of the names and
// errors in it, and truncated.
func Truncate(text string, most int) string { return Cut(Escape(text), most) }

// Shorten returns text as one line of printable characters with at most the given number of bytes. It removes words in
// the middle of a longer text: an error names the object at its start, and the reason at its end.
func Shorten(text string, most int) string {
	const ellipsis = " ... "
	text = Escape(strings.Join(strings.Fields(text), " "))
	if len(text) <= most {
		return text
	}
	half := (most - len(ellipsis)) / 2
	start, end := text[:half], text[len(text)-half:]
	if space := strings.LastIndexByte(text[:half+1], ' '); space > 0 {
		start = text[:space]
	}
	if _, words, ok := strings.Cut(text[len(text)-half-1:], " "); ok && words != "" {
		end = words
	}
	return strings.ToValidUTF8(start+ellipsis+end, "")
}

// Words returns text as one line of printable characters. If the text is longer than the given
// number of characters, it removes words at the end.
func Words(text string, length int) string {
	const ellipsis = " ..."
	text = Escape(strings.Join(strings.Fields(text), " "))
	if len([]rune(text)) <= length {
		return text
	}
	words := strings.Fields(text)
	short, runes := words[0], len([]rune(words[0]))
	for _, word := range words[1:] {
		if runes += 1 + len([]rune(word)); runes > length-len(ellipsis) {
			break
		}
		short += " " + word
	}
	return short + ellipsis
}
