// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestSplit(t *testing.T) {
	literal := func(text string) segment { return segment{text: text} }
	expression := func(text string) segment { return segment{text: text, expression: true} }
	for text, want := range map[string][]segment{
		"":                         nil,
		"a":                        {literal("a")},
		"$":                        {literal("$")},
		"a$b{c}":                   {literal("a$b{c}")},
		"${a}":                     {expression("a")},
		"${}":                      {expression("")},
		"a${b}c${d}":               {literal("a"), expression("b"), literal("c"), expression("d")},
		"${{'a': {}}}}":            {expression("{'a': {}}"), literal("}")},
		`${"}"}`:                   {expression(`"}"`)},
		`${"\"}"}`:                 {expression(`"\"}"`)},
		`${r"\"}"}`:                {expression(`r"\"`), literal(`"}`)},
		`${bR'\'}'}`:               {expression(`bR'\'`), literal(`'}`)},
		`${xr'\'}'}`:               {expression(`xr'\'}'`)},
		`${"""a"}""b"""}`:          {expression(`"""a"}""b"""`)},
		"${a // }'\n}":             {expression("a // }'\n")},
		"$${a}${b}":                {literal("${a}"), expression("b")},
		"$$${a}":                   {literal("$${a}")},
		"${'${b}'}":                {expression("'${b}'")},
		"$${${b}":                  {literal("${"), expression("b")},
		strings.Repeat("$", 10000): {literal(strings.Repeat("$", 10000))},
	} {
		got, err := split(text)
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), text)
		NewWithT(t).Expect(got).To(Equal(want), text)
	}
	for _, text := range []string{"${", "${a", "a ${'}", "${a // }", "${{}", `${"""a"}`, `${'\'}`, `${"\`} {
		_, err := split(text)
		NewWithT(t).Expect(err).To(MatchError(errUnterminated), text)
	}
}

// FuzzSplit checks that the parts are the text again, and that an expression ends where CEL ends it.
func FuzzSplit(f *testing.F) {
	for _, text := range []string{"a", "$${x}", "'}'", `r'\'`, `"""}"""`, "{'a': 1}", "a // }\n", `b"\""`, "1r'\\'", "x.y{z:'}'}"} {
		f.Add(text)
	}
	c, err := newCompiler(&v1alpha1.NamespaceTemplateSpec{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if segments, err := split(text); err == nil {
			var joined strings.Builder
			for _, part := range segments {
				if part.expression {
					joined.WriteString(exprStart + part.text + "}")
				} else {
					joined.WriteString(strings.ReplaceAll(part.text, exprStart, escaped))
				}
			}
			if joined.String() != text {
				t.Fatalf("split(%q) = %+v", text, segments)
			}
		}
		if _, issues := c.env.Parse(text); issues.Err() != nil || strings.Contains(text, "//") {
			return
		}
		segments, err := split(exprStart + text + "}'}")
		if err != nil || len(segments) != 2 || segments[0].text != text || segments[1].text != "'}" {
			t.Fatalf("CEL parses %q, but split returns %+v, %v", text, segments, err)
		}
	})
}
