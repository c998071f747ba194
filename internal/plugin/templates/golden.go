// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/nslifecycle/nslifecycle/internal/plugin/files"
)

// The files of golden tests. A suite is a directory with a template. Each of its directories that
// contains a Namespace is a test case, which expects either objects or an error.
const (
	TemplateFile  = "template.yaml"
	NamespaceFile = "namespace.yaml"
	ExpectedFile  = "expected.yaml"
	ErrorFile     = "error.txt"
)

// fileMode is that of files in a source repository.
const fileMode = 0o644

// Result is the result of a test case, or of a suite that cannot run.
type Result struct {
	// Name is the path of the test case.
	Name string
	// Diff is a unified diff between the expected and the actual result; empty if they are equal.
	Diff string
	// Updated is the file that was written.
	Updated string
	// Err is why there is no result.
	Err error
}

// HasFailed reports whether the test case has failed.
func (r Result) HasFailed() bool { return r.Err != nil || r.Diff != "" }

// RunTests runs the test cases of all suites in files and directories. A file is a template, whose test
// cases are beside it. With update, it writes the actual results instead of comparing them.
func RunTests(ctx context.Context, paths []string, update bool) ([]Result, error) {
	var results []Result
	for _, path := range paths {
		suites, err := findSuites(path)
		if err != nil {
			return nil, err
		}
		for _, suite := range suites {
			results = append(results, runSuite(ctx, suite, update)...)
		}
	}
	return results, ctx.Err()
}

// findSuites returns the templates of the suites in a directory, or the given file. Symbolic links are not followed.
func findSuites(path string) ([]string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir():
		return []string{path}, nil
	}
	var found []string
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && entry.Name() == TemplateFile {
			found = append(found, name)
		}
		return err
	})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no %s found in %s", TemplateFile, path)
	}
	return found, err
}

// runSuite runs the test cases of a template. Without test cases, the suite fails.
func runSuite(ctx context.Context, file string, update bool) []Result {
	fail := func(err error) []Result { return []Result{{Name: filepath.Dir(file), Err: err}} }
	tree, err := files.OpenTree(filepath.Dir(file))
	if err != nil {
		return fail(err)
	}
	defer tree.Close()
	content, err := tree.Read(filepath.Base(file))
	if err != nil {
		return fail(err)
	}
	object, err := decodeTemplate(file, content)
	if err != nil {
		return fail(err)
	}
	template, err := Compile(object)
	if err != nil {
		return fail(err)
	}
	namespaces, err := filepath.Glob(filepath.Join(escapeGlob(filepath.Dir(file)), "*", NamespaceFile))
	if err == nil && len(namespaces) == 0 {
		err = fmt.Errorf("%s has no test cases; a test case is a directory beside it that contains %s", file, NamespaceFile)
	}
	if err != nil {
		return fail(err)
	}
	slices.Sort(namespaces)
	results := make([]Result, 0, len(namespaces))
	for _, namespace := range namespaces {
		test := testCase{tree, filepath.Dir(file), filepath.Base(filepath.Dir(namespace))}
		results = append(results, test.run(ctx, template, update))
	}
	return results
}

// escapeGlob returns a pattern that matches only the given path.
func escapeGlob(path string) string {
	return strings.NewReplacer(`*`, `[*]`, `?`, `[?]`, `[`, `[[]`).Replace(path)
}

// testCase is a directory in the directory of a suite.
type testCase struct {
	tree  *files.Tree
	suite string
	name  string
}

func (c testCase) path(file string) string { return filepath.Join(c.suite, c.name, file) }

func (c testCase) read(file string) ([]byte, error) { return c.tree.Read(filepath.Join(c.name, file)) }

func (c testCase) run(ctx context.Context, template *Template, update bool) Result {
	result := Result{Name: c.path("")}
	file, actual, err := c.render(ctx, template)
	if err != nil {
		result.Err = err
		return result
	}
	expectedFile, expected, err := c.readExpected()
	isMissing := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !isMissing:
		result.Err = err
	case !isMissing && expectedFile == file && normalize(expected) == normalize(actual):
	case update:
		result.Updated = c.path(file)
		result.Err = c.replaceExpected(file, actual)
	case isMissing:
		result.Err = fmt.Errorf("the test case has neither %s nor %s; use --update to write the result", ExpectedFile,
			ErrorFile)
	default:
		result.Diff, result.Err = difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
			A: difflib.SplitLines(normalize(expected)), B: difflib.SplitLines(normalize(actual)),
			FromFile: c.path(expectedFile), ToFile: "actual " + file, Context: 3,
		})
	}
	return result
}

// render returns the actual result, and the name of the file for it.
func (c testCase) render(ctx context.Context, template *Template) (name, text string, err error) {
	content, err := c.read(NamespaceFile)
	if err != nil {
		return "", "", err
	}
	namespace, err := decodeNamespace(c.path(NamespaceFile), content)
	if err != nil {
		return "", "", err
	}
	var document bytes.Buffer
	err = template.CheckSelected(namespace)
	if err == nil {
		err = template.WriteFor(ctx, &document, namespace)
	}
	switch {
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case err != nil:
		return ErrorFile, err.Error() + "\n", nil
	}
	return ExpectedFile, document.String(), nil
}

// readExpected returns the name and the content of the file with the expected result. The error is
// fs.ErrNotExist if there is none.
func (c testCase) readExpected() (name, text string, err error) {
	objects, objectsErr := c.read(ExpectedFile)
	failure, failureErr := c.read(ErrorFile)
	switch {
	case objectsErr == nil && failureErr == nil:
		return "", "", fmt.Errorf("the test case has both %s and %s", ExpectedFile, ErrorFile)
	case objectsErr == nil:
		return ExpectedFile, string(objects), nil
	case !errors.Is(objectsErr, fs.ErrNotExist):
		return "", "", objectsErr
	case failureErr == nil:
		return ErrorFile, string(failure), nil
	}
	return "", "", failureErr
}

// replaceExpected writes the expected result, and deletes a file with the other kind of result.
func (c testCase) replaceExpected(file, text string) error {
	for _, name := range []string{ExpectedFile, ErrorFile} {
		if name == file {
			continue
		}
		if err := c.tree.Remove(filepath.Join(c.name, name)); err != nil {
			return err
		}
	}
	return c.tree.Replace(filepath.Join(c.name, file), []byte(text), fileMode)
}

// normalize returns text with the line breaks of this package, and exactly one at its end.
func normalize(text string) string {
	return strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n") + "\n"
}
