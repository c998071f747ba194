// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"strings"
	"time"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

const (
	// mostTypes is how many types a terminal shows: those with the most objects left.
	mostTypes = 12
	// mostFindings is how many findings are shown while somebody waits.
	mostFindings = 3
	barWidth     = 24
)

// draw shows what remains.
func (d *death) draw() {
	waitsFor := d.waitsFor()
	colours := d.palette(d.display.out)
	if !d.display.isLive {
		d.display.show(append(plainCountdown(d.countdown), plainWaits(waitsFor)...))
		return
	}
	lines := []string{headLine(d, colours)}
	lines = append(lines, countdownLines(d.countdown, colours)...)
	columns := width(d.display.out)
	for _, phrase := range waitsFor {
		lines = append(lines, "  "+colours.faint(clip("waits for "+phrase, columns-3)))
	}
	d.display.show(lines)
}

// waitsFor returns what the Namespace says of its end, without what the counts say better.
func (d *death) waitsFor() []string {
	if d.hasWarned { // not everything could be counted
		phrases, _ := whatHoldsDeletion(d.namespace)
		return phrases
	}
	return append(deletionFailures(d.namespace), deletionHolders(d.namespace)...)
}

func headLine(d *death, colours palette) string {
	text := fmt.Sprintf("Deleting namespace %s  %s", colours.bold(d.name), time.Since(d.started).Round(time.Second))
	if most, left := d.countdown.totals(); most > 0 {
		text += fmt.Sprintf("  %s  %d of %d objects left", bar(most-left, most, barWidth, colours), left, most)
	}
	return text
}

// countdownLines makes one line with a bar for each type that is left.
func countdownLines(countdown *countdown, colours palette) []string {
	var lines []string
	others, longest := 0, 0
	names := countdown.resources()
	for _, name := range names[:min(len(names), mostTypes)] {
		if countdown.now[name] > 0 {
			longest = max(longest, len(name))
		}
	}
	for i, name := range names {
		most, left := countdown.most[name], countdown.now[name]
		switch {
		case left == 0:
		case i >= mostTypes:
			others += left
		default:
			lines = append(lines, fmt.Sprintf("  %-*s  %s  %d of %d left",
				longest, name, bar(most-left, most, barWidth, colours), left, most))
		}
	}
	if others > 0 {
		lines = append(lines, fmt.Sprintf("  and %s of other types", count(others, "object")))
	}
	return lines
}

// plainCountdown makes one line for each type that there was, for a pipe.
func plainCountdown(countdown *countdown) []string {
	var lines []string
	for _, name := range countdown.resources() {
		lines = append(lines, fmt.Sprintf("%s: %d of %d left", name, countdown.now[name], countdown.most[name]))
	}
	return lines
}

func plainWaits(phrases []string) []string {
	var lines []string
	for _, phrase := range phrases {
		lines = append(lines, "waits for "+clip(phrase, unlimited))
	}
	return lines
}

// verdictLines makes a few lines of a diagnosis, for somebody who waits.
func verdictLines(verdict *diagnosis.Diagnosis, colours palette) []string {
	if verdict.State != diagnosis.Blocked {
		return []string{"There is nothing to blame yet: " + printable.Escape(verdict.Summary)}
	}
	var lines []string
	for i := range verdict.Findings[:min(len(verdict.Findings), mostFindings)] {
		finding := &verdict.Findings[i]
		lines = append(lines, fmt.Sprintf("%s (%s): %s",
			colours.red(string(finding.Cause)), strings.ToLower(string(finding.Certainty)), printable.Escape(finding.Message)))
		if len(finding.Remedies) > 0 {
			lines = append(lines, "  "+colours.cyan("Try: ")+printable.Escape(finding.Remedies[0]))
		}
	}
	if more := len(verdict.Findings) - mostFindings; more > 0 {
		lines = append(lines, fmt.Sprintf("and %s", count(more, "more finding")))
	}
	return lines
}

// summarize names the first of several problems and counts the others.
func summarize(problems []string) string {
	if len(problems) == 1 {
		return problems[0]
	}
	return fmt.Sprintf("%s; and %s", problems[0], count(len(problems)-1, "more problem"))
}
