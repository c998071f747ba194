// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/nslifecycle/nslifecycle/internal/backup"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Output formats.
const (
	outputJSON = "json"
	outputYAML = "yaml"
	outputWide = "wide"
)

// outputVersion is the apiVersion of what the commands print as JSON or YAML. It is no API
// of a server.
const outputVersion = "cli.nslifecycle.dev/v1alpha1"

// output is flag -o.
type output struct {
	format  string
	formats []string
}

// newOutput returns the flag with the formats that a command offers.
func newOutput(formats ...string) *output { return &output{formats: formats} }

// addFlag declares the flag for a command.
func (o *output) addFlag(command *cobra.Command) {
	command.Flags().StringVarP(&o.format, "output", "o", "", "Output format: one of "+strings.Join(o.formats, ", "))
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats, cobra.ShellCompDirectiveNoFileComp))
}

// validate returns an error for a format that the command does not offer.
func (o *output) validate() error {
	if o.format == "" || slices.Contains(o.formats, o.format) {
		return nil
	}
	return fmt.Errorf("unknown output format %q; use one of %s", o.format, strings.Join(o.formats, ", "))
}

// isStructured tells whether the output is for programs.
func (o *output) isStructured() bool { return o.format == outputJSON || o.format == outputYAML }

// isWide tells whether people want all columns.
func (o *output) isWide() bool { return o.format == outputWide }

// print writes a value as JSON or YAML, as an object of a kind.
func (o *output) print(out io.Writer, kind string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", kind, err)
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &object.Object); err != nil {
		return fmt.Errorf("encoding %s: %w", kind, err)
	}
	object.SetAPIVersion(outputVersion)
	object.SetKind(kind)
	return o.printObject(out, object)
}

// printObject writes an object as JSON or YAML in which all characters that are not printable are
// escaped. A stream would escape them in a way that changes the values.
func (o *output) printObject(out io.Writer, object runtime.Object) error {
	printer, err := genericclioptions.NewJSONYamlPrintFlags().ToPrinter(outputJSON)
	if err != nil {
		return err
	}
	var document bytes.Buffer
	if err := printer.PrintObj(object, &document); err != nil {
		return err
	}
	text := []byte(printable.JSON(document.String()))
	if o.format == outputYAML {
		if text, err = backup.YAML(document.Bytes()); err != nil {
			return err
		}
	}
	_, err = out.Write(text)
	return err
}

// printTable writes a table and escapes its cells. Columns with a priority above 0 appear only if
// it is wide.
func printTable(out io.Writer, table *metav1.Table, isWide, hasNoHeaders bool) error {
	for _, row := range table.Rows {
		for i, cell := range row.Cells {
			row.Cells[i] = printable.Escape(fmt.Sprint(cell))
		}
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: isWide, NoHeaders: hasNoHeaders}).PrintObj(table, out)
}

// columns defines the columns of a table by their names. A + marks one that only a wide
// table has.
func columns(names ...string) []metav1.TableColumnDefinition {
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
