// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nslifecycle/nslifecycle/internal/version"
)

func newVersionCommand(session *session) *cobra.Command {
	output := newOutput(outputJSON, outputYAML)
	command := &cobra.Command{
		Use:               "version",
		Short:             "Print the version of the plugin",
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			if err := output.validate(); err != nil {
				return err
			}
			info := version.Read()
			if output.isStructured() {
				return output.print(session.Out, "Version", info)
			}
			fmt.Fprintf(session.Out, "kubectl-nslifecycle %s\n", info)
			return nil
		},
	}
	output.addFlag(command)
	return command
}
