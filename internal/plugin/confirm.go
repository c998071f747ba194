// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
)

// checkConfirmation returns an error if --confirm is set to another name. It also returns an error
// if --confirm is not set and the command cannot prompt because there is no terminal.
func (s *session) checkConfirmation(name, confirmed string) error {
	switch {
	case confirmed == name:
		return nil
	case confirmed != "":
		return fmt.Errorf(msgConfirmFlag, confirmed, name)
	case !printer.IsTerminal(s.In) || !printer.IsTerminal(s.ErrOut):
		return fmt.Errorf(msgNoTerminalToConfirm, name)
	}
	return nil
}

// confirm prompts for the given name unless --confirm is set to it.
func (s *session) confirm(ctx context.Context, name, confirmed, question string) error {
	if confirmed == name {
		return nil
	}
	printf(s.ErrOut, "%s", question)
	fmt.Fprint(s.ErrOut, msgConfirmPrompt)
	typed, err := s.readLine(ctx)
	switch {
	case err != nil:
		fmt.Fprintln(s.ErrOut)
		return err
	case typed != name:
		return fmt.Errorf(msgConfirmName, typed, name)
	}
	return nil
}

// ask prompts for yes or no. Any answer other than yes is treated as no.
func (s *session) ask(ctx context.Context, question string) (bool, error) {
	fmt.Fprintf(s.ErrOut, "%s [y/N] ", question)
	answer, err := s.readLine(ctx)
	if err != nil {
		return false, fmt.Errorf("failed to read the answer: %w", err)
	}
	answer = strings.ToLower(answer)
	return answer == "y" || answer == "yes", nil
}

// readLine reads a line from the terminal. It also returns when the context is canceled, because a
// signal does not interrupt the read.
func (s *session) readLine(ctx context.Context) (string, error) {
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(s.In).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil // The last line might not end with a line feed.
		}
		answers <- answer{strings.TrimSpace(line), err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case answer := <-answers:
		return answer.line, answer.err
	}
}
