// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
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

// sectionPattern matches the title of a section in the output of --help.
var sectionPattern = regexp.MustCompile(`^(\S.*) flags:$`)

// flagPattern matches a flag in the output of --help: name, type and help.
var flagPattern = regexp.MustCompile(`^ +--(\S+)(?: (\S+))?  +(.+)$`)

// defaultPattern matches the default value at the end of the help. That of a list is in brackets.
var defaultPattern = regexp.MustCompile(` \(default \[?(.*?)\]?\)$`)

func renderFlags(root string) (string, error) {
	command := exec.Command("go", "run", "./cmd", "--help")
	command.Dir = root
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	var out strings.Builder
	out.WriteString("# Flags of the manager\n")
	count := 0
	for line := range strings.Lines(string(output)) {
		line = strings.TrimSuffix(line, "\n")
		if section := sectionPattern.FindStringSubmatch(line); section != nil {
			fmt.Fprintf(&out, "\n## %s\n\n| Flag | Type | Default | Description |\n| --- | --- | --- | --- |\n", section[1])
		} else if flag := flagPattern.FindStringSubmatch(line); flag != nil {
			out.WriteString(flagRow(flag[1], cmp.Or(flag[2], "bool"), flag[3]))
			count++
		}
	}
	if count == 0 {
		return "", errors.New("the output of manager --help contains no flags")
	}
	return out.String(), nil
}

func flagRow(name, kind, help string) string {
	value := ""
	if found := defaultPattern.FindStringSubmatch(help); found != nil {
		help, value = strings.TrimSuffix(help, found[0]), code(strings.Trim(found[1], `"`))
	}
	return fmt.Sprintf("| `--%s` | %s | %s | %s |\n", name, kind, value, cell(help))
}

func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(strings.Join(strings.Fields(text), " "))
}

func code(text string) string { return "`" + strings.ReplaceAll(text, "|", `\|`) + "`" }

// codes formats strings as a list of code spans in a cell of a Markdown table.
func codes(texts []string) string {
	all := make([]string, 0, len(texts))
	for _, text := range texts {
		all = append(all, code(text))
	}
	return strings.Join(all, ", ")
}
