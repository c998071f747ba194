// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// interpreted contains words that sh, dash, bash, zsh, fish or PowerShell interprets.
var interpreted = []string{
	"", "a b", "it's", `a"b`, `a\b`, "x; touch HIT #", `x\'; touch HIT #`, "$(touch HIT)", "`touch HIT`",
	"$'\\r\\'; touch HIT #'", "a\ntouch HIT", "a\rtouch HIT", "a\x00b", "\x1b]0;x\x07", "\u009b2J", "a\u202eb", "a\u00a0b",
	"größe", "a|touch HIT", "a&touch HIT&", ">HIT", "<(touch HIT)", "(touch HIT)", "{a,b}", "a*", "a?", "[a]", "~", "~root",
	"a~", "=ls", "--all", "-n", "+x", ":x", ",a", "@args", "!!", "a!b", "^a^b", "#x", "a#b", "%1", "100%", "$HOME", "a;b", "a^b",
}

var plain = []string{
	"orders", "system:serviceaccount:a:b", "rolebindings.rbac.authorization.k8s.io", "alice@corp.example.com", "a/b",
	"CN=a,O=b", "a.b.c,d.e.f", "kube_system", "./backup.yaml", "/tmp/a", "1.2+3", "a-b",
}

func TestCommand(t *testing.T) {
	for _, name := range plain {
		if got, want := Command("kubectl get a %s --to=%s", name, name), "kubectl get a "+name+" --to="+name; got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
	for _, name := range interpreted {
		if got := Command("kubectl get a %s --to=b", name); IsCommand(got) || strings.Contains(got, Program+"get") {
			t.Errorf("%q: got command %s", name, got)
		}
	}
	got := Command("kubectl delete %s %s --namespace=%s", "rolebindings", `x\'; touch PWN #`, "a")
	want := `Run kubectl with the arguments delete rolebindings "x\\'; touch PWN #" --namespace=a; ` +
		"one of the names cannot be safely pasted into a shell"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestThen(t *testing.T) {
	flags := []Flag{{"context", "a"}}
	for name, test := range map[string]struct{ second, want string }{
		"two commands":     {second: "b", want: "kubectl --context=a get a && kubectl --context=a get b"},
		"an unsafe second": {second: "b;", want: "kubectl --context=a get a"},
	} {
		if got := WithFlags(Then(Command("kubectl get a"), Command("kubectl get %s", test.second)), flags); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

// FuzzCommand verifies that a shell passes all words of a command to kubectl unchanged.
func FuzzCommand(f *testing.F) {
	for _, name := range append(interpreted, plain...) {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		text := Command("kubectl get %s", name)
		if strings.ContainsFunc(text, unicode.IsControl) {
			t.Errorf("%q: control characters in %q", name, text)
		}
		if IsCommand(text) && (text != "kubectl get "+name || strings.ContainsAny(name, " \t\"'`\\$;&|<>(){}[]*?~!^#%")) {
			t.Errorf("%q: got command %s", name, text)
		}
	})
}

// TestShells runs the commands that Command returns in all installed shells.
func TestShells(t *testing.T) {
	names := append(append([]string{}, plain...), interpreted...)
	for _, shell := range []string{"sh", "dash", "bash", "zsh", "fish"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		t.Run(shell, func(t *testing.T) {
			for _, name := range names {
				if text := Command("kubectl delete a %s --to=%s", name, name); IsCommand(text) {
					expectArguments(t, path, text, []string{"delete", "a", name, "--to=" + name})
				}
			}
		})
	}
}

// expectArguments runs a command in a shell with a fake kubectl, and verifies the arguments that
// the fake records.
func expectArguments(t *testing.T, shell, command string, want []string) {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\nprintf '%s\\n' \"$@\" >> \"$NOTES\"\n"
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	notes := filepath.Join(t.TempDir(), "arguments")
	process := exec.Command(shell, "-c", command)
	process.Dir = t.TempDir()
	process.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "NOTES="+notes,
		"HOME="+process.Dir)
	if output, err := process.CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("%s: %v: %s", command, err, output)
	}
	got, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != strings.Join(want, "\n")+"\n" {
		t.Errorf("%s: kubectl got the arguments %q, want %q", command, got, want)
	}
	if _, err := os.Stat(filepath.Join(process.Dir, "HIT")); err == nil {
		t.Errorf("%s ran another command", command)
	}
}
