// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
)

// stages are the valid values of the flag --stage.
var stages = []string{
	string(diagnosis.StageInitializing), string(diagnosis.StageActive), string(diagnosis.StageTerminating),
}

type listOptions struct {
	*session
	output    *printer.Output
	selector  string
	stage     string
	noHeaders bool
}

func newListCommand(session *session) *cobra.Command {
	options := &listOptions{
		session: session, output: printer.NewOutput(printer.FormatJSON, printer.FormatYAML, printer.FormatWide),
	}
	command := &cobra.Command{
		Use:               "list",
		Aliases:           []string{"ls"},
		Short:             shortList,
		Long:              longList,
		Example:           exampleList,
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command.Context())
		},
	}
	options.output.AddFlag(command)
	flags := command.Flags()
	flags.StringVarP(&options.selector, "selector", "l", "", helpSelector)
	flags.StringVar(&options.stage, "stage", "", helpStage(stages))
	flags.BoolVar(&options.noHeaders, "no-headers", false, helpNoHeaders)
	_ = command.RegisterFlagCompletionFunc("stage", cobra.FixedCompletions(stages, cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (o *listOptions) run(ctx context.Context) error {
	if err := o.output.Validate(); err != nil {
		return err
	}
	stage, err := parseStage(o.stage)
	if err != nil {
		return err
	}
	client, err := o.namespaces()
	if err != nil {
		return err
	}
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: o.selector})
	if err != nil {
		return fmt.Errorf(msgListNamespaces, err)
	}
	summaries := make([]namespaceSummary, 0, len(list.Items))
	for i := range list.Items {
		summary := computeSummary(&list.Items[i])
		if stage == "" || summary.Stage == stage {
			summaries = append(summaries, summary)
		}
	}
	slices.SortFunc(summaries, func(a, b namespaceSummary) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	return o.print(summaries)
}

func (o *listOptions) print(summaries []namespaceSummary) error {
	if o.output.IsStructured() {
		return o.output.Print(o.Out, "NamespaceSummaryList", printer.Items(summaries))
	}
	if len(summaries) == 0 {
		fmt.Fprintln(o.ErrOut, msgNoNamespaces)
		return nil
	}
	var text bytes.Buffer
	options := printer.TableOptions{IsWide: o.output.IsWide(), NoHeaders: o.noHeaders, Columns: printer.Width(o.Out)}
	if err := printer.PrintTable(&text, summaryTable(summaries, time.Now(), options.IsWide), options); err != nil {
		return err
	}
	_, err := o.Out.Write(colorStages(text.Bytes(), summaries, printer.NewPalette(o.Out)))
	return err
}

// parseStage returns the stage for a value of --stage, ignoring case.
func parseStage(text string) (diagnosis.Stage, error) {
	if text == "" {
		return "", nil
	}
	for _, stage := range stages {
		if strings.EqualFold(stage, text) {
			return diagnosis.Stage(stage), nil
		}
	}
	return "", fmt.Errorf(msgUnknownStage, text, strings.Join(stages, ", "))
}

// maxWaitsFor is the maximum length of a cell of the column "Waiting For" unless the output format is
// wide.
const maxWaitsFor = 200

// detailsPattern matches what follows the sentence in the message of a condition that reports a lack
// of progress.
var detailsPattern = regexp.MustCompile(`(; objects: |; remedy: | \(as of ).*`)

// summaryTable returns a table with one row for each namespace.
func summaryTable(summaries []namespaceSummary, now time.Time, isWide bool) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: printer.Columns(summaryColumns...)}
	for i := range summaries {
		summary := &summaries[i]
		first, others := "", ""
		if len(summary.WaitsFor) > 0 {
			first, others = summary.WaitsFor[0], strings.Join(summary.WaitsFor[1:], "; ")
		}
		if !isWide {
			first = printer.Shorten(detailsPattern.ReplaceAllString(first, ""), maxWaitsFor)
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			summary.Metadata.Name, string(summary.Stage),
			printer.Age(summary.Metadata.CreationTimestamp, now), printer.Age(summary.Since, now),
			printer.OrNone(summary.RequestedBy), printer.YesOrNo(summary.IsProtected),
			expirationText(summary.ExpiresAt, now), first, others,
		}})
	}
	return table
}

// colorStages colors the stages in a printed table. If the cells contained the colors, PrintTable
// would escape them.
func colorStages(text []byte, summaries []namespaceSummary, colors printer.Palette) []byte {
	lines := strings.SplitAfter(string(text), "\n")
	for i := range lines {
		if len(summaries) == 0 || !strings.HasPrefix(lines[i], summaries[0].Metadata.Name+" ") {
			continue // This is the header or the continuation of a row.
		}
		stage := string(summaries[0].Stage)
		// The name precedes the stage but cannot contain it, because names are lowercase.
		lines[i] = strings.Replace(lines[i], stage, colorStage(&summaries[0], colors), 1)
		summaries = summaries[1:]
	}
	return []byte(strings.Join(lines, ""))
}

func colorStage(summary *namespaceSummary, colors printer.Palette) string {
	text := string(summary.Stage)
	switch {
	case summary.IsBlocked:
		return colors.Red(text)
	case summary.Stage == diagnosis.StageActive:
		return colors.Green(text)
	}
	return colors.Yellow(text)
}

// expirationText formats the time until a namespace expires.
func expirationText(at *metav1.Time, now time.Time) string {
	switch {
	case at == nil:
		return "<never>"
	case !at.After(now):
		return "expired"
	}
	return "in " + duration.HumanDuration(at.Sub(now))
}
