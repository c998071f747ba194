// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"strings"
	"time"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

const (
	// maxShownTypes is the maximum number of types that are shown on a terminal. Types with the
	// most remaining objects are shown.
	maxShownTypes = 12
	// maxShownFindings is the maximum number of findings that are printed during the wait.
	maxShownFindings = 3
	barWidth         = 24
)

// draw shows the remaining objects and what the Namespace waits for.
func (w *deleteWaiter) draw() {
	waitingFor := w.waitingFor()
	if !w.display.IsLive {
		lines := plainProgressLines(w.progress)
		for _, text := range waitingFor {
			lines = append(lines, fmt.Sprintf(msgWaitingFor, printer.Clip(text, printer.Unlimited)))
		}
		w.display.Show(lines)
		return
	}
	colors := printer.NewPalette(w.display.Out)
	lines := []string{headerLine(w, colors)}
	lines = append(lines, barLines(w.progress, colors)...)
	columns := printer.Width(w.display.Out)
	for _, text := range waitingFor {
		lines = append(lines, "  "+colors.Faint(printer.Clip(fmt.Sprintf(msgWaitingFor, text), columns-3)))
	}
	w.display.Show(lines)
}

// waitingFor returns what the Namespace waits for. It omits the conditions that repeat the counts,
// unless some objects could not be counted.
func (w *deleteWaiter) waitingFor() []string {
	if w.hasUnread {
		texts, _ := deletionWaitsFor(w.namespace)
		return texts
	}
	return append(deletionFailures(w.namespace), deletionHolders(w.namespace)...)
}

func headerLine(w *deleteWaiter, colors printer.Palette) string {
	text := fmt.Sprintf(msgDeleting, colors.Bold(w.name), time.Since(w.started).Round(time.Second))
	if highest, current := w.progress.totals(); highest > 0 {
		bar := printer.Bar(highest-current, highest, barWidth, colors)
		text += "  " + bar + "  " + fmt.Sprintf(msgObjectsRemaining, current, highest)
	}
	return text
}

// barLines returns a line with a bar for each of the first maxShownTypes types that have remaining
// objects, and a line for the others.
func barLines(progress *deletionProgress, colors printer.Palette) []string {
	var lines []string
	others, longest := 0, 0
	names := progress.resources()
	for _, name := range names[:min(len(names), maxShownTypes)] {
		if progress.current[name] > 0 {
			longest = max(longest, len(name))
		}
	}
	for i, name := range names {
		highest, current := progress.highest[name], progress.current[name]
		switch {
		case current == 0:
		case i >= maxShownTypes:
			others += current
		default:
			bar := printer.Bar(highest-current, highest, barWidth, colors)
			lines = append(lines, fmt.Sprintf("  %-*s  %s  "+msgRemaining, longest, name, bar, current, highest))
		}
	}
	if others > 0 {
		lines = append(lines, fmt.Sprintf("  "+msgOtherTypes, printable.Count(others, "object")))
	}
	return lines
}

// plainProgressLines returns a line for each type that has or had objects.
func plainProgressLines(progress *deletionProgress) []string {
	var lines []string
	for _, name := range progress.resources() {
		lines = append(lines, fmt.Sprintf("%s: "+msgRemaining, name, progress.current[name], progress.highest[name]))
	}
	return lines
}

// diagnosisLines returns the first findings of a diagnosis, each with its first remedy.
func diagnosisLines(result *diagnosis.Diagnosis, colors printer.Palette) []string {
	if result.State != diagnosis.Blocked {
		return []string{fmt.Sprintf(msgNoCauseFound, printable.Escape(result.Summary))}
	}
	var lines []string
	for i := range result.Findings[:min(len(result.Findings), maxShownFindings)] {
		finding := &result.Findings[i]
		lines = append(lines, fmt.Sprintf("%s (%s): %s", colors.Red(string(finding.Cause)),
			strings.ToLower(string(finding.Rank)), printable.Escape(finding.Message)))
		if len(finding.Remedies) > 0 {
			lines = append(lines, "  "+colors.Cyan(labelTry)+" "+printable.Escape(finding.Remedies[0]))
		}
	}
	if more := len(result.Findings) - maxShownFindings; more > 0 {
		lines = append(lines, fmt.Sprintf(msgMoreFindings, printable.Count(more, "more finding")))
	}
	return lines
}
