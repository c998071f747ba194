// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"strings"

	"golang.org/x/tools/go/packages"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/rules"
	"github.com/nslifecycle/nslifecycle/internal/finalization"
)

const module = "github.com/nslifecycle/nslifecycle"

type namedConstant struct{ value, description string }

// constantGroup is a const declaration.
type constantGroup struct {
	description string
	constants   []namedConstant
}

// renderConditions renders the condition types and reasons in names.go and in package finalization,
// and the table of causes.
func renderConditions(api *packages.Package) (string, error) {
	terms := collectTerms(api)
	conditions, reasons := collectConstants(api, "Condition", terms), collectConstants(api, "Reason", terms)
	if len(conditions) == 0 || len(reasons) == 0 {
		return "", errors.New("no conditions or reasons found")
	}
	var out strings.Builder
	out.WriteString("# Conditions\n\n")
	writeGroups(&out, "Condition types", "Type", conditions)
	writeDeletionConditions(&out)
	writeGroups(&out, "Reasons", "Reason", reasons)
	writeGroups(&out, "Causes", "Cause", []constantGroup{
		collectCauses("Causes that block a terminating namespace.", v1alpha1.ConditionDeletionBlocked),
		collectCauses("Causes that block an initializing namespace.", v1alpha1.ConditionInitializationBlocked),
	})
	return strings.TrimRight(out.String(), "\n") + "\n", nil
}

// collectCauses returns the causes that are reasons of a condition.
func collectCauses(description string, condition corev1.NamespaceConditionType) constantGroup {
	group := constantGroup{description: description}
	for _, entry := range rules.Causes() {
		if entry.Blocks() == condition {
			group.constants = append(group.constants, namedConstant{string(entry.Cause), entry.Description})
		}
	}
	return group
}

// writeDeletionConditions writes the conditions that kube-controller-manager also sets.
func writeDeletionConditions(out *strings.Builder) {
	fmt.Fprintf(out, "Condition types of a terminating Namespace. Types and reasons are those of "+
		"kube-controller-manager, except %s (no request failed, but not all objects are deleted yet) and %s (some types "+
		"could not be discovered or listed, and no other objects remain).\n\n",
		code(finalization.ReasonContentDeletionOrdered), code(finalization.ReasonContentUnknown))
	out.WriteString("| Type | Reason if True | Reason if False | Reason if Unknown |\n| --- | --- | --- | --- |\n")
	const unknown = finalization.ReasonContentUnknown
	for _, one := range []struct {
		name               corev1.NamespaceConditionType
		isTrue             string
		isFalse, isUnknown []string
	}{
		{corev1.NamespaceDeletionDiscoveryFailure, finalization.ReasonDiscoveryFailed,
			[]string{finalization.ReasonResourcesDiscovered}, nil},
		{corev1.NamespaceDeletionGVParsingFailure, finalization.ReasonGroupVersionParsingFailed,
			[]string{finalization.ReasonParsedGroupVersions}, nil},
		{corev1.NamespaceDeletionContentFailure, finalization.ReasonContentDeletionFailed,
			[]string{finalization.ReasonContentDeleted, finalization.ReasonContentDeletionOrdered}, []string{unknown}},
		{corev1.NamespaceContentRemaining, finalization.ReasonSomeResourcesRemain,
			[]string{finalization.ReasonContentRemoved}, []string{unknown}},
		{corev1.NamespaceFinalizersRemaining, finalization.ReasonSomeFinalizersRemain,
			[]string{finalization.ReasonContentHasNoFinalizers}, []string{unknown}},
	} {
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n",
			code(string(one.name)), code(one.isTrue), codes(one.isFalse), codes(one.isUnknown))
	}
	out.WriteString("\n")
}

func writeGroups(out *strings.Builder, heading, column string, groups []constantGroup) {
	fmt.Fprintf(out, "## %s\n\n", heading)
	for _, group := range groups {
		fmt.Fprintf(out, "%s\n\n| %s | Description |\n| --- | --- |\n", group.description, column)
		for _, one := range group.constants {
			fmt.Fprintf(out, "| %s | %s |\n", code(one.value), cell(one.description))
		}
		out.WriteString("\n")
	}
}

// terms lists the name prefixes of the API's constants, with the terms for these constants.
var terms = []struct{ prefix, term string }{
	{"Condition", ""}, {"Reason", "reason "}, {"Label", "the label "}, {"Annotation", "the annotation "},
	{"Verb", "the verb "},
}

// collectTerms maps the Go names of a package's constants to the terms that the page uses.
func collectTerms(source *packages.Package) map[string]string {
	result := map[string]string{}
	scope := source.Types.Scope()
	for _, name := range scope.Names() {
		value, ok := scope.Lookup(name).(*types.Const)
		if !ok || value.Val().Kind() != constant.String {
			continue
		}
		for _, one := range terms {
			if strings.HasPrefix(name, one.prefix) {
				result[name] = one.term + code(constant.StringVal(value.Val()))
			}
		}
	}
	return result
}

// collectConstants returns the string constants of a package that have a doc comment and a name
// with the prefix, grouped by declaration.
func collectConstants(source *packages.Package, prefix string, terms map[string]string) []constantGroup {
	var groups []constantGroup
	for _, syntax := range source.Syntax {
		for _, one := range syntax.Decls {
			declaration, ok := one.(*ast.GenDecl)
			if !ok || declaration.Tok != token.CONST {
				continue
			}
			if group := newConstantGroup(source.TypesInfo, declaration, prefix, terms); len(group.constants) > 0 {
				groups = append(groups, group)
			}
		}
	}
	return groups
}

func newConstantGroup(info *types.Info, decl *ast.GenDecl, prefix string, terms map[string]string) constantGroup {
	group := constantGroup{description: replaceTerms(decl.Doc.Text(), terms)}
	for _, one := range decl.Specs {
		spec := one.(*ast.ValueSpec)
		name := spec.Names[0].Name
		if !strings.HasPrefix(name, prefix) || !ast.IsExported(name) || len(spec.Values) == 0 || spec.Doc == nil {
			continue
		}
		value, ok := stringValue(info, spec.Values[0])
		if !ok {
			continue
		}
		if strings.HasSuffix(name, "Suffix") {
			value = "<initializer>" + value
		}
		description := replaceTerms(describe(name, spec.Doc.Text()), terms)
		group.constants = append(group.constants, namedConstant{value: value, description: description})
	}
	return group
}

// leadingSuffix matches the sentence in a doc comment that states that a constant is a suffix.
var leadingSuffix = regexp.MustCompile(`^is the suffix of [^.]*\. `)

// describe converts the doc comment of a constant to a description without its name.
func describe(name, comment string) string {
	text := strings.TrimSpace(strings.TrimPrefix(strings.Join(strings.Fields(comment), " "), name))
	text = leadingSuffix.ReplaceAllString(text, "")
	for _, leading := range []string{": ", "means that ", "means ", "The condition is ", "is "} {
		if rest, ok := strings.CutPrefix(text, leading); ok {
			text = rest
			break
		}
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// identifiers matches words that might be the name of a constant.
var identifiers = regexp.MustCompile(`\b[A-Z]\w+`)

// replaceTerms replaces the names of constants in a doc comment with their terms.
func replaceTerms(text string, terms map[string]string) string {
	return identifiers.ReplaceAllStringFunc(strings.Join(strings.Fields(text), " "), func(name string) string {
		if term, ok := terms[name]; ok {
			return term
		}
		return name
	})
}
