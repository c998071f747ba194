// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
)

// Render returns the diagnosis and the plan as text.
func Render(plan *Plan, screen printer.Screen) string {
	var out strings.Builder
	out.WriteString(printer.RenderDiagnosis(plan.Diagnosis, screen))
	out.WriteString("\n")
	heading, branches := headingPlan, planBranches
	if plan.Removal == nil {
		heading, branches = headingCandidates, candidateBranches
	}
	out.WriteString(screen.Colors.Bold(heading) + "\n\n")
	out.WriteString(printer.RenderTree(branches(plan, screen.Colors), screen.Columns))
	return out.String()
}

func candidateBranches(plan *Plan, colors printer.Palette) []printer.Branch {
	if len(plan.Candidates) == 0 {
		return []printer.Branch{{Text: textNoCandidates}}
	}
	var branches []printer.Branch
	for _, candidate := range plan.Candidates {
		branches = append(branches, printer.Branch{
			Label: printer.Capitalize(candidate.String()), Text: candidate.Effect, Paint: colors.Bold,
			Children: []printer.Branch{{Text: candidate.Command, IsVerbatim: true, Paint: colors.Cyan}},
		})
	}
	return branches
}

func planBranches(plan *Plan, colors printer.Palette) []printer.Branch {
	remove := printer.Branch{Label: labelRemove, Text: plan.Removal.String(), Paint: colors.Bold}
	for _, group := range groupByType(plan.Targets) {
		remove.Children = append(remove.Children, printer.Branch{Text: "from " + listGroup(group)})
	}
	branches := []printer.Branch{remove}
	if len(plan.NotDeleted) > 0 {
		branches = append(branches, printer.Branch{
			Label: labelNotDeleted, Text: ListObjects(plan.NotDeleted), Paint: colors.Bold,
		})
	}
	branches = append(branches, printer.Branch{Label: labelResult, Text: textResult(plan), Paint: colors.Bold})
	if len(plan.Orphans) > 0 {
		orphans := printer.Branch{Label: labelOrphans(len(plan.Orphans)), Paint: colors.Red}
		for _, group := range groupByType(plan.Orphans) {
			orphans.Children = append(orphans.Children, printer.Branch{Text: listGroup(group)})
		}
		branches = append(branches, orphans)
	}
	if len(plan.Losses) > 0 {
		losses := printer.Branch{Label: labelLosses, Paint: colors.Bold}
		for _, loss := range plan.Losses {
			losses.Children = append(losses.Children, printer.Branch{Text: loss})
		}
		branches = append(branches, losses)
	}
	return append(branches, printer.Branch{Label: labelBackup, Text: textBackup(plan), Paint: colors.Bold})
}
