// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// screen is what text is made for.
type screen struct {
	// columns is 0 where nothing is to be wrapped.
	columns int
	colours palette
	// now is what ages are counted from.
	now time.Time
}

// renderDiagnosis makes the text for people: how a namespace is getting on, and the
// findings as a tree.
func renderDiagnosis(result *diagnosis.Diagnosis, screen screen) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Namespace %s: %s, %s\n", screen.colours.bold(result.Namespace), stageFor(result, screen.now),
		colourState(result.State, screen.colours))
	for _, line := range wrap(printable.Escape(summaryOf(result)), screen.columns) {
		out.WriteString(line + "\n")
	}
	if len(result.Findings) > 0 {
		out.WriteString("\n")
		out.WriteString(renderTree(findingBranches(result, screen.colours), screen.columns))
	}
	return out.String()
}

// stageFor says since when a namespace has been in its stage.
func stageFor(result *diagnosis.Diagnosis, now time.Time) string {
	if result.Since.IsZero() {
		return string(result.Stage)
	}
	return fmt.Sprintf("%s for %s", result.Stage, duration.HumanDuration(max(0, now.Sub(result.Since))))
}

func colourState(state diagnosis.State, colours palette) string {
	text := strings.ToLower(string(state))
	switch state {
	case diagnosis.Blocked:
		return colours.red(text)
	case diagnosis.Progressing:
		return colours.yellow(text)
	}
	return colours.green(text)
}

// summaryOf is the sentence below the name. It never says more than could be read.
func summaryOf(result *diagnosis.Diagnosis) string {
	switch number := len(result.Findings); {
	case number == 1:
		return "One finding."
	case number > 1:
		return fmt.Sprintf("%d findings, the most likely cause first.", number)
	}
	summary := sentence(result.Summary)
	switch {
	case len(result.Unread) > 0:
		return strings.TrimSpace(summary + " Nothing to blame was found in what could be read.")
	case result.State == diagnosis.Progressing:
		return strings.TrimSpace(summary + " There is nothing to blame.")
	}
	return summary
}

// sentence makes a sentence of a phrase.
func sentence(phrase string) string {
	if phrase == "" {
		return ""
	}
	first := []rune(phrase)[:1]
	text := strings.ToUpper(string(first)) + strings.TrimPrefix(phrase, string(first))
	if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "?") || strings.HasSuffix(text, "!") {
		return text
	}
	return text + "."
}

func findingBranches(result *diagnosis.Diagnosis, colours palette) []branch {
	branches := make([]branch, 0, len(result.Findings))
	for i := range result.Findings {
		branches = append(branches, findingBranch(&result.Findings[i], result.Namespace, colours))
	}
	return branches
}

func findingBranch(finding *diagnosis.Finding, namespace string, colours palette) branch {
	paint := colours.yellow
	if finding.Certainty == diagnosis.Confirmed {
		paint = colours.red
	}
	node := branch{
		label: fmt.Sprintf("%s (%s)", finding.Cause, strings.ToLower(string(finding.Certainty))),
		text:  finding.Message, paint: paint,
	}
	if len(finding.Objects) > 0 {
		node.children = append(node.children, branch{
			label: "Objects", text: listObjects(finding.Objects, finding.Count, namespace), paint: colours.faint,
		})
	}
	node.children = append(node.children, several("Evidence", finding.Evidence, colours)...)
	node.children = append(node.children, several("What to do", finding.Remedies, colours)...)
	if finding.Loss != "" {
		node.children = append(node.children, branch{
			label: "Forcing it would lose", text: finding.Loss, paint: colours.faint,
		})
	}
	return node
}

// several makes one branch of one text, and a branch with branches of more.
func several(label string, texts []string, colours palette) []branch {
	if len(texts) == 0 {
		return nil
	}
	node := branch{label: label, paint: colours.faint}
	if len(texts) == 1 && !shell.IsCommand(texts[0]) {
		node.text = texts[0]
		return []branch{node}
	}
	for _, text := range texts {
		child := branch{text: text}
		if shell.IsCommand(text) {
			child.isVerbatim, child.paint = true, colours.cyan
		}
		node.children = append(node.children, child)
	}
	return []branch{node}
}

// listObjects names objects as arguments of kubectl, and counts those that are not named. It
// includes only namespaces other than the given one.
func listObjects(objects []diagnosis.Object, number int, namespace string) string {
	names := make([]string, 0, len(objects)+1)
	for _, object := range objects {
		name := object.Resource + "/" + printable.Name(object.Name)
		if object.Namespace != "" && object.Namespace != namespace {
			name += " in namespace " + object.Namespace
		}
		names = append(names, name)
	}
	if number > len(objects) {
		names = append(names, fmt.Sprintf("and %d more", number-len(objects)))
	}
	return strings.Join(slices.Clip(names), ", ")
}
