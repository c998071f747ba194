// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestInitializerPage runs the commands with which docs/write-an-initializer.md creates a module, and compiles its program,
// which contains the code on the page.
func TestInitializerPage(t *testing.T) {
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(checkout, "docs", "write-an-initializer.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile("(?s)```sh\n(go mod init.*?)```").FindSubmatch(page)
	code := regexp.MustCompile("(?s)```go\n(func run.*?)```").FindSubmatch(page)
	if commands == nil || code == nil {
		t.Fatal("the page lacks the commands or the code")
	}
	parent := t.TempDir()
	module := filepath.Join(parent, "limits")
	if err := os.Mkdir(module, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(checkout, filepath.Join(parent, "nslifecycle")); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "bash", "-exc", string(commands[1])+"go vet .")
	command.Dir = module
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	program, err := os.ReadFile(filepath.Join(module, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(program), string(code[1])) {
		t.Error("the program does not contain the code on the page")
	}
}
