// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shell formats kubectl commands that messages suggest to users.
package shell

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// safe matches words that no shell interprets, neither at the start of an argument nor within one.
// Quoting does not make other words safe, because the rules of sh, fish and PowerShell differ.
var safe = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./:@=,+-]*$`)

// Program is the prefix of every command.
const Program = "kubectl "

// Command formats a kubectl command with names. If a name is not safe in a shell, it returns a
// sentence that cannot be mistaken for a command.
func Command(format string, names ...any) string {
	for _, name := range names {
		if !safe.MatchString(fmt.Sprint(name)) {
			return sentence(format, names)
		}
	}
	return fmt.Sprintf(format, names...)
}

// Flag is a flag of kubectl.
type Flag struct{ Name, Value string }

// Then connects two commands that Command returned. The second one runs only if the first one succeeds. If the second
// one is a sentence, Then returns only the first one.
func Then(first, second string) string {
	if !IsCommand(second) {
		return first
	}
	return first + and + second
}

const and = " && "

// WithFlags inserts flags into commands that Command and Then returned, after the names of the program and of the
// plugin, because kubectl accepts no flags before the name of a plugin. It returns other texts unchanged.
func WithFlags(commands string, flags []Flag) string {
	all := strings.Split(commands, and)
	for i := range all {
		all[i] = withFlags(all[i], flags)
	}
	return strings.Join(all, and)
}

func withFlags(command string, flags []Flag) string {
	for _, program := range []string{Program + "nslifecycle ", Program} {
		rest, ok := strings.CutPrefix(command, program)
		if !ok {
			continue
		}
		format, values := program, make([]any, 0, len(flags))
		for _, flag := range flags {
			format += "--" + flag.Name + "=%s "
			values = append(values, flag.Value)
		}
		return Command(format+strings.ReplaceAll(rest, "%", "%%"), values...)
	}
	return command
}

// IsSafe reports whether a text contains only words that no shell interprets. Values in quotation marks, which
// errors contain, are not safe.
func IsSafe(text string) bool {
	for word := range strings.FieldsSeq(text) {
		if !safe.MatchString(strings.TrimLeft(word, "-")) {
			return false
		}
	}
	return true
}

// IsCommand reports whether Command returned a command and not a sentence.
func IsCommand(text string) bool { return strings.HasPrefix(text, Program) }

func sentence(format string, names []any) string {
	words := make([]any, 0, len(names))
	for _, name := range names {
		word := fmt.Sprint(name)
		if !safe.MatchString(word) {
			word = printable.Quote(word)
		}
		words = append(words, word)
	}
	return fmt.Sprintf("Run kubectl with the arguments "+strings.TrimPrefix(format, Program)+
		"; one of the names cannot be safely pasted into a shell", words...)
}
