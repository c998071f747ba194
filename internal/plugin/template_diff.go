// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// maxExamples is the number of namespaces that are printed for each kind of change.
const maxExamples = 3

type templateDiffOptions struct {
	templateSource
	output printer.Output
	all    bool
}

func newTemplateDiffCommand(session *session) *cobra.Command {
	options := &templateDiffOptions{templateSource: templateSource{session: session}}
	command := &cobra.Command{
		Use:   "diff (NAME | -f FILE)",
		Short: "Show what a NamespaceTemplate would change in all namespaces",
		Long: `Show what a NamespaceTemplate in a file would change in all namespaces that it selects.
With NAME, show what the operator must still change.

The command compares the rendered objects with what each namespace records, as the operator
does. Changes by other clients are not included. For the first namespaces of each kind of
change, or all with --all, it applies the objects as a server-side dry run with your own
permissions, and prints the fields that differ in the cluster: whether an object that exists
is adopted, adopted and changed, or refused. Where a dry run is not
possible, it prints the fields that differ between the two templates instead. An object that
fails in all namespaces that were tried is likely to fail in the others.

With --namespace, the command compares only this namespace, and prints why the template is not
applied to it.

Exit status: 0 success, 1 error, or the template fails in a namespace.`,
		Example: `  # Show what a changed template would do
  kubectl nslifecycle template diff -f team.yaml

  # Show it for one namespace
  kubectl nslifecycle template diff -f team.yaml --namespace=shop

  # Print the names of the namespaces that would change
  kubectl nslifecycle template diff -f team.yaml -o json | jq -r '.items[].namespace'`,
		Args:              options.validate,
		ValidArgsFunction: session.completeTemplate,
		RunE:              runWithContext(options.run),
	}
	options.addFlag(command)
	options.output.AddFlag(command)
	command.Flags().BoolVarP(&options.all, "all", "A", false, "If true, print the changes of all namespaces.")
	return command
}

func (o *templateDiffOptions) run(ctx context.Context, args []string) error {
	changed, err := o.read(ctx, args)
	if err != nil {
		return err
	}
	current := changed
	if o.filename != "" {
		// The age of the template decides whether it applies to namespaces in which its initializer timed out.
		if current, changed.CreationTimestamp, err = o.current(ctx, changed.Name); err != nil {
			return err
		}
	}
	namespaces, err := o.templateNamespaces(ctx, *o.flags.Namespace)
	if err != nil {
		return err
	}
	result := templates.Compare(ctx, changed, current, namespaces)
	if *o.flags.Namespace != "" {
		reader, err := o.templates()
		if err != nil {
			return err
		}
		all, err := reader.list(ctx)
		if err != nil {
			o.warnf("%v", err)
		}
		if state, err := template.ParseRecord(&namespaces[0]); err == nil {
			result.Match = new(template.ComputeMatch(changed.NamespaceTemplate, &namespaces[0], state, all))
		}
	}
	limit := maxExamples
	if o.all {
		limit = 0
	}
	untested, err := o.dryRun(ctx, result, result.Examples(limit))
	if err != nil {
		return err
	}
	result.Infer()
	examples := result.Examples(limit)
	if o.output.IsStructured() {
		err = o.output.Print(o.Out, "TemplateComparison", result)
	} else {
		err = printComparison(o.Out, result, examples)
	}
	o.warnEach("Some objects could not be tested with a dry run", untested)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	if result.Namespaces[templates.Failed] > 0 {
		return &StatusError{Code: ExitError}
	}
	return nil
}

// current returns the template of the cluster, or nil if it does not exist or is invalid, and its creation timestamp,
// or the current time if it does not exist.
func (o *templateDiffOptions) current(
	ctx context.Context, name string,
) (current *templates.Template, created metav1.Time, err error) {
	_, object, err := o.template(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, metav1.Now(), nil
	case err != nil:
		return nil, metav1.Time{}, err
	}
	current, err = templates.Compile(object)
	if err != nil {
		o.warnf("The fields that change are unknown where no dry run is possible: %v", err)
	}
	return current, object.CreationTimestamp, nil
}

// dryRun adds the results of server-side dry runs to the examples. It returns what was not tested.
func (o *templateDiffOptions) dryRun(
	ctx context.Context, result *templates.Comparison, examples []*templates.NamespaceChange,
) ([]string, error) {
	reader, err := o.operatorClient()
	if err != nil {
		return nil, err
	}
	writer, err := o.templateWriter()
	if err != nil {
		return nil, err
	}
	writer.IsUser = true
	runner := &templates.DryRunner{Reader: reader, Writer: writer}
	var untested []string
	for _, example := range examples {
		untested = append(untested, runner.Run(ctx, result, example)...)
	}
	slices.Sort(untested)
	return slices.Compact(untested), nil
}

const (
	// maxFields is the maximum number of fields that are printed for an object. maxFieldPath and maxFieldValue are the
	// maximum lengths of a path and of a value.
	maxFields     = 8
	maxFieldPath  = 36
	maxFieldValue = 24
)

