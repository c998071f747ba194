// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

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
	guide := read("../../../docs/stuck-namespace.md")
	entries := map[diagnosis.Cause]int{}
	for _, entry := range Causes() {
		entries[entry.Cause]++
		text := fmt.Sprint(entry.remedies, entry.loss)
		if entry.rule == nil || entry.rule.find == nil || entry.rule.blocks == "" || len(entry.remedies) == 0 ||
			!strings.HasSuffix(entry.Description, ".") || strings.Contains(text, "%") {
			t.Errorf("the entry of %s is not complete: %+v", entry.Cause, entry)
		}
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

// TestOptionalParameters checks remedies with a parameter that only some findings of their cause have.
func TestOptionalParameters(t *testing.T) {
	left := withContent(contentOf(widgets, makeDeleted("a", held)))
	converted := failing(widgets, internalError(`conversion webhook for widgets.example.com/v1, Kind=Widget failed: timeout`))
	tests := map[string]struct {
		facts  *diagnosis.Facts
		want   []string
		absent string
	}{
		"a node":         {makeTerminating(withPod("web", nil), withNode(corev1.ConditionUnknown)), []string{"kubectl delete node worker-1"}, ""},
		"a missing node": {makeTerminating(withPod("web", nil)), []string{"kubectl delete pod web"}, "kubectl delete node"},
		"a running owner": {makeTerminating(left, withOperator(1), withReview()),
			[]string{"kubectl logs --namespace=" + operator.Namespace + " deployments.apps/controller"}, ""},
		"an owner that does not run": {makeTerminating(left, withOperator(0)), nil, "kubectl logs"},
		"a conversion webhook": {makeTerminating(withContent(converted), withDefinition(convertedBy(shop))), []string{
			"kubectl patch customresourcedefinition widgets.widgets.example.com", "endpointslices,pods --namespace=" + shop,
		}, ""},
		"an unknown conversion webhook": {makeTerminating(withContent(converted)), nil, "kubectl patch"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			findings := Diagnose(test.facts).Findings
			if len(findings) == 0 {
				t.Fatal("there is no finding")
			}
			remedies := fmt.Sprint(findings[0].Remedies)
			for _, want := range test.want {
				if !strings.Contains(remedies, want) {
					t.Errorf("the remedies lack %q: %s", want, remedies)
				}
			}
			if test.absent != "" && strings.Contains(remedies, test.absent) {
				t.Errorf("the remedies contain %q: %s", test.absent, remedies)
			}
		})
	}
}
