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
)

const root = "../.."

// notOurs are directories that git does not look at either.
var notOurs = []string{".git", "bin", "dist/release"}

// readPages reads all Markdown of the project, by path from its root.
func readPages(t *testing.T) map[string]page {
	t.Helper()
	pages := map[string]page{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if slices.Contains(notOurs, name) {
			if !entry.IsDir() { // .git in a linked worktree
				return nil
			}
			return fs.SkipDir
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pages[name] = parse(string(content))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, found := pages["README.md"]; !found || len(pages) < 10 {
		t.Fatalf("these are not all pages: %v", slices.Sorted(maps.Keys(pages)))
	}
	return pages
}

func TestLinks(t *testing.T) {
	pages := readPages(t)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, link := range pages[name].links {
			if why := whyBroken(pages, name, link.text); why != "" {
				t.Errorf("%s:%d: link to %s: %s", name, link.line, link.text, why)
			}
		}
	}
}

// whyBroken says what is wrong with a link in a page. Other sites are not asked.
func whyBroken(pages map[string]page, from, target string) string {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	path, anchor, hasAnchor := strings.Cut(target, "#")
	to := from
	if path != "" {
		to = filepath.ToSlash(filepath.Join(filepath.Dir(from), path))
		if _, err := os.Stat(filepath.Join(root, to)); err != nil {
			return "there is no such file"
		}
	}
	if !hasAnchor {
		return ""
	}
	page, isPage := pages[to]
	if !isPage {
		return "only pages have headings"
	}
	if !page.anchors[anchor] {
		return "there is no such heading"
	}
	return ""
}

func TestWhyBroken(t *testing.T) {
	pages := map[string]page{
		"README.md":      {anchors: map[string]bool{"limits": true}},
		"docs/plugin.md": {anchors: map[string]bool{"list": true}},
	}
	for target, want := range map[string]string{
		"../README.md":            "",
		"../README.md#limits":     "",
		"../README.md#nowhere":    "there is no such heading",
		"#list":                   "",
		"#limits":                 "there is no such heading",
		"nowhere.md":              "there is no such file",
		"../Makefile":             "",
		"../Makefile#L1":          "only pages have headings",
		"../config/admission":     "",
		"https://example.com/#no": "",
	} {
		if got := whyBroken(pages, "docs/plugin.md", target); got != want {
			t.Errorf("%s: %q instead of %q", target, got, want)
		}
	}
}

var (
	makeCommands = regexp.MustCompile(`(?:^|[\s(;&"])make((?: +[A-Za-z]\S*)+)`)
	makeTargets  = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	targetNames  = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
)

// TestMakeTargets looks at every `make ...` in code.
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, found := range makeTargets.FindAllStringSubmatch(string(makefile), -1) {
		targets[found[1]] = true
	}
	count := 0
	pages := readPages(t)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, code := range pages[name].code {
			for _, target := range targetsIn(code.text) {
				count++
				if !targets[target] {
					t.Errorf("%s:%d: make %s: there is no such target", name, code.line, target)
				}
			}
		}
	}
	if count < 50 {
		t.Errorf("only %d targets were found in the documentation, so they were not looked for well", count)
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
		"make docker-build docker-push IMG=x:v1": {"docker-build", "docker-push"},
		"make run ARGS=--controllers=*":          {"run"},
		"$ make demo ONCE=1 && make test":        {"demo", "test"},
		"are make bench-... and more":            nil,
		"cmake test":                             nil,
	} {
		if got := targetsIn(code); !slices.Equal(got, want) {
			t.Errorf("%q: %v instead of %v", code, got, want)
		}
	}
}

// TestScript compares the initializer in shell, which is tested, with the page that shows it.
func TestScript(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, "examples/shell/initializer.sh"))
	if err != nil {
		t.Fatal(err)
	}
	shebang, rest, _ := strings.Cut(string(script), "\n")
	_, rest, hasLicence := strings.Cut(rest, "# SPDX-License-Identifier: Apache-2.0\n\n")
	if !hasLicence {
		t.Fatal("examples/shell/initializer.sh does not begin with the licence")
	}
	const page = "docs/writing-an-initializer.md"
	content, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), "```sh\n"+shebang+"\n"+rest+"```\n") {
		t.Errorf("%s does not show examples/shell/initializer.sh as it is", page)
	}
}

// foreignFlags are bound by libraries: controller-runtime's zap.Options and config.
var foreignFlags = []string{
	"kubeconfig", "zap-devel", "zap-encoder", "zap-log-level", "zap-stacktrace-level", "zap-time-encoding",
}

var (
	flagNames   = regexp.MustCompile("^`--([a-z][a-z0-9-]*)")
	managerRuns = regexp.MustCompile(`(?:make run ARGS=|(?:^|[\s/])manager )(.*)`)
	flagsOf     = regexp.MustCompile(`--([a-z][a-z0-9-]*)`)
)

// managerFlags reads them from the source: a main package cannot be imported.
func managerFlags(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "cmd/main.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		call, isCall := node.(*ast.CallExpr)
		if !isCall || len(call.Args) != 4 {
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
	if len(flags) < 15 {
		t.Fatalf("these are not all flags of the manager: %v", flags)
	}
	for _, name := range foreignFlags {
		flags[name] = true
	}
	return flags
}

// TestManagerFlags compares the manager with the table of its flags, both ways, and with the
// commands that run it.
func TestManagerFlags(t *testing.T) {
	flags := managerFlags(t)
	pages := readPages(t)
	documented := map[string]bool{}
	for _, row := range pages["docs/operations.md"].rows {
		if found := flagNames.FindStringSubmatch(row.text); found != nil {
			documented[found[1]] = true
			if !flags[found[1]] {
				t.Errorf("docs/operations.md:%d: the manager has no flag --%s", row.line, found[1])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if !documented[name] {
			t.Errorf("docs/operations.md does not list --%s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, code := range pages[name].code {
			run := managerRuns.FindStringSubmatch(code.text)
			if run == nil {
				continue
			}
			for _, found := range flagsOf.FindAllStringSubmatch(run[1], -1) {
				if !flags[found[1]] && found[1] != "help" {
					t.Errorf("%s:%d: the manager has no flag --%s", name, code.line, found[1])
				}
			}
		}
	}
}

// The example of pkg/initializer is quoted in full, without what every file begins with.
func TestTheExampleIsQuoted(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "docs/writing-an-initializer.md"))
	if err != nil {
		t.Fatal(err)
	}
	for file, from := range map[string]string{
		"examples/limits/main.go":      "package main",
		"examples/limits/main_test.go": "func TestLimits",
	} {
		source, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		_, quoted, found := strings.Cut(string(source), from)
		if !found || !strings.Contains(string(content), "```go\n"+from+quoted+"```\n") {
			t.Errorf("docs/writing-an-initializer.md does not quote %s as it is", file)
		}
	}
}
