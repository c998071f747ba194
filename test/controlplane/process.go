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
	// ended is closed when it has ended; err is why.
	ended chan struct{}
	err   error
}

// StartProcess runs a program until Stop or Kill. Its output goes to a writer.
func StartProcess(output io.Writer, path string, args ...string) (*Process, error) {
	command := exec.Command(path, args...)
	command.Stdout, command.Stderr = output, output
	// In a process group of its own: Ctrl-C is for whoever started it, who stops it then.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	running := &Process{command: command, ended: make(chan struct{})}
	go func() {
		running.err = command.Wait()
		close(running.ended)
	}()
	return running, nil
}

// Ended returns a channel that is closed when the process has ended, told to or not.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill ends it as a crash would.
func (p *Process) Kill() error {
	err := p.command.Process.Kill()
	<-p.ended
	return err
}

// Stop tells it to stop, and waits for that. The error says that it had ended before, or in
// another way than it should.
func (p *Process) Stop() error {
	name := filepath.Base(p.command.Path)
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended by itself: %w", name, p.err)
	default:
	}
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping %s: %w", name, err)
	}
	select {
	case <-p.ended:
		if p.err != nil {
			return fmt.Errorf("stopping %s: %w", name, p.err)
		}
		return nil
	case <-time.After(stopTimeout):
	}
	return errors.Join(fmt.Errorf("%s did not stop within %s and was killed", name, stopTimeout), p.Kill())
}
