// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// TestCauses checks that each constant has one complete entry in the table and a row in the guide for users.
func TestCauses(t *testing.T) {
	read := func(pattern string) (text string) {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text += string(content)
		}
		return text
	}
	guide, rules := read("../../../docs/stuck-namespace.md"), read("*.go")
	entries := map[diagnosis.Cause]int{}
	for _, entry := range Causes() {
		entries[entry.Cause]++
		text := fmt.Sprint(entry.remedies, entry.loss)
		if entry.rule == nil || entry.rule.find == nil || entry.rule.blocks == "" || len(entry.remedies) == 0 ||
			!strings.HasSuffix(entry.Description, ".") || strings.Contains(text, "%") {
			t.Errorf("the entry of %s is not complete: %+v", entry.Cause, entry)
		}
		os.Expand(text, func(name string) string {
			if !strings.Contains(rules, strconv.Quote(name)) {
				t.Errorf("no rule sets parameter %s of %s", name, entry.Cause)
			}
			return ""
		})
	}
	constants := regexp.MustCompile(`\tCause\w+ +Cause = "(\w+)"`).FindAllStringSubmatch(read("../causes.go"), -1)
	for _, constant := range constants {
		name := constant[1]
		if entries[diagnosis.Cause(name)] != 1 || !strings.Contains(guide, "`"+name+"`") {
			t.Errorf("%s must have one entry in the table of causes, and be explained in docs/stuck-namespace.md", name)
		}
	}
	if len(constants) != len(entries) {
		t.Errorf("%d constants, but %d entries", len(constants), len(entries))
	}
}
