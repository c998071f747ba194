// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

const root = "../.."

// ignored are directories that git ignores.
var ignored = []string{".git", "bin", "dist/release"}

// walkFiles calls a function for each file of the project, with its path relative to root.
func walkFiles(t *testing.T, visit func(file string, content []byte)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch {
		case entry.IsDir() && slices.Contains(ignored, name):
			return fs.SkipDir
		case entry.IsDir() || slices.Contains(ignored, name): // .git is a file in a linked worktree
			return nil
		}
		content, err := os.ReadFile(path)
		if err == nil {
			visit(name, content)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// readPages returns all Markdown files of the project, by path relative to root.
func readPages(t *testing.T) map[string]page {
	t.Helper()
	pages := map[string]page{}
	walkFiles(t, func(file string, content []byte) {
		if filepath.Ext(file) == ".md" {
			pages[file] = parse(string(content))
		}
	})
	if _, ok := pages["README.md"]; !ok || len(pages) < 10 {
		t.Fatalf("pages are missing: %v", slices.Sorted(maps.Keys(pages)))
	}
	return pages
}

func TestLinks(t *testing.T) {
	pages := readPages(t)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, link := range pages[name].links {
			if problem := checkLink(pages, name, link.text); problem != "" {
				t.Errorf("%s:%d: link to %s: %s", name, link.line, link.text, problem)
			}
		}
	}
}

// generatedPages is the directory of the pages that `make docs-reference` generates.
const generatedPages = "docs/reference/"

func isGenerated(page string) bool {
	return strings.HasPrefix(page, generatedPages) || page == "docs/api-reference.md" || page == "dist/chart/README.md"
}

// checkLink returns the problem with a link, or "" if there is none. It does not check links to
// other sites.
func checkLink(pages map[string]page, from, target string) string {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	path, anchor, hasAnchor := strings.Cut(target, "#")
	to := from
	if path != "" {
		to = filepath.ToSlash(filepath.Join(filepath.Dir(from), path))
		if _, err := os.Stat(filepath.Join(root, to)); err != nil {
			return "the file does not exist"
		}
	}
	if !hasAnchor {
		return ""
	}
	page, ok := pages[to]
	if !ok {
		return "only Markdown files have headings"
	}
	if !page.anchors[anchor] {
		return "the heading does not exist"
	}
	return ""
}

func TestCheckLink(t *testing.T) {
	pages := map[string]page{
		"README.md":       {anchors: map[string]bool{"limits": true}},
		"docs/operate.md": {anchors: map[string]bool{"logs": true}},
	}
	for target, want := range map[string]string{
		"../README.md":            "",
		"../README.md#limits":     "",
		"../README.md#nowhere":    "the heading does not exist",
		"#logs":                   "",
		"#limits":                 "the heading does not exist",
		"nowhere.md":              "the file does not exist",
		"../Makefile":             "",
		"../Makefile#L1":          "only Markdown files have headings",
		"../config/admission":     "",
		"https://example.com/#no": "",
	} {
		if got := checkLink(pages, "docs/operate.md", target); got != want {
			t.Errorf("%s: got %q, want %q", target, got, want)
		}
	}
}

// repositoryPaths matches paths in the repository. The capturing group excludes the Go package
// wildcard.
var repositoryPaths = regexp.MustCompile(`^(?:\./)?((?:api|cmd|config|examples|hack|internal|pkg|test)(?:/\w[\w.-]*)+?)/?(?:/?\.\.\.)?$`)

// TestPaths checks that files and directories exist if code in the documentation mentions them.
func TestPaths(t *testing.T) {
	count := 0
	pages := readPages(t)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, code := range pages[name].code {
			found := repositoryPaths.FindStringSubmatch(code.text)
			if found == nil {
				continue
			}
			count++
			if _, err := os.Stat(filepath.Join(root, found[1])); err != nil {
				t.Errorf("%s:%d: %s does not exist", name, code.line, found[1])
			}
		}
	}
	if count < 30 {
		t.Errorf("found only %d paths in the documentation, so the search is broken", count)
	}
}

var (
	makeCommands = regexp.MustCompile(`(?:^|[\s(;&"])make((?: +[A-Za-z]\S*)+)`)
	makeTargets  = regexp.MustCompile(`(?m)^([a-z][a-z0-9 -]*):`)
	targetNames  = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
)

