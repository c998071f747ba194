// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestNamespaceHistory(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	first, second := newNamespaceHistory("/a/config", "c"), newNamespaceHistory("/b/config", "c")
	g.Expect(first.read()).To(BeEmpty())
	g.Expect(first.write("one")).To(Succeed())
	g.Expect(second.write("two")).To(Succeed())
	g.Expect(first.read()).To(Equal("one"))
	g.Expect(second.read()).To(Equal("two"))

	path, err := historyPath()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(path, []byte("broken"), 0o600)).To(Succeed())
	_, err = first.read()
	g.Expect(err).To(MatchError(ContainSubstring(path)))
	g.Expect(first.write("three")).To(Succeed())
	g.Expect(first.read()).To(Equal("three"))
}

func TestWriteFile(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	g.Expect(os.WriteFile(target, []byte("old"), 0o644)).To(Succeed())
	g.Expect(os.Symlink(target, link)).To(Succeed())
	g.Expect(writeFile(link, []byte("new"))).To(Succeed())
	text, err := os.ReadFile(target)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(text)).To(Equal("new"), "the link must not be replaced")
	info, err := os.Stat(target)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))
	g.Expect(writeFile(os.DevNull, []byte("x"))).To(Succeed())
	info, err = os.Stat(os.DevNull)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().IsRegular()).To(BeFalse(), "the device must not be replaced")
	g.Expect(writeFile(filepath.Join(dir, "missing", "file"), nil)).To(MatchError(ContainSubstring("missing")))
	left, err := os.ReadDir(dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(HaveLen(2), "temporary files must not remain")
}
