// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	. "github.com/onsi/gomega"
)

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"":       "",
		"orders": "orders",
		"Größe 大きさ размер العربية 👍": "Größe 大きさ размер العربية 👍",
		`a \ b " c ' d`:        `a \ b " c ' d`,
		"a\nb\r\tc":            `a\nb\r\tc`,
		"\x00\x07\x08\x1b\x7f": `\x00\a\b\x1b\x7f`,
		"\x1b]0;title\x07":     `\x1b]0;title\a`,
		"\u0085\u009b2J":       `\u0085\u009b2J`,
		"\u2028\u2029":         `\u2028\u2029`,
		"\u061c\u200e\u200f":   `\u061c\u200e\u200f`,
		"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069": `\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069`,
		"\u00ad\u200b\u200c\u200d\u2060\ufeff":                   `\u00ad\u200b\u200c\u200d\u2060\ufeff`,
		"\U000e0041\U000e007f":                                   `\U000e0041\U000e007f`, // tags
		"\ufe0f\U000e0100\u034f\u115f\u3164\uffa0":               `\ufe0f\U000e0100\u034f\u115f\u3164\uffa0`,
		"\u00a0\u3000":           `\u00a0\u3000`,
		"\ue000\uffff\U0010ffff": `\ue000\uffff\U0010ffff`,
		"a\xff\xc3b\xe2\x80":     `a\xff\xc3b\xe2\x80`,
		"\ufffd":                 "\ufffd",
	} {
		if got := Escape(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	if got := Lines("a\n\tb\r\x1bc\u2028"); got != "a\n\tb\\r\\x1bc\\u2028" {
		t.Errorf("got %q", got)
	}
}

func TestName(t *testing.T) {
	for name, want := range map[string]string{
		"orders":             "orders",
		"system:node-reader": "system:node-reader",
		"größe":              "größe",
		"":                   `""`,
		"a b":                `"a b"`,
		"a, secrets/b":       `"a, secrets/b"`,
		`x\'; touch PWN #`:   `"x\\'; touch PWN #"`,
		"\u202ea":            `"\u202ea"`,
		"a\u3164":            `"a\u3164"`,
		"a\nb":               `"a\nb"`,
	} {
		if got := Name(name); got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
}

func TestDocuments(t *testing.T) {
	const document = "{\n\t\"\u202e\": \"\U000e0001\u007f\",\n\t\"a\": \"b\"\n}\n"
	if got, want := JSON(document), "{\n\t\"\\u202e\": \"\\udb40\\udc01\\u007f\",\n\t\"a\": \"b\"\n}\n"; got != want {
		t.Errorf("JSON: got %q, want %q", got, want)
	}
	if got, want := YAML(document), "{\n\t\"\\u202e\": \"\\U000e0001\\u007f\",\n\t\"a\": \"b\"\n}\n"; got != want {
		t.Errorf("YAML: got %q, want %q", got, want)
	}
	if IsDocument(document) || !IsDocument(JSON(document)) || !IsDocument("{}\n") {
		t.Error("IsDocument is not consistent with JSON")
	}
}

func TestLog(t *testing.T) {
	var out strings.Builder
	line := []byte("{\"error\":\"\u009b\u202e\"}\n")
	written, err := Log{&out}.Write(line)
	if err != nil || written != len(line) || out.String() != "{\"error\":\"\\u009b\\u202e\"}\n" {
		t.Errorf("%d bytes, %v: %q", written, err, out.String())
	}
}

func FuzzEscape(f *testing.F) {
	for _, text := range []string{"orders", "a\nb\u009b\u202e\xff", "\U000e0001\\u202e", "\x1b]0;x\x07"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, escaped := range map[string]string{"Escape": Escape(text), "Name": Name(text)} {
			if strings.ContainsFunc(escaped, isDangerous) || !utf8.ValidString(escaped) {
				t.Errorf("%s returns %q", name, escaped)
			}
			if again := Escape(escaped); again != escaped {
				t.Errorf("%s: escaping %q again returns %q", name, escaped, again)
			}
		}
		if lines := Lines(text); strings.Count(lines, "\n") != strings.Count(text, "\n") ||
			strings.ContainsFunc(strings.NewReplacer("\n", "", "\t", "").Replace(lines), isDangerous) {
			t.Errorf("Lines returns %q", lines)
		}
		expectSameJSON(t, text)
	})
}

// expectSameJSON verifies that [JSON] escapes a document without changing its decoded value. The
// document contains text as a key and as a value.
func expectSameJSON(t *testing.T, text string) {
	t.Helper()
	document, err := json.Marshal(map[string]string{text: text, "a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	escaped := JSON(string(document))
	if strings.ContainsFunc(escaped, isDangerous) {
		t.Errorf("JSON returns %q", escaped)
	}
	var before, after map[string]string
	if err := json.Unmarshal(document, &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(escaped), &after); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("got %q, want %q", after, before)
	}
}

// isDangerous reports whether a character must be escaped. It is independent of the implementation.
func isDangerous(char rune) bool {
	return char < 0x20 || char >= 0x7f && char < 0xa0 || char == 0x2028 || char == 0x2029 ||
		unicode.In(char, unicode.Cf, unicode.Bidi_Control, unicode.Variation_Selector, unicode.Co, unicode.Cs)
}

func TestCount(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Count(1, "object")).To(Equal("1 object"))
	g.Expect(Count(0, "object")).To(Equal("0 objects"))
}

func TestTruncate(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"not too long":                        {"12345678", "12345678"},
		"too long":                            {"123456789", "12345..."},
		"truncated inside a character":        {"1234é6789", "1234..."},
		"truncated after a character":         {"123é6789", "123é..."},
		"multi-byte characters, not too long": {"日本", "日本"},
		"a line break is escaped":             {"a\nb", `a\nb`},
		"escaped before it is truncated":      {"12\u202e6", `12\u2...`},
	} {
		if got := Truncate(test.text, 8); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestShorten(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"not too long":              {" 123456789\n12345 789 ", "123456789 12345 789"},
		"words in the middle":       {"the start and much more until the end", "the ... the end"},
		"a word ends at the limit":  {"1234567 90 and 90 1234567", "1234567 ... 1234567"},
		"a long word at the start":  {"1234567890 and the end", "1234567 ... the end"},
		"a long word at the end":    {"the start 12345678901", "the ... 5678901"},
		"one word":                  {"ααααααααααααααααα", "ααα ... ααα"},
		"escaped before it is long": {"a\u202e\u202e\u202e b", `a\u202e ... b`},
	} {
		if got := Shorten(test.text, 20); got != test.want || len(got) > 20 {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestWords(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Words("  two\nwords ", 20)).To(Equal("two words"))
	g.Expect(Words("finalizer example.com/übermäßig", 31)).To(Equal("finalizer example.com/übermäßig"))
	g.Expect(Words("finalizer example.com/übermäßig", 30)).To(Equal("finalizer ..."))
	g.Expect(Words("übermäßig", 3)).To(Equal("übermäßig ..."), "a name is never cut")
	malicious := "x\nb\r\x07\u009b2J\u202e\x1b]0;t\x07"
	g.Expect(Words(malicious, 100)).To(Equal(Escape("x b " + malicious[4:])))
}
