// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"strings"
)

// renderPlan makes the text for people: the findings, and what would be done.
func renderPlan(planned *plan, screen screen) string {
	var out strings.Builder
	out.WriteString(renderDiagnosis(planned.Diagnosis, screen))
	out.WriteString("\n")
	var branches []branch
	if planned.Removal == nil {
		out.WriteString(screen.colours.bold("What could be removed by force, the least harmful first") + "\n")
		branches = candidateBranches(planned, screen.colours)
	} else {
		out.WriteString(screen.colours.bold("What it would do") + "\n")
		branches = planBranches(planned, screen.colours)
	}
	out.WriteString("\n" + renderTree(branches, screen.columns))
	return out.String()
}

func candidateBranches(planned *plan, colours palette) []branch {
	if len(planned.Candidates) == 0 {
		return []branch{{text: "Nothing: neither the Namespace nor what was found in it has a token or a finalizer."}}
	}
	var branches []branch
	for _, one := range planned.Candidates {
		branches = append(branches, branch{
			label: sentenceCase(one.String()), text: one.Effect, paint: colours.bold,
			children: []branch{{text: one.Command, isVerbatim: true, paint: colours.cyan}},
		})
	}
	return branches
}

func planBranches(planned *plan, colours palette) []branch {
	remove := branch{label: "Remove", text: planned.Removal.String(), paint: colours.bold}
	for _, group := range groupRemnants(planned.Targets) {
		remove.children = append(remove.children, branch{text: "from " + nameGroup(group)})
	}
	branches := []branch{remove}
	if len(planned.NotDeleted) > 0 {
		branches = append(branches, branch{
			label: "Leave alone, since nobody has deleted them yet", text: nameRemnants(planned.NotDeleted),
			paint: colours.bold,
		})
	}
	branches = append(branches, branch{label: "Afterwards", text: afterwards(planned), paint: colours.bold})
	if len(planned.Orphans) > 0 {
		orphans := branch{
			label: fmt.Sprintf("Orphans, left without a namespace: %d", len(planned.Orphans)), paint: colours.red,
		}
		for _, group := range groupRemnants(planned.Orphans) {
			orphans.children = append(orphans.children, branch{text: nameGroup(group)})
		}
		branches = append(branches, orphans)
	}
	if len(planned.Losses) > 0 {
		losses := branch{label: "What that means", paint: colours.bold}
		for _, loss := range planned.Losses {
			losses.children = append(losses.children, branch{text: loss})
		}
		branches = append(branches, losses)
	}
	return append(branches, branch{label: "Backup", text: backupText(planned), paint: colours.bold})
}

// afterwards says what becomes of the Namespace.
func afterwards(planned *plan) string {
	switch {
	case len(planned.HeldBy) > 0 && len(planned.Targets) > 0:
		objects := "the object can go, unless another finalizer holds it"
		if len(planned.Targets) > 1 {
			objects = "the objects can go, unless another finalizer holds them"
		}
		return fmt.Sprintf("%s; the Namespace is still held by %s", objects, strings.Join(planned.HeldBy, ", "))
	case len(planned.HeldBy) > 0:
		return "the Namespace is still held by " + strings.Join(planned.HeldBy, ", ")
	}
	return "nothing holds the Namespace any more, and it is gone at once"
}

func backupText(planned *plan) string {
	if planned.Backup == "" {
		return "none"
	}
	return fmt.Sprintf("%s, with the Namespace, %s and what is secret in them", planned.Backup,
		count(len(planned.Remaining), "object"))
}

// sentenceCase begins a phrase as a sentence begins.
func sentenceCase(phrase string) string {
	return strings.TrimSuffix(sentence(phrase), ".")
}
