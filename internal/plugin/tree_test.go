// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRenderTree(t *testing.T) {
	command := "kubectl nslifecycle finalize shop --finalizer=a.very.long.name.example.com/hold"
	branches := []branch{
		{label: "First", text: "a sentence that is a little too long for one line", children: []branch{
			{label: "Do", children: []branch{{text: command, isVerbatim: true}}},
			{text: "without a label it is the text that is wrapped at the end of the line"},
		}},
		{label: "Second", text: "short"},
	}
	for name, test := range map[string]struct {
		columns  int
		expected []string
	}{
		"pipe": {0, []string{
			"├── First: a sentence that is a little too long for one line",
			"│   ├── Do",
			"│   │   └── " + command,
			"│   └── without a label it is the text that is wrapped at the end of the line",
			"└── Second: short",
		}},
		"terminal": {48, []string{
			"├── First: a sentence that is a little too",
			"│   │   long for one line",
			"│   ├── Do",
			"│   │   └── " + command,
			"│   └── without a label it is the text that",
			"│           is wrapped at the end of the line",
			"└── Second: short",
		}},
		// No column is narrower than what can be read: the terminal breaks the lines then.
		"narrow terminal": {10, []string{
			"├── First: a sentence that is a",
			"│   │   little too long for one line",
			"│   ├── Do",
			"│   │   └── " + command,
			"│   └── without a label it is the text",
			"│           that is wrapped at the end of",
			"│           the line",
			"└── Second: short",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			actual := strings.Split(strings.TrimSuffix(renderTree(branches, test.columns), "\n"), "\n")
			if diff := cmp.Diff(test.expected, actual); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRenderTreeColours(t *testing.T) {
	colours := palette{}
	actual := renderTree([]branch{
		{label: "Label", text: "some words that go on for more than one line", paint: colours.red},
		{text: "two lines of a text without any label at all", paint: colours.cyan},
	}, 36)
	expected := "├── \x1b[31mLabel:\x1b[0m some words that go on\n" +
		"│       for more than one line\n" +
		"└── \x1b[36mtwo lines of a text without\x1b[0m\n" +
		"        \x1b[36many label at all\x1b[0m\n"
	if diff := cmp.Diff(expected, shown(actual)); diff != "" {
		t.Error(diff)
	}
}

func TestRenderTreeEscapes(t *testing.T) {
	tree := renderTree([]branch{
		{text: "kubectl get roles \x1b[2Ka\nb", isVerbatim: true}, {label: "a\nb", text: "\u202ec"},
	}, 0)
	if expected := "├── kubectl get roles \\x1b[2Ka\\nb\n└── a\\nb: \\u202ec\n"; tree != expected {
		t.Errorf("got %q, expected %q", tree, expected)
	}
}
