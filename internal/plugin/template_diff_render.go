// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

const (
	// maxFields is the number of fields of an object that are printed, and maxFieldPath and maxFieldValue
	// the length of their paths and values.
	maxFields     = 8
	maxFieldPath  = 36
	maxFieldValue = 24
)

var comparisonColumns = []string{"", "Unchanged", "Changed", "Created", "Deleted", "Failed"}

// printComparison prints the numbers of changes, and examples.
func printComparison(out io.Writer, result *templates.Comparison, examples []*templates.NamespaceChange) error {
	var text bytes.Buffer
	writeRevisions(&text, result)
	table := &metav1.Table{ColumnDefinitions: printer.Columns(comparisonColumns...)}
	for _, row := range []struct {
		title  string
		counts map[templates.Change]int
	}{{"Namespaces", result.Namespaces}, {"Objects", result.Objects}} {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			row.title, row.counts[templates.Unchanged], row.counts[templates.Changed], row.counts[templates.Created],
			row.counts[templates.Deleted], row.counts[templates.Failed],
		}})
	}
	if err := printer.PrintTable(&text, table, printer.TableOptions{Columns: printer.Width(out)}); err != nil {
		return err
	}
	width := printer.TextWidth(out)
	if result.Existing > 0 {
		existing := printable.Count(result.Existing, "selected namespace")
		fmt.Fprintln(&text, printer.Wrap(fmt.Sprintf(msgDiffExisting, existing), width))
	}
	if result.Unselected > 0 {
		unselected := printable.Count(result.Unselected, "namespace")
		fmt.Fprintln(&text, printer.Wrap(fmt.Sprintf(msgDiffUnselected, unselected), width))
	}
	colors := printer.NewPalette(out)
	for _, example := range examples {
		writeExample(&text, example, width, colors)
	}
	if more := len(result.Items) - len(examples); more > 0 {
		fmt.Fprintf(&text, "\n"+msgDiffMore+"\n", printable.Count(more, "more namespace"))
	}
	_, err := out.Write(text.Bytes())
	return err
}

func writeRevisions(text *bytes.Buffer, result *templates.Comparison) {
	switch result.Current {
	case "":
		fmt.Fprintf(text, msgDiffNew, result.Template, result.Revision)
	case result.Revision:
		fmt.Fprintf(text, msgDiffSame, result.Template, result.Revision)
	default:
		fmt.Fprintf(text, msgDiffRevisions, result.Template, result.Revision, result.Current)
	}
	text.WriteString("\n\n")
}

// writeExample writes what changes in a namespace.
func writeExample(text *bytes.Buffer, example *templates.NamespaceChange, width int, colors printer.Palette) {
	fmt.Fprintf(text, "\nNamespace %s: %s\n", colors.Bold(example.Namespace), strings.ToLower(string(example.Change)))
	if example.Message != "" {
		writeIndented(text, "  ", example.Message, width)
	}
	for i := range example.Objects {
		object := &example.Objects[i]
		fmt.Fprintf(text, "  %s %s %s (object %s)\n", sign(object.Change, colors), printable.Escape(object.Kind),
			printable.Name(object.Name), printable.Escape(object.Object))
		if object.Message != "" {
			writeIndented(text, "      ", object.Message, width)
		}
		for _, field := range object.Fields[:min(len(object.Fields), maxFields)] {
			writeField(text, field)
		}
		if more := len(object.Fields) - maxFields; more > 0 {
			fmt.Fprintf(text, "      "+msgMoreFields+"\n", printable.Count(more, "more field"))
		}
	}
}

func writeField(text *bytes.Buffer, field templates.FieldChange) {
	shorten := func(value string) string {
		if value == "" {
			return "<none>"
		}
		if runes := []rune(value); len(runes) > maxFieldValue {
			value = string(runes[:maxFieldValue-3]) + "..."
		}
		return printable.Escape(value)
	}
	path := []rune(printable.Escape(field.Path))
	if len(path) > maxFieldPath {
		path = slices.Concat([]rune("..."), path[len(path)-maxFieldPath+3:])
	}
	fmt.Fprintf(text, "      %s: %s -> %s\n", string(path), shorten(field.Before), shorten(field.After))
}

func writeIndented(text *bytes.Buffer, indent, message string, width int) {
	wrapped := printer.Wrap(message, width-len(indent))
	fmt.Fprintln(text, indent+strings.ReplaceAll(wrapped, "\n", "\n"+indent))
}

func sign(change templates.Change, colors printer.Palette) string {
	switch change {
	case templates.Created:
		return colors.Green("+")
	case templates.Deleted:
		return colors.Red("-")
	case templates.Failed:
		return colors.Red("!")
	}
	return colors.Yellow("~")
}
