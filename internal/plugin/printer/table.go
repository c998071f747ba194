// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// PrintTable escapes the cells of a table and writes the table. It includes columns with a priority
// above 0 only if isWide is set.
func PrintTable(out io.Writer, table *metav1.Table, isWide, noHeaders bool) error {
	for _, row := range table.Rows {
		for i, cell := range row.Cells {
			row.Cells[i] = printable.Escape(fmt.Sprint(cell))
		}
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: isWide, NoHeaders: noHeaders}).PrintObj(table, out)
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
