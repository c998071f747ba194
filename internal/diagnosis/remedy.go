// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import "github.com/nslifecycle/nslifecycle/internal/shell"

// Remedy is something that the user can do about a finding: a sentence, a command, or a command with a
// sentence that states when to run it.
type Remedy struct {
	Text string `json:"text,omitempty"`
	// Command is a kubectl command that users can copy.
	Command string `json:"command,omitempty"`
	// Changes reports whether the remedy changes something. All other remedies only help to inspect the cause.
	Changes bool `json:"changes,omitempty"`
}

// Inspect returns a remedy that changes nothing. The text is a sentence or a command.
func Inspect(text string) Remedy {
	if shell.IsCommand(text) {
		return Remedy{Command: text}
	}
	return Remedy{Text: text}
}

// Resolve returns a remedy that changes something. The text is a sentence or a command.
func Resolve(text string) Remedy {
	remedy := Inspect(text)
	remedy.Changes = true
	return remedy
}

// ResolveWith returns a command that changes something, with a sentence that states when to run it.
func ResolveWith(text, command string) Remedy {
	if !shell.IsCommand(command) {
		return Resolve(text + ": " + command)
	}
	return Remedy{Text: text, Command: command, Changes: true}
}

// String returns the remedy as one line.
func (r Remedy) String() string {
	if r.Text == "" || r.Command == "" {
		return r.Text + r.Command
	}
	return r.Text + ": " + r.Command
}
