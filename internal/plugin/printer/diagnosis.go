// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// RenderDiagnosis returns the state of a namespace and its findings as text.
func RenderDiagnosis(result *diagnosis.Diagnosis, colors Palette, now time.Time) string {
	var out strings.Builder
	state, health := stateText(result, now), colorHealth(result.Result, colors)
	fmt.Fprintf(&out, "Namespace %s: %s, %s\n", result.Namespace, state, health)
	for _, line := range wrap(printable.Escape(summaryText(result)), MaxTextWidth) {
		out.WriteString(line + "\n")
	}
	for i := range result.Findings {
		out.WriteString("\n")
		finding := &result.Findings[i]
		for _, line := range wrap(printable.Escape(finding.Message), MaxTextWidth) {
			out.WriteString(colorFinding(finding, colors)(line) + "\n")
		}
		writeBranches(&out, findingBranches(finding, result.Namespace), Continuation)
	}
	return out.String()
}

// stateText returns the state of a namespace and how long the namespace has been in it.
func stateText(result *diagnosis.Diagnosis, now time.Time) string {
	if result.Since.IsZero() {
		return string(result.State)
	}
	return fmt.Sprintf("%s for %s", result.State, duration.HumanDuration(max(0, now.Sub(result.Since))))
}

func colorHealth(health diagnosis.Health, colors Palette) string {
	text := strings.ToLower(string(health))
	switch health {
	case diagnosis.Blocked, diagnosis.Degraded:
		return colors.Red(text)
	case diagnosis.Progressing, diagnosis.Unknown:
		return colors.Yellow(text)
	}
	return colors.Green(text)
}

// summaryText returns the sentence below the name of the namespace. If some objects could not be
// read, the sentence does not claim that there are no problems.
func summaryText(result *diagnosis.Diagnosis) string {
	switch number := len(result.Findings); {
	case number == 1:
		return "1 finding."
	case number > 1:
		return messageFindings(number)
	}
	summary := Sentence(result.Summary)
	switch {
	case len(result.Unread) > 0:
		return strings.TrimSpace(summary + " " + messageNoProblemsInReadObjects)
	case result.Result == diagnosis.Progressing && result.State != diagnosis.StateTerminating:
		return strings.TrimSpace(summary + " " + messageNoProblems)
	}
	return summary
}

func colorFinding(finding *diagnosis.Finding, colors Palette) func(string) string {
	if finding.Rank != diagnosis.RankInferred {
		return colors.Red
	}
	return colors.Yellow
}

// FindingCause returns the cause of a finding and its rank.
func FindingCause(finding *diagnosis.Finding) string {
	return fmt.Sprintf("%s (%s)", finding.Cause, strings.ToLower(string(finding.Rank)))
}

// findingBranches returns what is printed below the message of a finding.
func findingBranches(finding *diagnosis.Finding, namespace string) []Branch {
	branches := []Branch{{Label: "Cause", Text: FindingCause(finding)}}
	if len(finding.Objects) > 0 {
		objects := ListObjects(finding.Objects, finding.Count, namespace)
		branches = append(branches, Branch{Label: "Objects", Text: objects})
	}
	evidence := Branch{Label: "Evidence"}
	for i, one := range finding.Evidence {
		if !repeats(one.Text, finding.Evidence[:i]) {
			evidence.Children = append(evidence.Children, Branch{Text: strings.ToLower(string(one.Rank)) + ": " + one.Text})
		}
	}
	inspect, resolve := remedyBranches(finding)
	for _, group := range []Branch{evidence, inspect, resolve} {
		if len(group.Children) > 0 {
			branches = append(branches, group)
		}
	}
	if finding.Loss != "" {
		branches = append(branches, Branch{Label: labelLoss, Text: finding.Loss})
	}
	return branches
}

// repeats reports whether a text contains an error that earlier evidence quotes after its first colon. Conditions quote
// the errors that requests of the diagnosis also get.
func repeats(text string, earlier []diagnosis.Evidence) bool {
	const minError = 20 // Shorter texts, such as names, are no errors.
	return slices.ContainsFunc(earlier, func(evidence diagnosis.Evidence) bool {
		_, quoted, _ := strings.Cut(evidence.Text, ": ")
		return len(quoted) >= minError && strings.Contains(text, quoted)
	})
}

// remedyBranches returns a branch for the remedies that change nothing, and one for all others.
func remedyBranches(finding *diagnosis.Finding) (inspect, resolve Branch) {
	inspect, resolve = Branch{Label: labelInspect}, Branch{Label: labelResolve}
	for _, remedy := range finding.Remedies {
		group := &inspect
		if remedy.Changes {
			group = &resolve
		}
		command := Branch{Text: remedy.Command, IsVerbatim: true}
		switch {
		case remedy.Text == "":
			group.Children = append(group.Children, command)
		case remedy.Command == "":
			group.Children = append(group.Children, Branch{Text: remedy.Text})
		default:
			group.Children = append(group.Children, Branch{Text: remedy.Text + ":", Children: []Branch{command}})
		}
	}
	return inspect, resolve
}

// Labels of a finding.
const (
	labelInspect = "To inspect"
	labelResolve = "To resolve"
	labelLoss    = "Lost if forced"
)

// Summaries of a diagnosis.
const (
	messageNoProblems              = "No problems found."
	messageNoProblemsInReadObjects = "No problems found in the objects that could be read."
)

func messageFindings(number int) string {
	return fmt.Sprintf("%d findings, most likely cause first.", number)
}
