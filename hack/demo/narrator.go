// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
)

// Escape sequences of ANSI terminals.
const (
	bold  = "\x1b[1m"
	cyan  = "\x1b[36m"
	plain = "\x1b[0m"
)

// needsQuotes matches characters that might be special in a shell.
var needsQuotes = regexp.MustCompile(`[^A-Za-z0-9_./:=@,-]`)

// narrator writes the output of the tour.
type narrator struct {
	mutex   sync.Mutex
	out     io.Writer
	colored bool
	// onBroken is called when the output is closed.
	onBroken func()
	headings int
}

func newNarrator(out io.Writer, colored bool, onBroken func()) *narrator {
	return &narrator{out: out, colored: colored, onBroken: onBroken}
}

// heading starts the next step of the tour.
func (n *narrator) heading(text string) {
	n.headings++
	n.write("\n" + n.color(bold, fmt.Sprintf("%d. %s", n.headings, text)) + "\n")
}

// say prints lines of narration.
func (n *narrator) say(format string, args ...any) {
	n.write(fmt.Sprintf(format, args...) + "\n")
}

// command prints a command with a prompt.
func (n *narrator) command(who, line string) {
	n.write("\n" + n.color(cyan, who+"$ ") + n.color(bold, line) + "\n")
}

// output prints the unchanged output of a command.
func (n *narrator) output(text string) {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	n.write(text)
}

func (n *narrator) color(sequence, text string) string {
	if !n.colored {
		return text
	}
	return sequence + text + plain
}

func (n *narrator) write(text string) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if _, err := io.WriteString(n.out, text); err != nil {
		n.onBroken()
	}
}

// shellLine joins and quotes the arguments of a command for a shell.
func shellLine(args ...string) string {
	quoted := make([]string, 0, len(args))
	for _, arg := range args {
		option, value, found := strings.Cut(arg, "=")
		if found && strings.HasPrefix(option, "-") {
			arg = option + "=" + quote(value)
		} else {
			arg = quote(arg)
		}
		quoted = append(quoted, arg)
	}
	return strings.Join(quoted, " ")
}

func quote(text string) string {
	if text != "" && !needsQuotes.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// isTerminal reports whether a file is a terminal that supports colors.
func isTerminal(file *os.File) bool {
	if term := os.Getenv("TERM"); term == "" || term == "dumb" || os.Getenv("NO_COLOR") != "" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
