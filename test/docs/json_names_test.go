// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var isField = regexp.MustCompile(`json:"(is[A-Z]\w*)`)

// TestJSONNames checks that the names of boolean fields in the API and in the output of the plugin follow the API
// conventions, which have no prefix "is".
func TestJSONNames(t *testing.T) {
	files := 0
	for _, directory := range []string{"api", "cmd", "internal", "pkg"} {
		if err := filepath.WalkDir(filepath.Join(root, directory), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files++
			if found := isField.FindSubmatch(content); found != nil {
				t.Errorf("%s: rename the JSON field %q", path, found[1])
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("found only %d files, so the search is broken", files)
	}
}
