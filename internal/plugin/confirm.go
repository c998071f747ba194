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
)

// whyNotConfirmed returns why a name cannot be confirmed, before anybody is asked: flag
// --confirm has another one, or there is no flag and nobody to ask.
func (s *session) whyNotConfirmed(name, confirmed string) error {
	switch {
	case confirmed == name:
		return nil
	case confirmed != "":
		return fmt.Errorf("--confirm=%s is not the name of the namespace, which is %q", confirmed, name)
	case !isTerminal(s.In) || !isTerminal(s.ErrOut):
		return fmt.Errorf("there is no terminal to confirm on; in a script, confirm with --confirm=%s", name)
	}
	return nil
}

// confirm asks for a name to be typed, unless the flag has it already.
func (s *session) confirm(ctx context.Context, name, confirmed, question string) error {
	if confirmed == name {
		return nil
	}
	fmt.Fprintf(s.ErrOut, "%s\nType the name of the namespace to go on: ", question)
	typed, err := s.readLine(ctx)
	switch {
	case err != nil:
		fmt.Fprintln(s.ErrOut)
		return err
	case typed != name:
		return fmt.Errorf("%q is not the name of the namespace, which is %q", typed, name)
	}
	return nil
}

// readLine reads a line from a terminal, and gives up with the context: Ctrl-C does not
// end a read.
func (s *session) readLine(ctx context.Context) (string, error) {
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(s.In).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil // What was typed before the end counts.
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
