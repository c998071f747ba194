// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"os"
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
