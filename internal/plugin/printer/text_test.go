// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestRenderTree(t *testing.T) {
	command := "kubectl nslifecycle finalize shop --finalizer=" + strings.Repeat("a.very.long.name.", 4) + "example.com/hold"
	words := strings.Repeat("word ", 17)
	actual := RenderTree([]Branch{
		{Label: "First", Text: words + "and some more words", Children: []Branch{
			{Label: "Do", Children: []Branch{{Text: command, IsVerbatim: true}}},
			{Text: words + "and some more words"},
		}},
		{Label: "Second", Text: "short"},
	})
	NewWithT(t).Expect(strings.Split(strings.TrimSuffix(actual, "\n"), "\n")).To(Equal([]string{
		"First: " + words + "and",
		"  some more words",
		"  Do:",
		"    " + command,
		"  - " + words + "and some",
		"    more words",
		"Second: short",
	}))
}

func TestRenderTreeEscapes(t *testing.T) {
	tree := RenderTree([]Branch{
		{Text: "kubectl get roles \x1b[2Ka\nb", IsVerbatim: true}, {Label: "a\nb", Text: "\u202ec"},
	})
	NewWithT(t).Expect(tree).To(Equal("kubectl get roles \\x1b[2Ka\\nb\na\\nb: \\u202ec\n"))
}
