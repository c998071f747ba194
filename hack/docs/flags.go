// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// flagPattern matches a flag in the output of package flag: name, type and help.
var flagPattern = regexp.MustCompile(`(?m)^  -(\S+)(?: (\S+))?\n((?:    \t.*\n?)+)`)

// defaultPattern matches the default value at the end of the help.
var defaultPattern = regexp.MustCompile(`(?s) \(default (.*)\)$`)

// renderFlags renders the flags of the manager from the output of --help.
func renderFlags(root string) (string, error) {
	command := exec.Command("go", "run", "./cmd", "--help")
	command.Dir = root
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	matches := flagPattern.FindAllStringSubmatch(string(output), -1)
	if len(matches) == 0 {
		return "", errors.New("the output of manager --help contains no flags")
	}
	var out strings.Builder
	out.WriteString("# Flags of the manager\n\n| Flag | Type | Default | Description |\n| --- | --- | --- | --- |\n")
	for _, match := range matches {
		help := strings.Join(strings.Fields(match[3]), " ")
		value := ""
		if found := defaultPattern.FindStringSubmatch(help); found != nil {
			help, value = strings.TrimSuffix(help, found[0]), code(strings.Trim(found[1], `"`))
		}
		kind := match[2]
		if kind == "" {
			kind = "bool"
		}
		fmt.Fprintf(&out, "| `--%s` | %s | %s | %s |\n", match[1], kind, value, cell(help))
	}
	return out.String(), nil
}

// cell escapes text for a cell of a Markdown table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(strings.Join(strings.Fields(text), " "))
}

// code formats a string as a code span in a cell of a Markdown table.
func code(text string) string { return "`" + strings.ReplaceAll(text, "|", `\|`) + "`" }

// codes formats strings as a list of code spans in a cell of a Markdown table.
func codes(texts []string) string {
	all := make([]string, 0, len(texts))
	for _, text := range texts {
		all = append(all, code(text))
	}
	return strings.Join(all, ", ")
}
