// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestDisplayInPipe(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	shown := NewDisplay(&out)
	shown.Show([]string{"a 1", "b 1"})
	shown.Show([]string{"a 1", "b 2"})
	shown.Printf("in between")
	shown.Show([]string{"b 1"})
	g.Expect(out.String()).To(Equal("a 1\nb 1\nb 2\nin between\nb 1\n"), "each change must be printed once")
}

func TestDisplayOnTerminal(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	shown := NewDisplay(stream{&out})
	shown.IsLive = true
	shown.Show([]string{"a", "b"})
	shown.Show([]string{"a", "b"})
	shown.Show([]string{"c"})
	shown.Printf("permanent")
	shown.Show([]string{"d"})
	shown.Keep()
	shown.Show([]string{"e"})
	shown.Show([]string{"two\nlines"})
	shown.Erase()
	g.Expect(out.String()).To(Equal("a\nb\n\x1b[2A\x1b[Jc\n\x1b[1A\x1b[Jpermanent\nd\ne\n" +
		"\x1b[1A\x1b[Jtwo\nlines\n\x1b[2A\x1b[J"))
	g.Expect(countRows([]string{"1234567890", Palette{}.Red("12345678901"), "", "a\nb"}, 10)).To(Equal(6))
}

func TestShortenAndBar(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Shorten("  two\nwords ", 20)).To(Equal("two words"))
	g.Expect(Shorten("finalizer example.com/übermäßig", 31)).To(Equal("finalizer example.com/übermäßig"))
	g.Expect(Shorten("finalizer example.com/übermäßig", 30)).To(Equal("finalizer ..."))
	g.Expect(Shorten("übermäßig", 3)).To(Equal("übermäßig ..."), "a name is never cut")
	plain := Palette{IsPlain: true}
	g.Expect(Bar(0, 4, 8, plain)).To(Equal("░░░░░░░░"))
	g.Expect(Bar(3, 4, 8, plain)).To(Equal("██████░░"))
	g.Expect(Bar(9, 4, 8, plain)).To(Equal("████████"), "done exceeds total")
	g.Expect(Bar(0, 0, 8, plain)).To(Equal("████████"), "total is 0")
	g.Expect(Bar(0, 4, 3, plain)).To(BeEmpty(), "too narrow")
}

func TestWrap(t *testing.T) {
	g := NewWithT(t)
	command := "kubectl get configmaps --namespace=shop"
	for text, expected := range map[string]string{
		"short":                         "short",
		"to see it, run: kubectl get a": "to see it, run: kubectl get a",
		"a sentence that is too long for one of the lines": "a sentence that is too long for one of\n" +
			"  the lines",
		"to see it, run: " + command:     "to see it, run:\n  " + command,
		"two errors:\nfirst\nsecond":     "two errors:\n  first\n  second",
		strings.Repeat("x", 50) + " y z": strings.Repeat("x", 50) + "\n  y z",
	} {
		g.Expect(WrapCommand(text, 40)).To(Equal(expected))
	}
	for _, text := range []string{
		`the value "of another user, who can choose it: kubectl delete namespace shop"`,
		"the message of another user who has chosen it: kubectl delete `namespace shop`",
	} {
		g.Expect(strings.Split(WrapCommand(text, 40), "\n")).NotTo(ContainElement(HavePrefix("  kubectl")), text)
	}
	for length := range 50 {
		text := strings.Repeat("x", length) + ": kubectl delete namespace shop"
		g.Expect(strings.Split(Wrap(text, 40), "\n")).NotTo(ContainElement(HavePrefix("  kubectl")), text)
	}
}

func TestColumns(t *testing.T) {
	g := NewWithT(t)
	defined := Columns("Name", "+Since")
	g.Expect(defined[0].Name).To(Equal("Name"))
	g.Expect(defined[0].Priority).To(BeZero())
	g.Expect(defined[1].Name).To(Equal("Since"))
	g.Expect(defined[1].Priority).To(BeNumerically(">", 0))
}

func TestPalette(t *testing.T) {
	g := NewWithT(t)
	g.Expect(NewPalette(&bytes.Buffer{}).Red("text")).To(Equal("text"), "not a terminal")
	g.Expect(terminalText(Palette{}.Red("text"))).To(Equal("\x1b[31mtext\x1b[0m"))
	g.Expect(Palette{}.Red("")).To(BeEmpty())
}

func TestText(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Sentence("")).To(BeEmpty())
	g.Expect(Sentence("über alles")).To(Equal("Über alles."))
	g.Expect(Sentence("Why?")).To(Equal("Why?"))
	g.Expect(SummarizeErrors([]string{"a"})).To(Equal("a"))
	g.Expect(SummarizeErrors([]string{"a", "b", "c"})).To(And(HavePrefix("a"), ContainSubstring("2 ")))
}
