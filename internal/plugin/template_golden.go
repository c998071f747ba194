// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

type templateTestOptions struct {
	*session
	update bool
}

func newTemplateTestCommand(session *session) *cobra.Command {
	options := &templateTestOptions{session: session}
	command := &cobra.Command{
		Use:     "test PATH...",
		Short:   shortTemplateTest,
		Long:    longTemplateTest,
		Example: exampleTemplateTest,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf(msgTestPathRequired, command.CommandPath())
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args)
		},
	}
	command.Flags().BoolVar(&options.update, "update", false, helpTestUpdate)
	return command
}

func (o *templateTestOptions) run(ctx context.Context, paths []string) error {
	results, err := templates.RunTests(ctx, paths, o.update)
	if err != nil {
		return err
	}
	colors := printer.NewPalette(o.Out)
	failed := 0
	for _, result := range results {
		switch {
		case result.HasFailed():
			failed++
			fmt.Fprintf(o.Out, "%s    %s\n", colors.Red("FAIL"), result.Name)
			o.printFailure(result, colors)
		case result.Updated != "":
			fmt.Fprintf(o.Out, "%s %s\n", colors.Yellow("updated"), result.Updated)
		default:
			fmt.Fprintf(o.Out, "%s      %s\n", colors.Green("ok"), result.Name)
		}
	}
	fmt.Fprintf(o.Out, msgTestSummary, printable.Count(len(results), "test case"), failed)
	if failed > 0 {
		return &StatusError{Code: ExitError}
	}
	return nil
}

func (o *templateTestOptions) printFailure(result templates.Result, colors printer.Palette) {
	if result.Err != nil {
		const indent = "        "
		text := printer.Wrap(result.Err.Error(), printer.TextWidth(o.Out)-len(indent))
		fmt.Fprintln(o.Out, indent+strings.ReplaceAll(text, "\n", "\n"+indent))
		return
	}
	for line := range strings.Lines(result.Diff) {
		text := strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(text, "+"):
			text = colors.Green(text)
		case strings.HasPrefix(text, "-"):
			text = colors.Red(text)
		}
		fmt.Fprintln(o.Out, text)
	}
}
