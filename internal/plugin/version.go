// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/version"
)

func newVersionCommand(session *session) *cobra.Command {
	output := printer.NewOutput(printer.FormatJSON, printer.FormatYAML)
	command := &cobra.Command{
		Use:               "version",
		Short:             shortVersion,
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			if err := output.Validate(); err != nil {
				return err
			}
			info := version.Read()
			if output.IsStructured() {
				return output.Print(session.Out, "Version", info)
			}
			fmt.Fprintf(session.Out, "%s %s\n", commandName, info)
			return nil
		},
	}
	output.AddFlag(command)
	return command
}
