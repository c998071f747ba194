// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package templates

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

// TestHostileDirectory runs and updates tests in a directory in which a file is not a regular file.
func TestHostileDirectory(t *testing.T) {
	const secret = "password: correct horse\n"
	for name, test := range map[string]struct {
		// file is replaced by what change creates.
		file   string
		change func(file, outside string) error
		err    string
	}{
		"a link to a file": {"small/" + ExpectedFile, link, "symbolic link"},
		"a link to a file that does not exist": {"small/" + ExpectedFile, func(file, outside string) error {
			return os.Symlink(outside+"-missing", file)
		}, "symbolic link"},
		"a link to a file with the expected error": {"other/" + ErrorFile, link, "symbolic link"},
		"a link to a Namespace":                    {"small/" + NamespaceFile, link, "symbolic link"},
		"a link to a template":                     {TemplateFile, link, "symbolic link"},
		"a link to a directory": {"small", func(file, outside string) error {
			return os.Symlink(filepath.Dir(outside), file)
		}, "symbolic link"},
		"a pipe": {"small/" + ExpectedFile, func(file, _ string) error { return syscall.Mkfifo(file, 0o600) }, "named pipe"},
	} {
		for _, update := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, update %t", name, update), func(t *testing.T) {
				g := NewWithT(t)
				directory, outside := filepath.Join(t.TempDir(), "suite"), filepath.Join(t.TempDir(), ExpectedFile)
				g.Expect(os.CopyFS(directory, os.DirFS("testdata/team"))).To(Succeed())
				g.Expect(os.WriteFile(outside, []byte(secret), fileMode)).To(Succeed())
				namespace, err := os.ReadFile(filepath.Join(directory, "small", NamespaceFile))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(os.WriteFile(filepath.Join(filepath.Dir(outside), NamespaceFile), namespace, fileMode)).To(Succeed())
				file := filepath.Join(directory, filepath.FromSlash(test.file))
				g.Expect(os.RemoveAll(file)).To(Succeed())
				g.Expect(test.change(file, outside)).To(Succeed())

				results, err := RunTests(t.Context(), []string{directory}, update)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(results).To(ContainElement(HaveField("Err", MatchError(ContainSubstring(test.err)))))
				g.Expect(fmt.Sprintf("%+v", results)).NotTo(ContainSubstring("horse"))
				g.Expect(os.ReadFile(outside)).To(BeEquivalentTo(secret))
				g.Expect(outside + "-missing").NotTo(BeAnExistingFile())
			})
		}
	}
}

func link(file, outside string) error { return os.Symlink(outside, file) }
