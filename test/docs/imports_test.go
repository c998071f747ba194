// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/nslifecycle/nslifecycle/"

// layers contains the packages of each layer, with all packages below them. Packages import only those of lower layers,
// and shared packages also each other. The examples import the same as other projects.
var layers = []string{
	"api config",
	"internal/api",
	sharedPackages,
	// Domain packages.
	"internal/admission/policies internal/admission/webhooks internal/contentrole internal/finalization internal/templateset",
	"internal/initialization",
	"internal/diagnosis internal/hold internal/template pkg",
	"internal/admission/inject internal/admission/verify",
	"internal/admission/install",
	// Controllers and the plugin.
	"internal/metrics",
	"internal/diagnoser internal/graceperiod internal/initializerhealth",
	"internal/controller internal/installcheck",
	"internal/plugin",
	"internal/manager",
	"cmd examples",
}

const sharedPackages = "internal/denial internal/dryrun internal/knownwriters internal/limitedhttp internal/metadataclient " +
	"internal/nscache internal/nsobject internal/parts internal/printable internal/resourcetypes internal/scheme " +
	"internal/servertime internal/shell internal/version"

// place is the layer of a package, and the entry of layers that contains it.
type place struct {
	layer int
	entry string
}

func placeOf(directory string) place {
	for i, layer := range layers {
		for entry := range strings.FieldsSeq(layer) {
			if directory == entry || strings.HasPrefix(directory, entry+"/") {
				return place{i, entry}
			}
		}
	}
	return place{len(layers), ""}
}

func (p place) mayImport(other place) bool {
	if p.entry == "examples" {
		return slices.Contains([]string{"api", "pkg", "examples"}, other.entry)
	}
	return p.entry == other.entry || other.layer < p.layer || other.layer == p.layer && layers[p.layer] == sharedPackages
}

// TestImports checks all packages except tests and the tools in hack.
func TestImports(t *testing.T) {
	used := map[string]bool{}
	walkFiles(t, func(file string, content []byte) {
		directory, _, _ := strings.Cut(file, "/")
		if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.HasSuffix(path.Dir(file), "test") ||
			!slices.Contains([]string{"api", "cmd", "config", "examples", "internal", "pkg"}, directory) {
			return
		}
		from := placeOf(path.Dir(file))
		if used[from.entry] = true; from.entry == "" {
			t.Errorf("layers does not contain the package of %s", file)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, content, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if imported, isOwn := strings.CutPrefix(imported, module); isOwn && !from.mayImport(placeOf(imported)) {
				t.Errorf("%s imports %s, which is not in a lower layer", file, imported)
			}
		}
	})
	for entry := range strings.FieldsSeq(strings.Join(layers, " ")) {
		if !used[entry] {
			t.Errorf("there is no package in %s", entry)
		}
	}
}
