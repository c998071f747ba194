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
	// maxWaitingFor is the maximum length of a text about what the Namespace waits for.
	maxWaitingFor = 300
)

// draw shows the remaining objects and what the Namespace waits for.
func (w *deleteWaiter) draw() {
	columns := printer.TextWidth(w.display.Out)
	if !w.display.IsLive {
		w.display.Show(plainProgressLines(w.progress))
		for _, text := range w.waitingFor() {
			if w.isNew(text) {
				w.display.Printf("%s", waitingForText(text, columns))
			}
		}
		return
	}
	colors := printer.NewPalette(w.display.Out)
	lines := []string{headerLine(w, columns, colors)}
	lines = append(lines, barLines(w.progress, columns, colors)...)
	for _, text := range w.waitingFor() {
		lines = append(lines, colors.Faint("  "+waitingForText(text, columns)))
	}
	w.display.Show(lines)
}

func waitingForText(text string, columns int) string {
	return printer.Wrap(fmt.Sprintf(msgWaitingFor, printer.Shorten(text, maxWaitingFor)), columns)
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

func headerLine(w *deleteWaiter, columns int, colors printer.Palette) string {
	elapsed := time.Since(w.started).Round(time.Second)
	text := fmt.Sprintf(msgDeleting, colors.Bold(w.name), elapsed)
	if highest, current := w.progress.totals(); highest > 0 {
		remaining := fmt.Sprintf(msgObjectsRemaining, current, highest)
		available := columns - len(fmt.Sprintf(msgDeleting, w.name, elapsed)) - len(remaining) - 4
		text += "  " + barText(highest, current, available, colors) + remaining
	}
	return text
}

// barText returns a progress bar of at most barWidth columns, followed by a separator.
func barText(highest, current, available int, colors printer.Palette) string {
	bar := printer.Bar(highest-current, highest, min(barWidth, available), colors)
	if bar != "" {
		bar += "  "
	}
	return bar
}

// barLines returns a line with a bar for each of the first maxShownTypes types that have remaining
// objects, and a line for the others.
func barLines(progress *deletionProgress, columns int, colors printer.Palette) []string {
	var lines []string
	others, longest, width := 0, 0, barWidth
	names := progress.resources()
	for _, name := range names[:min(len(names), maxShownTypes)] {
		if progress.current[name] > 0 {
			longest = max(longest, len(name))
		}
	}
	for _, name := range names {
		width = min(width, columns-longest-len(remainingText(progress, name))-6)
	}
	for i, name := range names {
		highest, current := progress.highest[name], progress.current[name]
		switch {
		case current == 0:
		case i >= maxShownTypes:
			others += current
		default:
			bar := barText(highest, current, width, colors)
			lines = append(lines, fmt.Sprintf("  %-*s  %s%s", longest, name, bar, remainingText(progress, name)))
		}
	}
	if others > 0 {
		lines = append(lines, fmt.Sprintf("  "+msgOtherTypes, printable.Count(others, "object")))
	}
	return lines
}

func remainingText(progress *deletionProgress, name string) string {
	return fmt.Sprintf(msgRemaining, progress.current[name], progress.highest[name])
}

// plainProgressLines returns a line for each type that has or had objects.
func plainProgressLines(progress *deletionProgress) []string {
	var lines []string
	for _, name := range progress.resources() {
		lines = append(lines, name+": "+remainingText(progress, name))
	}
	return lines
}

// diagnosisTexts returns the first findings of a diagnosis, each with its first remedy, or the reason
// why there are none.
func diagnosisTexts(result *diagnosis.Diagnosis, columns int, colors printer.Palette) []string {
	if result.State != diagnosis.Blocked {
		return []string{printer.Wrap(fmt.Sprintf(msgNoCauseFound, printable.Escape(result.Summary)), columns)}
	}
	var texts []string
	for i := range result.Findings[:min(len(result.Findings), maxShownFindings)] {
		finding := &result.Findings[i]
		cause := printer.FindingCause(finding)
		text := printer.Wrap(cause+": "+printable.Escape(finding.Message), columns)
		text = colors.Red(cause) + strings.TrimPrefix(text, cause)
		if remedy := firstRemedy(finding); remedy != "" {
			text += "\n" + printer.Continuation +
				printer.WrapCommand(labelTry+" "+printable.Escape(remedy), columns)
		}
		texts = append(texts, text)
	}
	return texts
}

// firstRemedy returns the first remedy that changes something, or else the first remedy.
func firstRemedy(finding *diagnosis.Finding) string {
	for _, remedy := range finding.Remedies {
		if remedy.Changes {
			return remedy.String()
		}
	}
	if len(finding.Remedies) > 0 {
		return finding.Remedies[0].String()
	}
	return ""
}
