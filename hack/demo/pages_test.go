// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nslifecycle/nslifecycle/internal/plugin"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// codeBlocks matches the commands of a page.
var codeBlocks = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// prelude makes a failure of a background command, for which a page waits, a failure of the script.
const prelude = `set -ex -o pipefail; wait() { builtin wait "$!"; }
`

// runPages runs the commands of the pages for beginners after the tour, and expects that they delete all that they have
// created, and nothing else.
func runPages(t *testing.T, d *demo) {
	t.Helper()
	inventory := func() []string {
		output, err := d.run(t.Context(), d.admin, "get", "--output=name",
			"namespaces,namespaceinitializerconfigurations,clusterroles,clusterrolebindings")
		if err != nil {
			t.Fatal(err)
		}
		return namesIn(output)
	}
	before := inventory()
	for _, page := range []struct{ file, start, end string }{
		{file: "README.md", start: "\n## Example\n", end: "\n## Limits\n"},
		{file: "docs/tutorial.md"},
	} {
		script := commandsOf(t, page.file, page.start, page.end)
		if output, err := runScript(t.Context(), d, script); err != nil {
			t.Errorf("The commands of %s fail after the tour: %v\n%s", page.file, err, output)
		}
	}
	// The operator deletes the namespace whose initialization failed.
	if _, err := d.run(t.Context(), d.admin, "wait", "--for=delete", "--timeout=60s", "namespace/doomed"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, inventory()); diff != "" {
		t.Errorf("The commands of the pages change the demo (-before +after):\n%s", diff)
	}
}

// runCheck expects that the plugin's check of the installation passes.
func runCheck(t *testing.T, d *demo) {
	t.Helper()
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	command := plugin.New(streams)
	command.SetArgs([]string{"check", "--kubeconfig=" + d.admin.kubeconfig})
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Errorf("The check fails: %v\n%s%s", err, stdout, stderr)
	}
}

// commandsOf returns the commands of a page between two texts.
func commandsOf(t *testing.T, file, start, end string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(controlplane.Root(), file))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(content), start)
	if end != "" {
		text, _, _ = strings.Cut(text, end)
	}
	blocks := codeBlocks.FindAllStringSubmatch(text, -1)
	if !ok || len(blocks) < 2 {
		t.Fatalf("%s contains %d blocks of commands after %q", file, len(blocks), start)
	}
	var script strings.Builder
	for _, block := range blocks {
		script.WriteString(block[1])
	}
	return script.String()
}

func runScript(ctx context.Context, d *demo, script string) (string, error) {
	command := exec.CommandContext(ctx, "bash", "-c", prelude+script)
	command.Env = append(os.Environ(), "KUBECONFIG="+d.admin.kubeconfig,
		"PATH="+filepath.Dir(d.controlPlane.KubectlPath())+string(os.PathListSeparator)+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	return string(output), err
}

// TestNames checks that the namespaces of the demo have names that no page uses.
func TestNames(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(controlplane.Root(), "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, page := range append(pages, filepath.Join(controlplane.Root(), "README.md")) {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{namespaceName, deletedName, appliedName, searchName, nextName} {
			if regexp.MustCompile(`\b` + name + `\b`).Match(content) {
				t.Errorf("%s contains the name %s of a namespace of the demo", page, name)
			}
		}
	}
}
