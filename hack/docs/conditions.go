// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/nslifecycle/nslifecycle"

// namedConstant is a constant of the API.
type namedConstant struct{ value, description string }

// constantGroup is a const declaration.
type constantGroup struct {
	description string
	constants   []namedConstant
}

// renderConditions renders the condition types and reasons of names.go and the causes of package
// diagnosis.
func renderConditions(source []*packages.Package) (string, error) {
	var conditions, reasons, causes []constantGroup
	for _, one := range source {
		switch {
		case one.PkgPath == module+"/api/v1alpha1":
			conditions = collectConstants(one, "names.go", "Condition")
			reasons = collectConstants(one, "names.go", "Reason")
		case one.PkgPath == module+"/internal/diagnosis":
			causes = collectConstants(one, "", "Cause")
		}
	}
	if len(conditions) == 0 || len(reasons) == 0 || len(causes) == 0 {
		return "", errors.New("no conditions, reasons or causes found")
	}
	var out strings.Builder
	out.WriteString("# Conditions\n\n")
	writeGroups(&out, "Condition types", "type", conditions)
	writeGroups(&out, "Reasons", "reason", reasons)
	writeGroups(&out, "Causes", "cause", causes)
	return strings.TrimRight(out.String(), "\n") + "\n", nil
}

func writeGroups(out *strings.Builder, heading, column string, groups []constantGroup) {
	fmt.Fprintf(out, "## %s\n\n", heading)
	for _, group := range groups {
		if group.description != "" {
			out.WriteString(group.description + "\n\n")
		}
		fmt.Fprintf(out, "| %s | description |\n| --- | --- |\n", column)
		for _, one := range group.constants {
			fmt.Fprintf(out, "| %s | %s |\n", code(one.value), cell(one.description))
		}
		out.WriteString("\n")
	}
}

// collectConstants returns the string constants of a package whose name has a prefix, by declaration.
// If file is not empty it returns only those of this file.
func collectConstants(source *packages.Package, file, prefix string) []constantGroup {
	var groups []constantGroup
	for _, syntax := range source.Syntax {
		if file != "" && filepath.Base(source.Fset.Position(syntax.Pos()).Filename) != file {
			continue
		}
		for _, one := range syntax.Decls {
			declaration, ok := one.(*ast.GenDecl)
			if !ok || declaration.Tok != token.CONST {
				continue
			}
			if group := newConstantGroup(source.TypesInfo, declaration, prefix); len(group.constants) > 0 {
				groups = append(groups, group)
			}
		}
	}
	return groups
}

func newConstantGroup(info *types.Info, declaration *ast.GenDecl, prefix string) constantGroup {
	group := constantGroup{}
	if declaration.Lparen.IsValid() {
		group.description = strings.Join(strings.Fields(declaration.Doc.Text()), " ")
	}
	for _, one := range declaration.Specs {
		spec := one.(*ast.ValueSpec)
		name := spec.Names[0]
		if !strings.HasPrefix(name.Name, prefix) || !name.IsExported() || len(spec.Values) == 0 {
			continue
		}
		value, ok := stringValue(info, spec.Values[0])
		if !ok {
			continue
		}
		comment := spec.Doc.Text()
		if comment == "" && !declaration.Lparen.IsValid() {
			comment = declaration.Doc.Text()
		}
		group.constants = append(group.constants, namedConstant{value: value, description: describe(name.Name, value, comment)})
	}
	return group
}

// describe converts a Go doc comment to a sentence about the value of a constant.
func describe(name, value, comment string) string {
	comment = strings.Join(strings.Fields(comment), " ")
	leading := regexp.MustCompile(`^` + name + `(:| means:?)(?: that)? `)
	if matched := leading.FindString(comment); matched != "" {
		comment = strings.TrimPrefix(comment, matched)
		return strings.ToUpper(comment[:1]) + comment[1:]
	}
	return strings.ReplaceAll(comment, name, "`"+value+"`")
}
