// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestRenderTree(t *testing.T) {
	command := "kubectl nslifecycle finalize shop --finalizer=a.very.long.name.example.com/hold"
	branches := []Branch{
		{Label: "First", Text: "a sentence that is a little too long for one line", Children: []Branch{
			{Label: "Do", Children: []Branch{{Text: command, IsVerbatim: true}}},
			{Text: "a branch without a label whose text is wrapped at the end of the line"},
		}},
		{Label: "Second", Text: "short"},
	}
	for name, test := range map[string]struct {
		columns  int
		expected []string
	}{
		"wide": {100, []string{
			"First: a sentence that is a little too long for one line",
			"  Do:",
			"    " + command,
			"  - a branch without a label whose text is wrapped at the end of the line",
			"Second: short",
		}},
		"narrow": {48, []string{
			"First: a sentence that is a little too long",
			"  for one line",
			"  Do:",
			"    " + command,
			"  - a branch without a label whose text is",
			"    wrapped at the end of the line",
			"Second: short",
		}},
		// Text is wrapped to a minimum width that is readable, even if the terminal is narrower.
		"too narrow": {10, []string{
			"First: a sentence that is a",
			"  little too long for one line",
			"  Do:",
			"    " + command,
			"  - a branch without a label whose",
			"    text is wrapped at the end of",
			"    the line",
			"Second: short",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			actual := strings.Split(strings.TrimSuffix(RenderTree(branches, test.columns), "\n"), "\n")
			NewWithT(t).Expect(actual).To(Equal(test.expected))
		})
	}
}

func TestRenderTreeColors(t *testing.T) {
	colors := Palette{}
	actual := RenderTree([]Branch{
		{Label: "Label", Text: "some words that stay for more than one line", Paint: colors.Red},
		{Text: "two lines of long text without any label at all", Paint: colors.Cyan},
	}, 36)
	expected := "\x1b[31mLabel:\x1b[0m some words that stay for\n" +
		"  more than one line\n" +
		"- \x1b[36mtwo lines of long text without any\x1b[0m\n" +
		"  \x1b[36mlabel at all\x1b[0m\n"
	NewWithT(t).Expect(terminalText(actual)).To(Equal(expected))
}

func TestRenderTreeEscapes(t *testing.T) {
	tree := RenderTree([]Branch{
		{Text: "kubectl get roles \x1b[2Ka\nb", IsVerbatim: true}, {Label: "a\nb", Text: "\u202ec"},
	}, 100)
	NewWithT(t).Expect(tree).To(Equal("kubectl get roles \\x1b[2Ka\\nb\na\\nb: \\u202ec\n"))
}
