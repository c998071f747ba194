// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// reasonRow matches the first cell of a row of a table, and reason a reason in it.
var (
	reasonRow = regexp.MustCompile("(?m)^\\| (`[A-Z][A-Za-z]+`[^|]*) \\|")
	reason    = regexp.MustCompile("`([A-Z][A-Za-z]+)`")
)

// TestReasons checks that names.go, from which docs/reference/conditions.md is generated, contains all reasons of
// templates.
func TestReasons(t *testing.T) {
	names := reasonsIn(t, filepath.Join(root, "api", "v1alpha1", "names.go"))
	if len(names) < 60 {
		t.Fatalf("reasons are missing: %v", names)
	}
	err := filepath.WalkDir(filepath.Join(root, "internal", "template"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			for value := range reasonsIn(t, path) {
				t.Errorf("%s: reason %q must be in api/v1alpha1/names.go", path, value)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "docs", "templates.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "\n## Status\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, section, _ = strings.Cut(section, "\n| Reason ")
	rows := reasonRow.FindAllStringSubmatch(section, -1)
	if len(rows) < 5 {
		t.Fatalf("docs/templates.md describes no reasons: %s", section)
	}
	for _, row := range rows {
		for _, match := range reason.FindAllStringSubmatch(row[1], -1) {
			if !names[match[1]] {
				t.Errorf("docs/templates.md describes reason %q, which api/v1alpha1/names.go does not contain", match[1])
			}
		}
	}
}

// reasonsIn returns the values of the constants in a file whose names start with Reason and that have a description.
func reasonsIn(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") || len(spec.Values) == 0 {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		if spec.Doc == nil {
			t.Errorf("%s: reason %q has no description", path, value)
		}
		values[value] = true
		return true
	})
	return values
}
