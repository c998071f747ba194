// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// TableOptions select how a table is printed.
type TableOptions struct {
	// IsWide includes columns with a priority above 0, and prints each row as one line.
	IsWide, NoHeaders bool
	// Columns is the width to which the last column is wrapped.
	Columns int
}

// PrintTable escapes the cells of a table and writes the table. The lines of a cell in the last
// column below its first line start with a space.
func PrintTable(out io.Writer, table *metav1.Table, options TableOptions) error {
	for _, row := range table.Rows {
		for i, cell := range row.Cells {
			row.Cells[i] = printable.Escape(fmt.Sprint(cell))
		}
	}
	if !options.IsWide {
		table = wrapLastColumn(table, options.Columns)
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: options.IsWide, NoHeaders: options.NoHeaders}).
		PrintObj(table, out)
}

// wrapLastColumn returns the narrow columns of a table. A cell in the last of them that does not fit
// into the given width is continued in additional rows.
func wrapLastColumn(table *metav1.Table, columns int) *metav1.Table {
	const separator = 3 // spaces that the printer adds after each column
	var shown []int
	available := columns
	for i, definition := range table.ColumnDefinitions {
		if definition.Priority > 0 {
			continue
		}
		if len(shown) > 0 {
			available -= columnWidth(table, shown[len(shown)-1]) + separator
		}
		shown = append(shown, i)
	}
	wrapped := &metav1.Table{}
	for _, i := range shown {
		wrapped.ColumnDefinitions = append(wrapped.ColumnDefinitions, table.ColumnDefinitions[i])
	}
	last := len(shown) - 1
	for _, row := range table.Rows {
		cells := make([]any, len(shown))
		for i, from := range shown {
			cells[i] = row.Cells[from]
		}
		for _, line := range wrap(fmt.Sprint(cells[last]), available) {
			cells[last] = line
			wrapped.Rows = append(wrapped.Rows, metav1.TableRow{Cells: cells})
			cells = slices.Repeat([]any{""}, len(shown))
		}
	}
	return wrapped
}

func columnWidth(table *metav1.Table, column int) int {
	width := len(table.ColumnDefinitions[column].Name)
	for _, row := range table.Rows {
		width = max(width, len([]rune(fmt.Sprint(row.Cells[column]))))
	}
	return width
}

// Columns returns the column definitions of a table. The prefix + marks columns that are printed
// only in wide tables.
func Columns(names ...string) []metav1.TableColumnDefinition {
	definitions := make([]metav1.TableColumnDefinition, 0, len(names))
	for _, name := range names {
		name, isWide := strings.CutPrefix(name, "+")
		definition := metav1.TableColumnDefinition{Name: name, Type: "string"}
		if isWide {
			definition.Priority = 1
		}
		definitions = append(definitions, definition)
	}
	return definitions
}

// Age returns the time since a timestamp as kubectl prints it.
func Age(since metav1.Time, now time.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(since.Time))
}

// OrNone returns text, or <none> if it is empty.
func OrNone(text string) string { return cmp.Or(text, "<none>") }

// YesOrNo returns "yes" or "no".
func YesOrNo(value bool) string {
	if value {
		return "yes"
	}
	return "no"
}
