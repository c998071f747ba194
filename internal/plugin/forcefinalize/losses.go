// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
)

// maxNamedObjects is the maximum number of objects of each type that a message names. Further
// objects are only counted.
const maxNamedObjects = 3

// computeLosses returns sentences that describe what is lost or left behind if a plan is applied.
func computeLosses(plan *Plan) []string {
	var losses []string
	add := func(text string) {
		if text = printer.Sentence(text); text != "" && !slices.Contains(losses, text) {
			losses = append(losses, text)
		}
	}
	findings := matchingFindings(plan.Diagnosis, plan.Removal)
	if len(plan.Orphans) > 0 {
		// All findings are about objects that the removal orphans.
		findings = plan.Diagnosis.Findings
		add(lossOrphans)
		for _, group := range groupByType(plan.Orphans) {
			if consequence := orphanConsequences[group[0].Resource]; consequence != "" {
				add(fmt.Sprintf("%d %s: %s", len(group), group[0].Resource, consequence))
			}
		}
	}
	for i := range findings {
		add(findings[i].Loss)
	}
	if len(plan.Targets) > 0 && len(findings) == 0 {
		add(lossUnknownFinalizer)
	}
	return losses
}

// groupByType returns objects grouped by type. Groups and objects are sorted.
func groupByType(objects []RemainingObject) [][]RemainingObject {
	sorted := slices.SortedStableFunc(slices.Values(objects), compareObjects)
	var groups [][]RemainingObject
	for start := 0; start < len(sorted); {
		end := start
		for end < len(sorted) && sorted[end].Resource == sorted[start].Resource {
			end++
		}
		groups = append(groups, sorted[start:end])
		start = end
	}
	return groups
}

func compareObjects(a, b RemainingObject) int {
	return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
}

// listGroup names the first objects of one type and counts the others.
func listGroup(group []RemainingObject) string {
	named := make([]diagnosis.Object, 0, maxNamedObjects)
	for _, object := range group[:min(len(group), maxNamedObjects)] {
		named = append(named, diagnosis.Object{Resource: object.Resource, Name: object.Name})
	}
	return printer.ListObjects(named, len(group), "")
}

// ListObjects names the first objects of each type and counts the others.
func ListObjects(objects []RemainingObject) string {
	var texts []string
	for _, group := range groupByType(objects) {
		texts = append(texts, listGroup(group))
	}
	return strings.Join(texts, "; ")
}
