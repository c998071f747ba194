// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Process is a running program.
type Process struct {
	command *exec.Cmd
	// ended is closed when the process exits; err is then its exit error, or nil.
	ended chan struct{}
	err   error
}

// StartProcess starts a program, which runs until Stop or Kill is called and writes to output.
func StartProcess(output io.Writer, path string, args ...string) (*Process, error) {
	command := exec.Command(path, args...)
	command.Stdout, command.Stderr = output, output
	// Run the process in its own process group, so that Ctrl-C interrupts only its parent, which
	// then stops it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("failed to start %s: %w", path, err)
	}
	running := &Process{command: command, ended: make(chan struct{})}
	go func() {
		running.err = command.Wait()
		close(running.ended)
	}()
	return running, nil
}

// Ended returns a channel that is closed when the process exits.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill kills the process to simulate a crash.
func (p *Process) Kill() error {
	err := p.command.Process.Kill()
	<-p.ended
	return err
}

// Stop terminates the process and waits until it exits. It returns an error if the process has
// already exited or does not exit cleanly.
func (p *Process) Stop() error {
	name := filepath.Base(p.command.Path)
	select {
	case <-p.ended:
		return fmt.Errorf("%s exited unexpectedly: %w", name, p.err)
	default:
	}
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("failed to stop %s: %w", name, err)
	}
	select {
	case <-p.ended:
		if p.err != nil {
			return fmt.Errorf("failed to stop %s: %w", name, p.err)
		}
		return nil
	case <-time.After(stopTimeout):
	}
	return errors.Join(fmt.Errorf("%s did not stop within %s and was killed", name, stopTimeout), p.Kill())
}
