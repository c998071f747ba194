// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// A fragment, also one in a fragment, is indented like the line in which it stands.
func TestRenderIndentsFragments(t *testing.T) {
	rendered, err := render("a.yaml.tpl", `{{define "inner"}}{{.x}}(
  y){{end -}}
{{define "outer"}}a ||
  {{include "inner" "x" .x}} ||
b{{end -}}
spec:
  expression: |-
    !({{include "outer" "x" "f"}})
`)
	if err != nil {
		t.Fatal(err)
	}
	want := "# Generated from a.yaml.tpl by `make manifests`. Do not edit.\n\n" + `spec:
  expression: |-
    !(a ||
      f(
        y) ||
    b)
`
	if string(rendered) != want {
		t.Errorf("got:\n%s\nwant:\n%s", rendered, want)
	}
	for _, invalid := range []string{`a: {{include "unknown"}}`, `{{define "f"}}{{.x}}{{end}}a: {{include "f" "y" "z"}}`, "a:\n b:\nc"} {
		if _, err := render("a.yaml.tpl", invalid); err == nil {
			t.Errorf("no error for %q", invalid)
		}
	}
}
