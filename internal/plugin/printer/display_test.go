// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
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
	g.Expect(out.String()).To(Equal("a\nb\n\x1b[2A\x1b[Jc\n\x1b[1A\x1b[Jpermanent\nd\ne\n"))
}

func TestClipAndBar(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Clip("  two\nwords ", 20)).To(Equal("two words"))
	g.Expect(Clip("übermäßig", 9)).To(Equal("übermäßig"))
	g.Expect(Clip("übermäßig", 8)).To(Equal("überm..."))
	plain := Palette{IsPlain: true}
	g.Expect(Bar(0, 4, 8, plain)).To(Equal("░░░░░░░░"))
	g.Expect(Bar(3, 4, 8, plain)).To(Equal("██████░░"))
	g.Expect(Bar(9, 4, 8, plain)).To(Equal("████████"), "done exceeds total")
	g.Expect(Bar(0, 0, 4, plain)).To(Equal("████"), "total is 0")
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
