// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
)

// dryRunFunctions are the functions that send dry runs without asking package dryrun, and the types for which they send
// them. All these types are fixed, and kube-apiserver serves them.
var dryRunFunctions = map[string]string{
	"internal/diagnosis/collect/dry_runs.go dryRunNamespaceWrite": "Namespaces",
	"internal/installcheck/administrator.go checkWebhooks":        "NamespaceTemplates",
	"internal/plugin/arguments.go requestOption":                  "Namespaces and NamespaceTemplates",
	"internal/plugin/forcefinalize/apply.go dryRun":               "Namespaces",
	"internal/admission/verify/dry_runs.go dryRun":                "Namespaces",
}

// TestDryRuns checks that only package dryrun permits dry runs of objects of any type: an aggregated API server can
// ignore the option and perform the request.
func TestDryRuns(t *testing.T) {
	used := sets.New[string]()
	walkFiles(t, func(file string, content []byte) {
		directory, _, _ := strings.Cut(file, "/")
		if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || path.Dir(file) == "internal/dryrun" ||
			!slices.Contains([]string{"api", "cmd", "config", "examples", "internal", "pkg"}, directory) {
			return
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, content, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			if !sendsDryRun(declaration) {
				continue
			}
			name := "(no function)"
			if function, ok := declaration.(*ast.FuncDecl); ok {
				name = function.Name.Name
			}
			if used.Insert(file + " " + name); dryRunFunctions[file+" "+name] == "" {
				t.Errorf("%s: %s sends a dry run; get the option from dryrun.Guard", file, name)
			}
		}
	})
	for function := range dryRunFunctions {
		if !used.Has(function) {
			t.Errorf("%s sends no dry run", function)
		}
	}
}

// sendsDryRun reports whether a declaration contains the value of the option, as a constant or in a URL.
func sendsDryRun(declaration ast.Decl) bool {
	found := false
	ast.Inspect(declaration, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.Ident:
			found = found || node.Name == "DryRunAll"
		case *ast.BasicLit:
			found = found || strings.Contains(node.Value, "dryRun=")
		}
		return true
	})
	return found
}
