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

// findSuites returns the templates of the suites in a directory, or the given file.
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
		err = fmt.Errorf(msgNoSuite, TemplateFile, path)
	}
	return found, err
}

// runSuite runs the test cases of a template. Without test cases, the suite fails.
func runSuite(ctx context.Context, file string, update bool) []Result {
	fail := func(err error) []Result { return []Result{{Name: filepath.Dir(file), Err: err}} }
	object, err := ReadTemplate(file, nil)
	if err != nil {
		return fail(err)
	}
	template, err := Compile(object)
	if err != nil {
		return fail(err)
	}
	namespaces, err := filepath.Glob(filepath.Join(escapeGlob(filepath.Dir(file)), "*", NamespaceFile))
	if err == nil && len(namespaces) == 0 {
		err = fmt.Errorf(msgNoCases, file, NamespaceFile)
	}
	if err != nil {
		return fail(err)
	}
	slices.Sort(namespaces)
	results := make([]Result, 0, len(namespaces))
	for _, namespace := range namespaces {
		results = append(results, runCase(ctx, template, filepath.Dir(namespace), update))
	}
	return results
}

// escapeGlob returns a pattern that matches only the given path.
func escapeGlob(path string) string {
	return strings.NewReplacer(`*`, `[*]`, `?`, `[?]`, `[`, `[[]`).Replace(path)
}

func runCase(ctx context.Context, template *Template, directory string, update bool) Result {
	result := Result{Name: directory}
	file, actual, err := renderCase(ctx, template, filepath.Join(directory, NamespaceFile))
	if err != nil {
		result.Err = err
		return result
	}
	expectedFile, expected, err := readExpected(directory)
	isMissing := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !isMissing:
		result.Err = err
	case !isMissing && expectedFile == file && normalize(expected) == normalize(actual):
	case update:
		result.Updated = filepath.Join(directory, file)
		result.Err = replaceExpected(directory, file, actual)
	case isMissing:
		result.Err = fmt.Errorf(msgNoExpectation, ExpectedFile, ErrorFile)
	default:
		result.Diff, result.Err = difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
			A: difflib.SplitLines(normalize(expected)), B: difflib.SplitLines(normalize(actual)),
			FromFile: filepath.Join(directory, expectedFile), ToFile: "actual " + file, Context: 3,
		})
	}
	return result
}

// renderCase returns the actual result, and the name of the file for it.
func renderCase(ctx context.Context, template *Template, file string) (name, text string, err error) {
	namespace, err := ReadNamespace(file, nil)
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
func readExpected(directory string) (name, text string, err error) {
	objects, objectsErr := os.ReadFile(filepath.Join(directory, ExpectedFile))
	failure, failureErr := os.ReadFile(filepath.Join(directory, ErrorFile))
	switch {
	case objectsErr == nil && failureErr == nil:
		return "", "", fmt.Errorf(msgBothExpected, ExpectedFile, ErrorFile)
	case objectsErr == nil:
		return ExpectedFile, string(objects), nil
	case failureErr == nil:
		return ErrorFile, string(failure), nil
	case !errors.Is(objectsErr, fs.ErrNotExist):
		return "", "", objectsErr
	}
	return "", "", failureErr
}

// replaceExpected writes the expected result, and deletes a file with the other kind of result.
func replaceExpected(directory, file, text string) error {
	for _, name := range []string{ExpectedFile, ErrorFile} {
		if name == file {
			continue
		}
		if err := os.Remove(filepath.Join(directory, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.WriteFile(filepath.Join(directory, file), []byte(text), fileMode)
}

// normalize returns text with the line breaks of this package, and exactly one at its end.
func normalize(text string) string {
	return strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n") + "\n"
}
