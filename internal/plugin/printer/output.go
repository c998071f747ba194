// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/nslifecycle/nslifecycle/internal/backup"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Output formats.
const (
	FormatJSON = "json"
	FormatYAML = "yaml"
	FormatWide = "wide"
)

// outputVersion is the apiVersion of the documents that commands print. No API server serves this
// version.
const outputVersion = "cli.nslifecycle.dev/v1alpha1"

// Output has the flags of a command that prints a document or a table.
type Output struct {
	format    string
	noHeaders bool
}

// AddFlag adds the flag --output to a command, for JSON, YAML and the given formats. The command fails if it does not
// support the format.
func (o *Output) AddFlag(command *cobra.Command, others ...string) {
	formats := append([]string{FormatJSON, FormatYAML}, others...)
	command.Flags().StringVarP(&o.format, "output", "o", "",
		fmt.Sprintf("Output format. One of: (%s).", strings.Join(formats, ", ")))
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	command.PreRunE = func(*cobra.Command, []string) error {
		if o.format == "" || slices.Contains(formats, o.format) {
			return nil
		}
		return fmt.Errorf("unknown output format %q; must be one of %s", o.format, strings.Join(formats, ", "))
	}
}

// AddNoHeaders adds the flag --no-headers to a command.
func (o *Output) AddNoHeaders(command *cobra.Command) {
	command.Flags().BoolVar(&o.noHeaders, "no-headers", false, "If true, do not print headers.")
}

// IsStructured reports whether the output is a JSON or YAML document.
func (o *Output) IsStructured() bool { return o.format == FormatJSON || o.format == FormatYAML }

// TableOptions returns how the command prints a table to a stream.
func (o *Output) TableOptions(out io.Writer) TableOptions {
	return TableOptions{IsWide: o.format == FormatWide, NoHeaders: o.noHeaders, Columns: Width(out)}
}

// Items returns the value of a list for Print.
func Items[T any](items []T) any { return map[string]any{"items": items} }

// Print writes a value as a JSON or YAML document of the given kind.
func (o *Output) Print(out io.Writer, kind string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("failed to encode %s: %w", kind, err)
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &object.Object); err != nil {
		return fmt.Errorf("failed to encode %s: %w", kind, err)
	}
	object.SetAPIVersion(outputVersion)
	object.SetKind(kind)
	return o.PrintObject(out, object)
}

// PrintObject writes an object as a JSON or YAML document. It escapes all unprintable characters so
// that decoders read the original values. The escaping of the stream would change the values.
func (o *Output) PrintObject(out io.Writer, object runtime.Object) error {
	printer, err := genericclioptions.NewJSONYamlPrintFlags().ToPrinter(FormatJSON)
	if err != nil {
		return err
	}
	var document bytes.Buffer
	if err := printer.PrintObj(object, &document); err != nil {
		return err
	}
	text := []byte(printable.JSON(document.String()))
	if o.format == FormatYAML {
		if text, err = backup.YAML(document.Bytes()); err != nil {
			return err
		}
	}
	_, err = out.Write(text)
	return err
}

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

// NewTable returns a table without rows. The prefix + marks columns that are printed only in wide tables.
func NewTable(columns ...string) *metav1.Table {
	table := &metav1.Table{}
	for _, name := range columns {
		name, isWide := strings.CutPrefix(name, "+")
		definition := metav1.TableColumnDefinition{Name: name, Type: "string"}
		if isWide {
			definition.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, definition)
	}
	return table
}

// AddRow adds a row to a table.
func AddRow(table *metav1.Table, cells ...any) {
	table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
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
