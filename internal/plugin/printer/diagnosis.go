// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// RenderDiagnosis returns the state of a namespace and its findings as text.
func RenderDiagnosis(result *diagnosis.Diagnosis, screen Screen) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Namespace %s: %s, %s\n", screen.Colors.Bold(result.Namespace), stageText(result, screen.Now),
		colorState(result.State, screen.Colors))
	for _, line := range wrap(printable.Escape(summaryText(result)), screen.Columns) {
		out.WriteString(line + "\n")
	}
	if len(result.Findings) > 0 {
		out.WriteString("\n")
		out.WriteString(RenderTree(findingBranches(result, screen.Colors), screen.Columns))
	}
	return out.String()
}

// stageText returns the stage of a namespace and how long the namespace has been in it.
func stageText(result *diagnosis.Diagnosis, now time.Time) string {
	if result.Since.IsZero() {
		return string(result.Stage)
	}
	return fmt.Sprintf("%s for %s", result.Stage, duration.HumanDuration(max(0, now.Sub(result.Since))))
}

func colorState(state diagnosis.State, colors Palette) string {
	text := strings.ToLower(string(state))
	switch state {
	case diagnosis.Blocked:
		return colors.Red(text)
	case diagnosis.Progressing:
		return colors.Yellow(text)
	}
	return colors.Green(text)
}

// summaryText returns the sentence below the name of the namespace. If some objects could not be
// read, the sentence does not claim that there are no problems.
func summaryText(result *diagnosis.Diagnosis) string {
	switch number := len(result.Findings); {
	case number == 1:
		return msgOneFinding
	case number > 1:
		return msgFindings(number)
	}
	summary := Sentence(result.Summary)
	switch {
	case len(result.Unread) > 0:
		return strings.TrimSpace(summary + " " + msgNoProblemsInReadObjects)
	case result.State == diagnosis.Progressing:
		return strings.TrimSpace(summary + " " + msgNoProblems)
	}
	return summary
}

func findingBranches(result *diagnosis.Diagnosis, colors Palette) []Branch {
	branches := make([]Branch, 0, len(result.Findings))
	for i := range result.Findings {
		branches = append(branches, findingBranch(&result.Findings[i], result.Namespace, colors))
	}
	return branches
}

func findingBranch(finding *diagnosis.Finding, namespace string, colors Palette) Branch {
	paint := colors.Yellow
	if finding.Rank != diagnosis.RankInferred {
		paint = colors.Red
	}
	node := Branch{
		Label: fmt.Sprintf("%s (%s)", finding.Cause, strings.ToLower(string(finding.Rank))),
		Text:  finding.Message, Paint: paint,
	}
	if len(finding.Objects) > 0 {
		node.Children = append(node.Children, Branch{
			Label: labelObjects, Text: ListObjects(finding.Objects, finding.Count, namespace), Paint: colors.Faint,
		})
	}
	node.Children = append(node.Children, textBranches(labelEvidence, evidenceTexts(finding.Evidence), colors)...)
	node.Children = append(node.Children, textBranches(labelRemedies, finding.Remedies, colors)...)
	if finding.Loss != "" {
		node.Children = append(node.Children, Branch{Label: labelLoss, Text: finding.Loss, Paint: colors.Faint})
	}
	return node
}

// evidenceTexts returns the evidence with its ranks.
func evidenceTexts(evidence []diagnosis.Evidence) []string {
	var texts []string
	for _, one := range evidence {
		texts = append(texts, strings.ToLower(string(one.Rank))+": "+one.Text)
	}
	return texts
}

// textBranches returns a branch for one string, or a branch with children for a command or for
// several strings.
func textBranches(label string, texts []string, colors Palette) []Branch {
	if len(texts) == 0 {
		return nil
	}
	node := Branch{Label: label, Paint: colors.Faint}
	if len(texts) == 1 && !shell.IsCommand(texts[0]) {
		node.Text = texts[0]
		return []Branch{node}
	}
	for _, text := range texts {
		child := Branch{Text: text}
		if shell.IsCommand(text) {
			child.IsVerbatim, child.Paint = true, colors.Cyan
		}
		node.Children = append(node.Children, child)
	}
	return []Branch{node}
}
