// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
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

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Output formats.
const (
	FormatJSON = "json"
	FormatYAML = "yaml"
	FormatName = "name"
	FormatWide = "wide"
)

// outputVersion is the apiVersion of the documents that commands print. No API server serves this
// version.
const outputVersion = "cli.nslifecycle.dev/v1alpha1"

// Output contains the flags of a command that prints a document or a table, such as kubectl get.
type Output struct {
	format    string
	noHeaders bool
}

// AddFlag adds the flag --output to a command, for JSON, YAML, templates and the given formats. The command fails if it
// does not support the format.
func (o *Output) AddFlag(command *cobra.Command, others ...string) {
	templates := genericclioptions.NewKubeTemplatePrintFlags().AllowedFormats()
	formats := slices.Concat([]string{FormatJSON, FormatYAML}, others, templates)
	command.Flags().StringVarP(&o.format, "output", "o", "",
		fmt.Sprintf("Output format. One of: (%s).", strings.Join(formats, ", ")))
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	command.PreRunE = func(*cobra.Command, []string) error {
		format, _, _ := strings.Cut(o.format, "=")
		if format == "" || slices.Contains(formats, format) {
			return nil
		}
		return fmt.Errorf("unknown output format %q; must be one of %s", o.format, strings.Join(formats, ", "))
	}
}

// AddTableFlags adds the flags --output and --no-headers to a command that prints a table.
func (o *Output) AddTableFlags(command *cobra.Command, others ...string) {
	o.AddFlag(command, others...)
	command.Flags().BoolVar(&o.noHeaders, "no-headers", false, "If true, do not print headers.")
}

// IsStructured reports whether the output is a document, or computed from one.
func (o *Output) IsStructured() bool { return o.format != "" && !o.IsWide() }

// IsWide reports whether the output is a table with all columns.
func (o *Output) IsWide() bool { return o.format == FormatWide }

// IsName reports whether the output contains only names.
func (o *Output) IsName() bool { return o.format == FormatName }

// NewTable returns how the command prints tables to a stream.
func (o *Output) NewTable(out io.Writer) *TablePrinter {
	return NewTablePrinter(out, o.IsWide(), o.noHeaders)
}

// Items returns the value of a list for Print.
func Items[T any](items []T) any { return map[string]any{"items": items} }

// Print writes a value as a document of the given kind.
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

// PrintObject writes an object. In JSON and YAML documents, it escapes all unprintable characters so
// that decoders read the original values. The escaping of the stream would change the values.
func (o *Output) PrintObject(out io.Writer, object runtime.Object) error {
	if o.format != FormatJSON && o.format != FormatYAML {
		printer, err := genericclioptions.NewKubeTemplatePrintFlags().ToPrinter(o.format)
		if err != nil {
			return fmt.Errorf("invalid output format %q: %w", o.format, err)
		}
		return printer.PrintObj(object, out)
	}
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
		if text, err = YAML(document.Bytes()); err != nil {
			return err
		}
	}
	_, err = out.Write(text)
	return err
}

// TablePrinter prints tables with the same columns, for example whenever an object changes.
type TablePrinter struct {
	printer printers.ResourcePrinter
	out     interface {
		io.Writer
		Flush() error
	}
}

// NewTablePrinter returns a TablePrinter that writes to a stream. A wide table also has the columns with a priority
// above 0.
func NewTablePrinter(out io.Writer, isWide, noHeaders bool) *TablePrinter {
	return &TablePrinter{
		printer: printers.NewTablePrinter(printers.PrintOptions{Wide: isWide, NoHeaders: noHeaders}),
		out:     printers.GetNewTabWriter(out),
	}
}

// Print escapes the cells of a table and writes the table.
func (p *TablePrinter) Print(table *metav1.Table) error {
	for _, row := range table.Rows {
		for i, cell := range row.Cells {
			row.Cells[i] = printable.Escape(fmt.Sprint(cell))
		}
	}
	return errors.Join(p.printer.PrintObj(table, p.out), p.out.Flush())
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
