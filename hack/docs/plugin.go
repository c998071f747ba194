// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nslifecycle/nslifecycle/internal/plugin"
)

// renderPlugin renders all commands of the plugin on one page.
func renderPlugin() (string, error) {
	root := plugin.New(genericiooptions.NewTestIOStreamsDiscard())
	root.DisableAutoGenTag = true
	// Replace the default value, because it contains the user's home directory.
	cacheDir := root.PersistentFlags().Lookup("cache-dir")
	cacheDir.DefValue = "$HOME/.kube/cache"
	name := root.CommandPath()
	out := strings.Builder{}
	out.WriteString("# " + name + "\n\n" +
		"All commands of the kubectl plugin. The [options of " + name + "](#options) apply to each of them.\n\n")
	text, err := renderCommand(root)
	if err != nil {
		return "", err
	}
	_, text, _ = strings.Cut(text, "\n\n") // The heading repeats the title.
	out.WriteString(strings.Replace(text, "### Options", "## Options", 1))
	if err := renderCommands(&out, root); err != nil {
		return "", err
	}
	return out.String(), nil
}

// renderCommands renders all commands below a command.
func renderCommands(out *strings.Builder, parent *cobra.Command) error {
	for _, command := range parent.Commands() {
		if !command.IsAvailableCommand() {
			continue
		}
		text, err := renderCommand(command)
		if err != nil {
			return err
		}
		out.WriteString("\n" + text)
		if err := renderCommands(out, command); err != nil {
			return err
		}
	}
	return nil
}

// renderCommand renders a command without the options that it inherits and without links to other
// pages.
func renderCommand(command *cobra.Command) (string, error) {
	command.DisableAutoGenTag = true
	var out bytes.Buffer
	if err := doc.GenMarkdownCustom(command, &out, func(link string) string { return link }); err != nil {
		return "", err
	}
	text, _, _ := strings.Cut(out.String(), "### SEE ALSO")
	text, _, _ = strings.Cut(text, "### Options inherited from parent commands")
	return strings.TrimRight(text, "\n") + "\n", nil
}
