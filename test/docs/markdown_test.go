// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// page is the parsed content of a Markdown file.
type page struct {
	links []link
	// anchors are the fragments of headings on GitHub.
	anchors map[string]bool
	// code contains the lines of code blocks and the code spans.
	code []link
}

// link is a link target or a piece of code, with its line number.
type link struct {
	line int
	text string
}

var (
	fences   = regexp.MustCompile("^ {0,3}(```+|~~~+)")
	headings = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	spans    = regexp.MustCompile("``(.+?)``|`([^`]+)`")
	htmlCode = regexp.MustCompile(`<code>(.*?)</code>`)
	links    = regexp.MustCompile(`\]\(<?([^()\s<>]+)>?(?:\s+"[^"]*")?\)`)
	// linkTexts matches links in headings. The fragment of a heading contains only the text of its
	// links.
	linkTexts = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// parse parses the subset of Markdown that this project uses.
func parse(content string) page {
	result := page{anchors: map[string]bool{}}
	fence := ""
	number := 0
	for line := range strings.Lines(content) {
		number++
		line = strings.TrimRight(line, "\n")
		mark := fences.FindStringSubmatch(line)
		switch {
		case fence != "":
			if mark != nil && strings.HasPrefix(mark[1], fence) {
				fence = ""
			} else {
				result.code = append(result.code, link{number, line})
			}
		case mark != nil:
			fence = mark[1]
		default:
			result.readText(number, line)
		}
	}
	return result
}

// readText parses a line outside code blocks.
func (p *page) readText(number int, line string) {
	for _, span := range slices.Concat(spans.FindAllStringSubmatch(line, -1), htmlCode.FindAllStringSubmatch(line, -1)) {
		p.code = append(p.code, link{number, strings.Join(span[1:], "")})
	}
	for _, found := range links.FindAllStringSubmatch(spans.ReplaceAllString(line, ""), -1) {
		p.links = append(p.links, link{number, found[1]})
	}
	if heading := headings.FindStringSubmatch(line); heading != nil {
		anchor := slug(heading[1])
		// GitHub adds a number to repeated headings.
		for i, first := 1, anchor; p.anchors[anchor]; i++ {
			anchor = fmt.Sprintf("%s-%d", first, i)
		}
		p.anchors[anchor] = true
	}
}

// slug returns the fragment that GitHub computes for a heading.
func slug(heading string) string {
	text := linkTexts.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}

func TestParse(t *testing.T) {
	const content = "# Its `finalizers`, and *more*\n" +
		"A [link](a.md#b), [two](<c d.md>) ![image](e.png \"title\") and `[no](link)`, `make x`.\n" +
		"```sh\n# no heading\n[no](link.md)\nmake all\n```\n" +
		"| `--flag` | [link](f.md) |\n" +
		"# Does it work?\n# Does it work?\n## [A link](x.md) in it\n"
	got := parse(content)
	if want := []link{{2, "a.md#b"}, {2, "e.png"}, {8, "f.md"}, {11, "x.md"}}; !slices.Equal(got.links, want) {
		t.Errorf("links: %v", got.links)
	}
	for _, want := range []string{"its-finalizers-and-more", "does-it-work", "does-it-work-1", "a-link-in-it"} {
		if !got.anchors[want] {
			t.Errorf("no anchor %s in %v", want, got.anchors)
		}
	}
	if len(got.anchors) != 4 {
		t.Errorf("anchors: %v", got.anchors)
	}
	if want := []link{
		{1, "finalizers"}, {2, "[no](link)"}, {2, "make x"}, {4, "# no heading"}, {5, "[no](link.md)"}, {6, "make all"},
		{8, "--flag"},
	}; !slices.Equal(got.code, want) {
		t.Errorf("code: %v", got.code)
	}
}