// TestMakeTargets checks that the targets of make commands in the documentation exist. It skips
// generated pages, because the help of kubectl's flags contains "make your connections insecure".
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, found := range makeTargets.FindAllStringSubmatch(string(makefile), -1) {
		for target := range strings.FieldsSeq(found[1]) {
			targets[target] = true
		}
	}
	for tool := range rowsIn(t, "hack/tools.txt") {
		targets[tool] = true
	}
	for suite := range rowsIn(t, "test/suites.txt") {
		targets["test-"+suite] = true
	}
	count := 0
	pages := readPages(t)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		if strings.HasPrefix(name, generatedPages) {
			continue
		}
		for _, code := range pages[name].code {
			for _, target := range targetsIn(code.text) {
				count++
				if !targets[target] {
					t.Errorf("%s:%d: make %s: the target does not exist", name, code.line, target)
				}
			}
		}
	}
	if count < 50 {
		t.Errorf("found only %d targets in the documentation, so the search is broken", count)
	}
}

// rowsIn returns the words in each line of a table, of which the first is a name.
func rowsIn(t *testing.T, table string) map[string][]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, table))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "#" {
			rows[fields[0]] = fields[1:]
		}
	}
	return rows
}

// TestSuites checks the list of suites: make would not run a suite with another name, nor the long specs of a suite that
// is not marked.
func TestSuites(t *testing.T) {
	suites := rowsIn(t, "test/suites.txt")
	files, err := filepath.Glob(filepath.Join(root, "test", "*", "suite_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		want = append(want, name)
		specs, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range specs {
			content, err := os.ReadFile(spec)
			if err != nil {
				t.Fatal(err)
			}
			isLong := strings.Contains(string(content), `Label("long")`)
			if isLong && !slices.Contains(suites[name], "long") && !slices.Contains(suites[name], "separate") {
				t.Errorf("test/suites.txt does not mark %s as long, but %s has a long spec", name, spec)
			}
		}
	}
	got := slices.Sorted(maps.Keys(suites))
	if !slices.Equal(got, want) {
		t.Errorf("test/suites.txt lists %v, but the suites are %v", got, want)
	}
}

// targetsIn returns the targets of a command, without variables.
func targetsIn(code string) []string {
	var targets []string
	for _, found := range makeCommands.FindAllStringSubmatch(code, -1) {
		for word := range strings.FieldsSeq(found[1]) {
			if word = strings.TrimRight(word, ",;)"); targetNames.MatchString(word) {
				targets = append(targets, word)
			} else if !strings.Contains(word, "=") {
				break
			}
		}
	}
	return targets
}

func TestTargetsIn(t *testing.T) {
	for code, want := range map[string][]string{
		"make test":                              {"test"},
		"make image-archive image-push IMG=x:v1": {"image-archive", "image-push"},
		"make run ARGS=--controllers=*":          {"run"},
		"$ make demo ONCE=1 && make test":        {"demo", "test"},
		"are make bench-... and more":            nil,
		"cmake test":                             nil,
	} {
		if got := targetsIn(code); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", code, got, want)
		}
	}
}

var (
	flagNames   = regexp.MustCompile(`^--([a-z][a-z0-9-]*)`)
	managerRuns = regexp.MustCompile(`(?:make run ARGS=|(?:^|[\s/])manager )(.*)`)
	flagsOf     = regexp.MustCompile(`--([a-z][a-z0-9-]*)`)
)

// managerFlags reads the flags from the source, because a main package cannot be imported.
func managerFlags(t *testing.T) map[string]bool {
	t.Helper()
	flags := map[string]bool{}
	for _, pattern := range []string{"cmd/*.go", "internal/manager/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			readFlags(t, file, flags)
		}
	}
	if len(flags) < 15 {
		t.Fatalf("flags of the manager are missing: %v", flags)
	}
	flags["kubeconfig"] = true // Package config of controller-runtime binds it.
	return flags
}

// readFlags adds the names in calls such as flags.StringVar(&value, "name", "", "help") and flags.Var(&value, "name", "help").
func readFlags(t *testing.T, path string, flags map[string]bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) < 3 || len(call.Args) > 4 {
			return true
		}
		method, isMethod := call.Fun.(*ast.SelectorExpr)
		name, isLiteral := call.Args[1].(*ast.BasicLit)
		if isMethod && isLiteral && strings.HasSuffix(method.Sel.Name, "Var") {
			value, err := strconv.Unquote(name.Value)
			if err != nil {
				t.Fatal(err)
			}
			flags[value] = true
		}
		return true
	})
}

