// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the build where a release knows it better than Go:
// -ldflags "-X github.com/nslifecycle/nslifecycle/internal/plugin.version=v1.2.3".
var version string

// versionInfo is what `version` prints.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	// IsModified tells that the checkout had changes which are in no revision.
	IsModified bool   `json:"isModified,omitempty"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

func readVersion() versionInfo {
	info := versionInfo{
		Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	build, isKnown := debug.ReadBuildInfo()
	if isKnown {
		for _, setting := range build.Settings {
			switch setting.Key {
			case "vcs.revision":
				info.Revision = setting.Value
			case "vcs.modified":
				info.IsModified = setting.Value == "true"
			}
		}
		if info.Version == "" {
			info.Version = build.Main.Version
		}
	}
	if info.Version == "" {
		info.Version = "(devel)"
	}
	return info
}

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
			info := readVersion()
			if output.isStructured() {
				return output.print(session.Out, "Version", info)
			}
			fmt.Fprintf(session.Out, "kubectl-nslifecycle %s (%s, %s)\n", info.Version, info.Go, info.Platform)
			return nil
		},
	}
	output.addFlag(command)
	return command
}
