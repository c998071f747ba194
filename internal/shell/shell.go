// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shell formats the kubectl commands that are proposed to the user.
package shell

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// safe matches words that no shell interprets, at the start of an argument or within one.
// Quoting does not make other words safe: sh, fish and PowerShell have different rules for it.
var safe = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./:@=,+-]*$`)

// program starts every command.
const program = "kubectl "

// Command returns a kubectl command with names in the place of the verbs %s of a format. If one
// of the names is not safe in a shell, it returns a sentence that cannot be taken for a command.
func Command(format string, names ...any) string {
	for _, name := range names {
		if !safe.MatchString(fmt.Sprint(name)) {
			return sentence(format, names)
		}
	}
	return fmt.Sprintf(format, names...)
}

// IsCommand reports whether a text is a command and not a sentence.
func IsCommand(text string) bool { return strings.HasPrefix(text, program) }

func sentence(format string, names []any) string {
	words := make([]any, 0, len(names))
	for _, name := range names {
		word := fmt.Sprint(name)
		if !safe.MatchString(word) {
			word = printable.Quote(word)
		}
		words = append(words, word)
	}
	return fmt.Sprintf("Run kubectl with the arguments "+strings.TrimPrefix(format, program)+
		"; one of the names cannot be pasted into a shell safely", words...)
}
