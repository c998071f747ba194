// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// TestWriteFor compares the objects, or the error, of a template for a Namespace with a file.
func TestWriteFor(t *testing.T) {
	namespaces, err := filepath.Glob("testdata/*/*/namespace.yaml")
	NewWithT(t).Expect(namespaces, err).NotTo(BeEmpty())
	for _, file := range namespaces {
		t.Run(file, func(t *testing.T) {
			g := NewWithT(t)
			directory := filepath.Dir(file)
			object, err := ReadTemplate(filepath.Join(directory, "..", "template.yaml"), nil)
			g.Expect(err).NotTo(HaveOccurred())
			template, err := Compile(object)
			g.Expect(err).NotTo(HaveOccurred())
			namespace, err := ReadNamespace(file, nil)
			g.Expect(err).NotTo(HaveOccurred())
			var actual bytes.Buffer
			expectedFile := "expected.yaml"
			if err = template.CheckSelected(namespace); err == nil {
				err = template.WriteFor(t.Context(), &actual, namespace)
			}
			if err != nil {
				expectedFile = "error.txt"
				actual.Reset()
				actual.WriteString(err.Error() + "\n")
			}
			expected, err := os.ReadFile(filepath.Join(directory, expectedFile))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(actual.String()).To(Equal(string(expected)))
		})
	}
}
