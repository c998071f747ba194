// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// name matches the words in code that are certainly names: flags, fields, reasons, kinds, metrics and Go identifiers.
var (
	name = regexp.MustCompile(`(?:^|[^\w-])(--[a-z][a-z0-9-]+|nslifecycle_[a-z_]+|[a-z]+[A-Z]\w*|(?:[A-Z][a-z0-9]+){2,}\w*)`)
	word = regexp.MustCompile(`\w[\w-]*`)
)

// qualified matches a name with its package.
var qualified = regexp.MustCompile(`(?:^|[^\w./-])([a-z]\w*)\.([A-Z]\w*)`)

// foreignNames are names of other projects that occur only in the documentation or in comments.
const foreignNames = "testdata/foreign-names.txt"

// TestNames checks that names still exist, in the pages that are not generated and in comments in Go files: each must
// occur as a word in the code of a source file or on a generated page. A name with a package of this project must occur
// in this package. docs/parity.md has a test of its own.
func TestNames(t *testing.T) {
	source := readSource(t)
	content, err := os.ReadFile(foreignNames)
	if err != nil {
		t.Fatal(err)
	}
	foreign := map[string]bool{}
	for line := range strings.FieldsSeq(string(content)) {
		foreign[line] = false
	}
	expect := func(exists bool, file string, line int, name string) {
		if _, isForeign := foreign[name]; isForeign {
			foreign[name] = true
		} else if !exists {
			t.Errorf("%s:%d: %s does not exist; a name of another project belongs into %s", file, line, name, foreignNames)
		}
	}
	check := func(file string, texts []link) int {
		count := 0
		for _, text := range texts {
			for _, found := range name.FindAllStringSubmatch(text.text, -1) {
				count++
				word := strings.TrimLeft(found[1], "-")
				expect(source.words[word] || source.words[strings.TrimSuffix(word, "s")], file, text.line, found[1])
			}
		}
		return count
	}
	count, comments := 0, 0
	pages := readPages(t)
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		if !isGenerated(page) && page != "docs/parity.md" {
			count += check(page, pages[page].code)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(source.comments)) {
		comments += check(file, source.comments[file])
		for _, comment := range source.comments[file] {
			for _, found := range qualified.FindAllStringSubmatch(comment.text, -1) {
				if names, isOwn := source.packages[found[1]]; isOwn {
					expect(names[found[2]], file, comment.line, found[1]+"."+found[2])
				}
			}
		}
	}
	for _, line := range slices.Sorted(maps.Keys(foreign)) {
		if !foreign[line] {
			t.Errorf("%s: no page and no comment contains %s", foreignNames, line)
		}
	}
	if count < 500 || comments < 5000 {
		t.Errorf("found only %d names in the documentation and %d in comments, so the search is broken", count, comments)
	}
}

// source is what the files that are not Markdown contain.
type source struct {
	// words are those in the code of all files and on the generated pages.
	words map[string]bool
	// packages has the identifiers in the packages of each name.
	packages map[string]map[string]bool
	// comments has those of each Go file.
	comments map[string][]link
}

func readSource(t *testing.T) source {
	t.Helper()
	result := source{map[string]bool{}, map[string]map[string]bool{}, map[string][]link{}}
	walkFiles(t, func(file string, content []byte) {
		extension := filepath.Ext(file)
		switch {
		case extension == "" && slices.Contains(content, 0):
			t.Errorf("%s is a binary file, which does not belong into the repository", file)
		case extension == ".md" && !isGenerated(file), strings.HasPrefix(file, "dist/"), strings.Contains(file, "/testdata/"):
		case extension == ".go":
			result.readGo(file, content)
		case slices.Contains([]string{".yaml", ".json", ".sh", ".mod", ".tpl", ".md", ""}, extension):
			for _, found := range word.FindAll(content, -1) {
				result.words[string(found)] = true
			}
		}
	})
	return result
}

func (s source) readGo(name string, content []byte) {
	files := token.NewFileSet()
	file := files.AddFile(name, files.Base(), len(content))
	var code scanner.Scanner
	code.Init(file, content, nil, scanner.ScanComments)
	var names map[string]bool
	for {
		position, kind, text := code.Scan()
		switch kind {
		case token.EOF:
			return
		case token.COMMENT:
			if !strings.HasPrefix(text, "// +") { // a marker
				s.comments[name] = append(s.comments[name], link{file.Line(position), text})
			}
		case token.IDENT:
			if names == nil { // the name of the package
				names = s.packages[text]
				if names == nil {
					names = map[string]bool{}
					s.packages[text] = names
				}
			}
			s.words[text], names[text] = true, true
		case token.STRING:
			for _, found := range word.FindAllString(text, -1) {
				s.words[found] = true
			}
		}
	}
}

// TestPackages checks that docs/development.md names each package in internal, pkg and test, or the directory of the
// second level that contains it.
func TestPackages(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "docs/development.md"))
	if err != nil {
		t.Fatal(err)
	}
	directories := map[string]bool{}
	walkFiles(t, func(file string, _ []byte) {
		if parts := strings.Split(file, "/"); filepath.Ext(file) == ".go" && len(parts) > 2 &&
			slices.Contains([]string{"internal", "pkg", "test"}, parts[0]) {
			directories[strings.Join(parts[:2], "/")] = true
		}
	})
	for _, directory := range slices.Sorted(maps.Keys(directories)) {
		if !strings.Contains(string(content), "`"+directory+"`") {
			t.Errorf("docs/development.md does not name %s", directory)
		}
	}
}