// TestManagerFlags checks that the reference page lists exactly the flags of the manager.
func TestManagerFlags(t *testing.T) {
	const name = generatedPages + "flags.md"
	flags := managerFlags(t)
	page, ok := readPages(t)[name]
	if !ok {
		t.Fatalf("%s does not exist", name)
	}
	documented := map[string]bool{}
	for _, code := range page.code {
		found := flagNames.FindStringSubmatch(code.text)
		if found == nil {
			continue
		}
		documented[found[1]] = true
		if !flags[found[1]] {
			t.Errorf("%s:%d: the manager has no flag --%s", name, code.line, found[1])
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(flags)) {
		if !documented[flag] {
			t.Errorf("%s does not list --%s", name, flag)
		}
	}
}

// TestManagerCommands checks the flags of all commands that run the manager.
func TestManagerCommands(t *testing.T) {
	flags := managerFlags(t)
	count := 0
	pages := readPages(t)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, code := range pages[name].code {
			run := managerRuns.FindStringSubmatch(code.text)
			if run == nil {
				continue
			}
			for _, found := range flagsOf.FindAllStringSubmatch(run[1], -1) {
				count++
				if !flags[found[1]] && found[1] != "help" {
					t.Errorf("%s:%d: the manager has no flag --%s", name, code.line, found[1])
				}
			}
		}
	}
	if count < 5 {
		t.Errorf("found only %d flags in commands, so the search is broken", count)
	}
}

// TestExampleIsQuoted checks that the page contains the functions of the example unchanged.
func TestExampleIsQuoted(t *testing.T) {
	const page, file, first = "docs/write-an-initializer.md", "examples/limits/main.go", "func run("
	content, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	_, quoted, ok := strings.Cut(string(source), first)
	if !ok || !strings.Contains(string(content), "```go\n"+first+quoted+"```\n") {
		t.Errorf("%s does not quote %s, starting with %q", page, file, first)
	}
}

// TestParityNamesTests checks that the tests and their cases in docs/parity.md exist. Each code span
// in the tests column contains a function, a function and one of its cases, or another case of the
// preceding function.
func TestParityNamesTests(t *testing.T) {
	const name = "docs/parity.md"
	tests := readTests(t, "internal", "pkg")
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	number, count := 0, 0
	for line := range strings.Lines(string(content)) {
		number++
		cells := strings.Split(line, "|")
		if len(cells) != 7 {
			continue
		}
		function := ""
		for _, span := range spans.FindAllStringSubmatch(cells[4], -1) {
			count++
			testCase := span[2]
			if strings.HasPrefix(testCase, "Test") {
				function, testCase, _ = strings.Cut(testCase, "/")
				if !strings.Contains(tests, "func "+function+"(") {
					t.Errorf("%s:%d: the test function %s does not exist", name, number, function)
				}
			}
			// Package testing replaces spaces in case names with underscores. An ellipsis stands
			// for the rest of a name.
			testCase, _, isPrefix := strings.Cut(strings.ReplaceAll(testCase, "_", " "), "…")
			quoted := `"` + testCase
			if !isPrefix {
				quoted += `"`
			}
			if testCase != "" && !strings.Contains(tests, quoted) {
				t.Errorf("%s:%d: case %q of %s does not exist", name, number, testCase, function)
			}
		}
	}
	if count < 50 {
		t.Errorf("found only %d tests in %s, so the search is broken", count, name)
	}
}

// readTests returns the source of all tests in the given directories.
func readTests(t *testing.T, directories ...string) string {
	t.Helper()
	var source strings.Builder
	for _, directory := range directories {
		err := filepath.WalkDir(filepath.Join(root, directory), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			source.Write(content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return source.String()
}

// generatedTables matches the parts of pages in which tools write tables.
var generatedTables = regexp.MustCompile(`(?s)<!-- [a-z -]+: ?begin -->.*?<!-- [a-z -]+: ?end -->`)

// TestSize limits the size of the README and the number of words in README.md, SECURITY.md and docs that are not
// generated. The YAML in examples counts.
func TestSize(t *testing.T) {
	words := 0
	walkFiles(t, func(file string, content []byte) {
		if file == "README.md" {
			if lines := strings.Count(string(content), "\n"); lines > 110 {
				t.Errorf("README.md has %d lines, want no more than 110", lines)
			}
		} else if file != "SECURITY.md" && (filepath.Ext(file) != ".md" || !strings.HasPrefix(file, "docs/") || isGenerated(file)) {
			return
		}
		words += countWords(generatedTables.ReplaceAllStringFunc(string(content), func(part string) string {
			return tableRow.ReplaceAllString(part, "")
		}))
	})
	if words > 32000 {
		t.Errorf("README.md, SECURITY.md and docs have %d words, want no more than 32000", words)
	}
}

var tableRow = regexp.MustCompile(`(?m)^\|.*$`)

// countWords counts the words that contain a letter or a digit, so that it excludes the bars in
// tables.
func countWords(text string) int {
	count := 0
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '|' || unicode.IsSpace(r) }) {
		if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			count++
		}
	}
	return count
}
