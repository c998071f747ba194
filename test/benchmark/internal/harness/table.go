// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Table is a table in a report.
type Table struct {
	Title  string
	Header []string
	Rows   [][]string
	Note   string
}

// Text formats a report for a terminal. Tables without rows are omitted.
func Text(facts []string, tables []Table) string {
	var out strings.Builder
	for _, fact := range facts {
		fmt.Fprintf(&out, "%s\n", fact)
	}
	for _, table := range tables {
		if len(table.Rows) == 0 {
			continue
		}
		fmt.Fprintf(&out, "\n%s\n\n", table.Title)
		widths := table.widths()
		for _, row := range append([][]string{table.Header}, table.Rows...) {
			for i, cell := range row {
				if i == len(row)-1 {
					fmt.Fprintf(&out, "%s\n", cell)
					continue
				}
				fmt.Fprintf(&out, "%s%s", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		if table.Note != "" {
			fmt.Fprintf(&out, "\n%s\n", table.Note)
		}
	}
	return out.String()
}

// Markdown formats a report for the documentation. Tables without rows are omitted.
func Markdown(facts []string, tables []Table) string {
	var out strings.Builder
	for _, fact := range facts {
		fmt.Fprintf(&out, "- %s\n", fact)
	}
	for _, table := range tables {
		if len(table.Rows) == 0 {
			continue
		}
		fmt.Fprintf(&out, "\n**%s**\n\n| %s |\n|%s\n", table.Title,
			strings.Join(table.Header, " | "), strings.Repeat(" --- |", len(table.Header)))
		for _, row := range table.Rows {
			fmt.Fprintf(&out, "| %s |\n", strings.Join(row, " | "))
		}
		if table.Note != "" {
			fmt.Fprintf(&out, "\n%s\n", table.Note)
		}
	}
	return out.String()
}

func (t Table) widths() []int {
	widths := make([]int, len(t.Header))
	for _, row := range append([][]string{t.Header}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// FormatDuration formats a duration with three significant digits, but no more than two decimal
// places in milliseconds.
func FormatDuration(duration time.Duration) string {
	// Avoid "-0.00 ms".
	if duration <= -5*time.Microsecond {
		return "-" + FormatDuration(-duration)
	}
	duration = max(duration, 0)
	switch {
	case duration < 9995*time.Microsecond:
		return fmt.Sprintf("%.2f ms", duration.Seconds()*1000)
	case duration < 99950*time.Microsecond:
		return fmt.Sprintf("%.1f ms", duration.Seconds()*1000)
	case duration < 999500*time.Microsecond:
		return fmt.Sprintf("%.0f ms", duration.Seconds()*1000)
	}
	return fmt.Sprintf("%.1f s", duration.Seconds())
}

// FormatMemory formats bytes as MiB.
func FormatMemory(size int64) string { return fmt.Sprintf("%.0f MiB", float64(size)/(1<<20)) }
