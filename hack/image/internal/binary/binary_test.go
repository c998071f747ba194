// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package binary

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The test uses the program of this module, but any other program would also be suitable.
func TestBillOfMaterialsContainsEachModule(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	build := Build{Root: "../..", Package: ".", OS: runtime.GOOS, Arch: runtime.GOARCH, Version: "v1", Output: path}
	if err := build.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	document, err := Describe(path, "v1", time.Unix(1700000000, 0).UTC())
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		SpecVersion string
		Components  []struct{ Name, Version, Purl string }
	}
	if err := json.Unmarshal(document, &bom); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, component := range bom.Components {
		versions[component.Name] = component.Version
		if want := "pkg:golang/" + component.Name + "@" + component.Version; component.Purl != want {
			t.Errorf("the package URL of %s is %q", component.Name, component.Purl)
		}
	}
	for _, name := range []string{"std", "github.com/google/go-containerregistry", "github.com/CycloneDX/cyclonedx-go"} {
		if versions[name] == "" {
			t.Errorf("%s has no version in %v", name, versions)
		}
	}
	if bom.SpecVersion != "1.5" {
		t.Errorf("the CycloneDX version is %s", bom.SpecVersion)
	}
}

// The linker flags contain the path of the version package as a string, so only this test detects
// that the package was renamed.
func TestBinaryPrintsItsVersion(t *testing.T) {
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	// The files that a program of the main module requires to print its version.
	scratch := filepath.Join(t.TempDir(), "module")
	for file, content := range map[string]string{
		"go.mod":  "module github.com/nslifecycle/nslifecycle\n\ngo 1.26.0\n",
		"main.go": "package main\n\nimport \"github.com/nslifecycle/nslifecycle/internal/version\"\n\nfunc main() { i := version.Read(); print(i.Version, \" \", i.Revision) }\n",
	} {
		err = errors.Join(os.MkdirAll(scratch, 0o755), os.WriteFile(filepath.Join(scratch, file), []byte(content), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(scratch, "internal/version"), os.DirFS(filepath.Join(root, "internal/version"))); err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(t.TempDir(), "program")
	build := Build{
		Root: scratch, Package: ".", OS: runtime.GOOS, Arch: runtime.GOARCH,
		Version: "v1.2.3", Revision: "abc", Output: output,
	}
	if err := build.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	printed, err := exec.CommandContext(t.Context(), output).CombinedOutput()
	if err != nil || strings.TrimSpace(string(printed)) != "v1.2.3 abc" {
		t.Errorf("the program printed %q, error %v", printed, err)
	}
}
