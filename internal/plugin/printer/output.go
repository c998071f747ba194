// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"

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

// Output is the value of the flag --output.
type Output struct {
	format  string
	formats []string
}

// NewOutput returns the flag for a command that supports the given formats.
func NewOutput(formats ...string) *Output { return &Output{formats: formats} }

// AddFlag adds the flag to a command.
func (o *Output) AddFlag(command *cobra.Command) {
	command.Flags().StringVarP(&o.format, "output", "o", "", helpOutput(o.formats))
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats, cobra.ShellCompDirectiveNoFileComp))
}

// Validate returns an error if the command does not support the output format.
func (o *Output) Validate() error {
	if o.format == "" || slices.Contains(o.formats, o.format) {
		return nil
	}
	return fmt.Errorf("unknown output format %q; must be one of %s", o.format, strings.Join(o.formats, ", "))
}

// IsStructured reports whether the output is a JSON or YAML document.
func (o *Output) IsStructured() bool { return o.format == FormatJSON || o.format == FormatYAML }

// IsWide reports whether a table includes all columns.
func (o *Output) IsWide() bool { return o.format == FormatWide }

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
