// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package files

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

// makeTree returns a directory with one file of each kind, and a file outside of it.
func makeTree(t *testing.T) (directory, outside string) {
	t.Helper()
	g := NewWithT(t)
	parent := t.TempDir()
	directory, outside = filepath.Join(parent, "tree"), filepath.Join(parent, "outside")
	g.Expect(os.MkdirAll(filepath.Join(directory, "case"), 0o755)).To(Succeed())
	for _, name := range []string{outside, filepath.Join(directory, "file"), filepath.Join(directory, "case", "file")} {
		g.Expect(os.WriteFile(name, []byte("secret"), 0o644)).To(Succeed())
	}
	for name, target := range map[string]string{
		"link": outside, "dangling": filepath.Join(parent, "missing"), "inner": "file", "linked-case": "case",
		"linked-parent": parent,
	} {
		g.Expect(os.Symlink(target, filepath.Join(directory, name))).To(Succeed())
	}
	g.Expect(syscall.Mkfifo(filepath.Join(directory, "pipe"), 0o600)).To(Succeed())
	g.Expect(os.Link(outside, filepath.Join(directory, "hard"))).To(Succeed())
	return directory, outside
}

func TestTree(t *testing.T) {
	for name, want := range map[string]string{
		"file": "", "case/file": "", "hard": "", "link": "link is a symbolic link", "dangling": "dangling is a symbolic link",
		"inner": "inner is a symbolic link", "linked-case/file": "linked-case is a symbolic link",
		"linked-parent/outside": "linked-parent is a symbolic link", "pipe": "pipe is a named pipe",
		"case": "case is a directory", "../outside": "escapes", "new": "-", "case/new": "-", "missing/new": "-no such file",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			directory, outside := makeTree(t)
			tree, err := OpenTree(directory)
			g.Expect(err).NotTo(HaveOccurred())
			t.Cleanup(func() { g.Expect(tree.Close()).To(Succeed()) })

			content, err := tree.Read(name)
			switch {
			case want == "":
				g.Expect(string(content), err).To(Equal("secret"))
			case want[0] == '-':
				g.Expect(err).To(MatchError(fs.ErrNotExist))
				want = want[1:]
			default:
				g.Expect(err).To(MatchError(ContainSubstring(want)))
			}
			err = tree.Replace(name, []byte("new"), 0o640)
			if want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(os.ReadFile(filepath.Join(directory, name))).To(BeEquivalentTo("new"))
				g.Expect(tree.Remove(name)).To(Succeed())
				g.Expect(filepath.Join(directory, name)).NotTo(BeAnExistingFile())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(want)))
			}
			g.Expect(os.ReadFile(outside)).To(BeEquivalentTo("secret"))
			left, err := filepath.Glob(filepath.Join(directory, ".*"))
			g.Expect(left, err).To(BeEmpty(), "temporary files must not remain")
		})
	}
}
