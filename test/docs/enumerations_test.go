// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	enumMarker = regexp.MustCompile(`\+kubebuilder:validation:Enum=(\S+)`)
	// valueRow matches a value and its description.
	valueRow = regexp.MustCompile("(?m)^\\| `([^`]*)` \\| (\\S.*) \\|$")
	// rawMarker matches a row whose last cell contains the name of a marker.
	rawMarker = regexp.MustCompile(`(?m)^\|.*\| [^|]*\b[A-Z]\w*: [^|]*\|$`)
	// emptyTable matches a table without rows.
	emptyTable = regexp.MustCompile(`(?m)^\| ---.*\n(\n|\z)`)
)

// TestReferenceTables checks that the templates of the API reference render all markers and no empty table.
func TestReferenceTables(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "docs", "api-reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []*regexp.Regexp{rawMarker, emptyTable} {
		for _, found := range pattern.FindAllString(string(content), -1) {
			t.Errorf("docs/api-reference.md contains %q", found)
		}
	}
}

// TestEnumerations checks that the API reference describes each value of each type that is an enumeration.
func TestEnumerations(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "docs", "api-reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	enumerations := readEnumerations(t)
	if len(enumerations) < 5 {
		t.Fatalf("enumerations are missing: %v", enumerations)
	}
	for name, want := range enumerations {
		_, section, _ := strings.Cut(string(content), "\n## "+name+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		var described []string
		for _, row := range valueRow.FindAllStringSubmatch(section, -1) {
			described = append(described, row[1])
		}
		if slices.Sort(described); !slices.Equal(described, want) {
			t.Errorf("docs/api-reference.md describes the values %q of %s, want %q", described, name, want)
		}
	}
}

// readEnumerations returns the sorted values of the enumerations in the API, by type.
func readEnumerations(t *testing.T) map[string][]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "api", "v1alpha1", "*_types.go"))
	if err != nil {
		t.Fatal(err)
	}
	enumerations := map[string][]string{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			declared, ok := declaration.(*ast.GenDecl)
			if !ok || declared.Tok != token.TYPE || declared.Doc == nil {
				continue
			}
			for _, comment := range declared.Doc.List {
				if marker := enumMarker.FindStringSubmatch(comment.Text); marker != nil {
					values := strings.Split(marker[1], ";")
					slices.Sort(values)
					enumerations[declared.Specs[0].(*ast.TypeSpec).Name.Name] = values
				}
			}
		}
	}
	return enumerations
}
