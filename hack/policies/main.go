// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command policies renders each template config/*/NAME.yaml.tpl, with the fragments in config/fragments.tpl, to
// NAME.yaml beside it. It also renders the Go files with CEL expressions.
//
//	go run ./hack/policies .
//
// The templates have one function, include, which renders a fragment with named arguments, and the values of the rules
// that are also evaluated in Go.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/format"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/parts"
)

// The headers of manifests and of Go files.
const (
	header   = "# Generated from %s by `make manifests`. Do not edit.\n\n%s"
	goHeader = "// Code generated from %s by make manifests. DO NOT EDIT.\n\n%s"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: policies DIRECTORY")
	}
	fragments, err := os.ReadFile(filepath.Join(args[0], "config", "fragments.tpl"))
	if err != nil {
		return fmt.Errorf("failed to read the fragments: %w", err)
	}
	sources, err := filepath.Glob(filepath.Join(args[0], "config", "*", "*.yaml.tpl"))
	if err != nil {
		return fmt.Errorf("failed to find the templates: %w", err)
	}
	sources = append(sources, filepath.Join(args[0], "internal", "admission", "inject", "conditions.go.tpl"))
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			return fmt.Errorf("failed to read a template: %w", err)
		}
		rendered, err := render(filepath.Base(source), string(fragments), string(text))
		if err != nil {
			return fmt.Errorf("failed to render %s: %w", source, err)
		}
		if err := os.WriteFile(strings.TrimSuffix(source, ".tpl"), rendered, 0o644); err != nil {
			return fmt.Errorf("failed to write a rendered file: %w", err)
		}
	}
	return nil
}

// values are the rules that are also evaluated in Go, as parts of CEL literals.
var values = map[string]string{
	"failurePattern":           strings.ReplaceAll(initialization.FailurePattern, `\`, `\\`),
	"fieldManager":             "'" + nsobject.FieldOwner + "'",
	"lockedAnnotationsPattern": initialization.LockedAnnotationsPattern,
	"lockedLabelsPattern":      initialization.LockedLabelsPattern,
	"originAnnotations":        quote(initialization.OriginAnnotations),
	"parts":                    strings.Join(parts.Accounts(), "|"),
	"progressAnnotations":      quote(initialization.ProgressAnnotations),
	"recordAnnotations":        quote(initialization.RecordAnnotations),
	"requiredNamespaces":       quote(initialization.RequiredNamespaces),
	"settableLabels":           quote(initialization.SettableLabels),
}

// quote returns the elements of a list in CEL.
func quote(elements []string) string {
	return "'" + strings.Join(elements, "', '") + "'"
}

// render returns a manifest or a Go file. A wrong indentation of a manifest is an error.
func render(name string, texts ...string) ([]byte, error) {
	templates := template.New(name).Option("missingkey=error")
	templates.Funcs(template.FuncMap{"include": func(fragment string, arguments ...string) (string, error) {
		return include(templates, fragment, arguments)
	}})
	for _, text := range texts {
		if _, err := templates.Parse(text); err != nil {
			return nil, err
		}
	}
	var out strings.Builder
	if err := templates.Execute(&out, values); err != nil {
		return nil, err
	}
	if strings.HasSuffix(name, ".go.tpl") {
		return format.Source(fmt.Appendf(nil, goHeader, name, align(out.String())))
	}
	manifest := fmt.Appendf(nil, header, name, align(out.String()))
	for _, document := range bytes.Split(manifest, []byte("\n---\n")) {
		if err := yaml.UnmarshalStrict(document, &map[string]any{}); err != nil {
			return nil, err
		}
	}
	return manifest, nil
}

// mark is the start of a line that gets the indentation of the line in which its fragment starts.
const mark = "\x00"

// include renders a fragment. The arguments are names, each followed by a value.
func include(templates *template.Template, fragment string, arguments []string) (string, error) {
	named := maps.Clone(values)
	for i := 0; i+1 < len(arguments); i += 2 {
		named[arguments[i]] = arguments[i+1]
	}
	var out strings.Builder
	if err := templates.ExecuteTemplate(&out, fragment, named); err != nil {
		return "", err
	}
	return strings.ReplaceAll(align(out.String()), "\n", "\n"+mark), nil
}

// align replaces the marks.
func align(text string) string {
	lines, indentation := strings.Split(text, "\n"), ""
	for i, line := range lines {
		if rest, ok := strings.CutPrefix(line, mark); ok {
			lines[i] = indentation + rest
		} else {
			indentation = line[:len(line)-len(strings.TrimLeft(line, " "))]
		}
	}
	return strings.Join(lines, "\n")
}