// printComparison prints the numbers of changes, and examples.
func printComparison(out io.Writer, result *templates.Comparison, examples []*templates.NamespaceChange) error {
	var text bytes.Buffer
	writeRevisions(&text, result)
	table := printer.NewTable("", "Unchanged", "Changed", "Replaced", "Created", "Adopted", "Deleted", "Failed")
	addRow := func(title string, counts map[templates.Change]int) {
		printer.AddRow(table, title, counts[templates.Unchanged], counts[templates.Changed], counts[templates.Replaced],
			counts[templates.Created], counts[templates.Adopted], counts[templates.Deleted], counts[templates.Failed])
	}
	addRow("Namespaces", result.Namespaces)
	addRow("Objects", result.Objects)
	if err := printer.NewTablePrinter(&text, false, false).Print(table); err != nil {
		return err
	}
	for _, note := range comparisonNotes(result, len(examples)) {
		fmt.Fprintln(&text, printer.Wrap(note))
	}
	for _, example := range examples {
		writeExample(&text, example)
	}
	if more := len(result.Items) - len(examples); more > 0 {
		fmt.Fprintf(&text, "\n%s not shown. Use --all to print all changes.\n", printable.Count(more, "more namespace"))
	}
	_, err := out.Write(text.Bytes())
	return err
}

// comparisonNotes returns why the template is not applied to the only namespace, what dry runs of some have shown, and
// which namespaces are not included.
func comparisonNotes(result *templates.Comparison, examples int) []string {
	var notes []string
	if match := result.Match; match != nil && match.Reason != "" {
		notes = append(notes, printer.Sentence(matchTexts[match.Result]+": "+match.Reason))
	}
	if total := len(result.Items); total > 0 {
		note := fmt.Sprintf("Tried %d of %s by dry run.", result.Tried, printable.Count(total, "namespace"))
		if result.Tried < total {
			note += " The result for the rest is inferred from records."
		}
		notes = append(notes, note)
	}
	if likely := result.Namespaces[templates.LikelyFailed]; likely > 0 {
		notes = append(notes, fmt.Sprintf("Likely to fail, not tried: %s with an object that fails wherever it was tried.",
			printable.Count(likely, "namespace")))
	}
	if examples < len(result.Items) && result.MayFail() {
		notes = append(notes, "Some namespaces that were tried fail, so the rest can fail, too: use --all to try all.")
	}
	if result.Existing > 0 {
		notes = append(notes, "Not included: "+printable.Count(result.Existing, "selected namespace")+
			" not created with the template, whose scope is NewNamespaces.")
	}
	if result.Unselected > 0 {
		notes = append(notes, "Not included: "+printable.Count(result.Unselected, "namespace")+
			" no longer selected, whose objects remain.")
	}
	return notes
}

func writeRevisions(text *bytes.Buffer, result *templates.Comparison) {
	switch result.Current {
	case "":
		fmt.Fprintf(text, "Template %s is new (revision %s).", result.Template, result.Revision)
	case result.Revision:
		fmt.Fprintf(text, "Template %s has the same revision in the cluster: %s.", result.Template, result.Revision)
	default:
		fmt.Fprintf(text, "Template %s: revision %s replaces %s.", result.Template, result.Revision, result.Current)
	}
	text.WriteString("\n\n")
}

// writeExample writes what changes in a namespace.
func writeExample(text *bytes.Buffer, example *templates.NamespaceChange) {
	fmt.Fprintf(text, "\nNamespace %s: %s\n", example.Namespace, changeText(example.Change))
	if example.Message != "" {
		fmt.Fprintln(text, printer.WrapIndented(example.Message, "  "))
	}
	for i := range example.Objects {
		object := &example.Objects[i]
		fmt.Fprintf(text, "  %s %s %s", cmp.Or(signs[object.Change], "~"), printable.Escape(object.Kind),
			printable.Name(object.Name))
		if object.Object != "" {
			fmt.Fprintf(text, " (object %s)", printable.Escape(object.Object))
		}
		text.WriteString("\n")
		if object.Message != "" {
			fmt.Fprintln(text, printer.WrapIndented(object.Message, "      "))
		}
		for _, field := range object.Fields[:min(len(object.Fields), maxFields)] {
			writeField(text, field)
		}
		if more := len(object.Fields) - maxFields; more > 0 {
			fmt.Fprintf(text, "      and %s\n", printable.Count(more, "more field"))
		}
	}
}

func changeText(change templates.Change) string {
	if change == templates.LikelyFailed {
		return "likely to fail"
	}
	return strings.ToLower(string(change))
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

// signs contains the sign that is printed before an object with each kind of change. The default is "~".
var signs = map[templates.Change]string{
	templates.Created: "+", templates.Adopted: "+", templates.Deleted: "-",
	templates.Failed: "!", templates.LikelyFailed: "!",
}
