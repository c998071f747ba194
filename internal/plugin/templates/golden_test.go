// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestRunTests(t *testing.T) {
	results, err := RunTests(t.Context(), []string{"testdata"}, false)
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(results).To(HaveLen(7))
	for _, result := range results {
		g.Expect(result.HasFailed()).To(BeFalse(), "%+v", result)
	}
}

func TestFailedTests(t *testing.T) {
	for name, test := range map[string]struct {
		change func(directory string) error
		diff   string
		err    string
	}{
		"a field differs": {
			change: replace("small/expected.yaml", "pods: 4\n", "pods: 5\n"), diff: "-    pods: 5\n+    pods: 4\n",
		},
		"an object is no longer locked": {
			change: replace("template.yaml", "    lock: All\n", ""), diff: "-# Object \"quota\", locked.\n",
		},
		"objects instead of an error": {
			change: replace("unnamed-owner/namespace.yaml", "size: s\n", "size: s\n    nslifecycle.dev/requested-by: bob\n"),
			diff:   "+  name: bob\n",
		},
		"nothing is expected": {
			change: func(directory string) error { return os.Remove(filepath.Join(directory, "other/error.txt")) },
			err:    "neither expected.yaml nor error.txt",
		},
		"both results are expected": {
			change: func(directory string) error {
				return os.WriteFile(filepath.Join(directory, "other/expected.yaml"), nil, fileMode)
			},
			err: "both expected.yaml and error.txt",
		},
		"the namespace is invalid": {
			change: replace("small/namespace.yaml", "labels:", "label:"), err: `unknown field "metadata.label"`,
		},
		"the template is invalid": {
			change: replace("template.yaml", "${subject(requestedBy)}", "${subject(user)}"), err: "undeclared reference to 'user'",
		},
		"there are no test cases": {
			change: func(directory string) error {
				cases, err := filepath.Glob(filepath.Join(escapeGlob(directory), "*", NamespaceFile))
				for _, file := range cases {
					err = os.Remove(file)
				}
				return err
			},
			err: "has no test cases",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			directory := filepath.Join(t.TempDir(), "[team]*")
			g.Expect(os.CopyFS(directory, os.DirFS("testdata/team"))).To(Succeed())
			g.Expect(test.change(directory)).To(Succeed())
			results, err := RunTests(t.Context(), []string{directory}, false)
			g.Expect(err).NotTo(HaveOccurred())
			var failed []Result
			for _, result := range results {
				if result.HasFailed() {
					failed = append(failed, result)
				}
			}
			g.Expect(failed).NotTo(BeEmpty())
			g.Expect(failed[0].Diff).To(ContainSubstring(test.diff))
			if test.err != "" {
				g.Expect(failed[0].Err).To(MatchError(ContainSubstring(test.err)))
			}
		})
	}
}

func TestUpdate(t *testing.T) {
	g := NewWithT(t)
	directory := t.TempDir()
	g.Expect(os.CopyFS(directory, os.DirFS("testdata/team"))).To(Succeed())
	g.Expect(replace("unnamed-owner/namespace.yaml", "size: s\n", "size: s\n    nslifecycle.dev/requested-by: bob\n")(directory)).To(Succeed())
	crlf := filepath.Join(directory, "small/expected.yaml")
	content, err := os.ReadFile(crlf)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(crlf, []byte(strings.ReplaceAll(string(content), "\n", "\r\n")), fileMode)).To(Succeed())

	results, err := RunTests(t.Context(), []string{filepath.Join(directory, TemplateFile)}, true)
	g.Expect(err).NotTo(HaveOccurred())
	var updated []string
	for _, result := range results {
		g.Expect(result.HasFailed()).To(BeFalse(), "%+v", result)
		if result.Updated != "" {
			updated = append(updated, result.Updated)
		}
	}
	expected := filepath.Join(directory, "unnamed-owner", ExpectedFile)
	g.Expect(updated).To(HaveExactElements(expected), "only different results are written")
	g.Expect(expected).To(BeAnExistingFile())
	g.Expect(filepath.Join(directory, "unnamed-owner", ErrorFile)).NotTo(BeAnExistingFile())
}

func TestNoSuite(t *testing.T) {
	_, err := RunTests(t.Context(), []string{t.TempDir()}, false)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("no template.yaml found")))
}

// replace returns a function that replaces text in a file, which must contain it.
func replace(file, before, after string) func(string) error {
	return func(directory string) error {
		name := filepath.Join(directory, filepath.FromSlash(file))
		content, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(content), before) {
			return os.ErrInvalid
		}
		return os.WriteFile(name, []byte(strings.Replace(string(content), before, after, 1)), fileMode)
	}
}
