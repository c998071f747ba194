// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// stages are the values of flag --stage.
var stages = []string{
	string(diagnosis.StageInitializing), string(diagnosis.StageActive), string(diagnosis.StageTerminating),
}

type listOptions struct {
	*session
	output       *output
	selector     string
	stage        string
	hasNoHeaders bool
}

func newListCommand(session *session) *cobra.Command {
	options := &listOptions{session: session, output: newOutput(outputJSON, outputYAML, outputWide)}
	command := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List all namespaces with the stage of their life and what they wait for",
		Long: "List all namespaces with the stage of their life, Initializing, Active or Terminating, and\n" +
			"what they wait for. All of it stands in the Namespace objects: it takes one request.",
		Example: "  # Everything that is not just there\n" +
			"  kubectl nslifecycle list --stage=Terminating -o wide\n\n" +
			"  # The names of what is stuck, as the operator sees it\n" +
			"  kubectl nslifecycle list -o json | jq -r '.items[] | select(.isBlocked) | .metadata.name'",
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command.Context())
		},
	}
	options.output.addFlag(command)
	flags := command.Flags()
	flags.StringVarP(&options.selector, "selector", "l", "", "Only namespaces with labels that match, as in kubectl get")
	flags.StringVar(&options.stage, "stage", "", "Only namespaces in this stage: "+strings.Join(stages, ", "))
	flags.BoolVar(&options.hasNoHeaders, "no-headers", false, "Print no headers")
	_ = command.RegisterFlagCompletionFunc("stage", cobra.FixedCompletions(stages, cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (o *listOptions) run(ctx context.Context) error {
	if err := o.output.validate(); err != nil {
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
		return fmt.Errorf("listing namespaces: %w", err)
	}
	lives := make([]life, 0, len(list.Items))
	for i := range list.Items {
		described := describeLife(&list.Items[i])
		if stage == "" || described.Stage == stage {
			lives = append(lives, described)
		}
	}
	slices.SortFunc(lives, func(a, b life) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	return o.print(lives)
}

func (o *listOptions) print(lives []life) error {
	if o.output.isStructured() {
		return o.output.print(o.Out, "NamespaceLifeList", map[string]any{"items": lives})
	}
	if len(lives) == 0 {
		fmt.Fprintln(o.ErrOut, "No namespaces found.")
		return nil
	}
	var text bytes.Buffer
	table := lifeTable(lives, time.Now(), o.output.isWide())
	if err := printTable(&text, table, o.output.isWide(), o.hasNoHeaders); err != nil {
		return err
	}
	_, err := o.Out.Write(colourLives(text.Bytes(), lives, o.palette(o.Out)))
	return err
}

// parseStage returns the stage that a user means, in whatever case.
func parseStage(text string) (diagnosis.Stage, error) {
	if text == "" {
		return "", nil
	}
	for _, stage := range stages {
		if strings.EqualFold(stage, text) {
			return diagnosis.Stage(stage), nil
		}
	}
	return "", fmt.Errorf("unknown stage %q; use one of %s", text, strings.Join(stages, ", "))
}

// phraseWidth is how much of what a namespace waits for a table shows that is not wide.
const phraseWidth = 100

// lifeTable makes a table with one row for each namespace.
func lifeTable(lives []life, now time.Time, isWide bool) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: columns(
		"Name", "Stage", "Age", "+Since", "+Requested By", "+Protected", "+Expires", "Waits For", "+And")}
	for i := range lives {
		first, others := "", ""
		if len(lives[i].WaitsFor) > 0 {
			first, others = lives[i].WaitsFor[0], strings.Join(lives[i].WaitsFor[1:], "; ")
		}
		if !isWide {
			first = clip(first, phraseWidth)
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			lives[i].Metadata.Name, string(lives[i].Stage),
			ageOf(lives[i].Metadata.CreationTimestamp, now), ageOf(lives[i].Since, now),
			orNone(lives[i].RequestedBy), yesOrNo(lives[i].IsProtected), expiresIn(lives[i].ExpiresAt, now), first, others,
		}})
	}
	return table
}

// colourLives colours the stage in the rows of a printed table: a table printer escapes
// colours that are in the cells.
func colourLives(text []byte, lives []life, colours palette) []byte {
	lines := strings.SplitAfter(string(text), "\n")
	first := len(lines) - 1 - len(lives) // after the headers, if there are any
	for i := range lives {
		stage := string(lives[i].Stage)
		// The name comes first and may contain the same word, though in lower case.
		lines[first+i] = strings.Replace(lines[first+i], stage, colourStage(&lives[i], colours), 1)
	}
	return []byte(strings.Join(lines, ""))
}

func colourStage(described *life, colours palette) string {
	text := string(described.Stage)
	switch {
	case described.IsBlocked:
		return colours.red(text)
	case described.Stage == diagnosis.StageActive:
		return colours.green(text)
	}
	return colours.yellow(text)
}

func ageOf(since metav1.Time, now time.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(since.Time))
}

func yesOrNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// expiresIn says how long it is until a namespace expires.
func expiresIn(at *metav1.Time, now time.Time) string {
	switch {
	case at == nil:
		return "<never>"
	case !at.After(now):
		return "expired"
	}
	return "in " + duration.HumanDuration(at.Sub(now))
}

func orNone(text string) string { return cmp.Or(text, "<none>") }
