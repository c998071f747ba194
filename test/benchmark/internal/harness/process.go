// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// stopTimeout is how long a process has to end by itself.
const stopTimeout = 15 * time.Second

// Process is a program in a process of its own, whose output goes to a file.
type Process struct {
	name    string
	command *exec.Cmd
	cancel  context.CancelFunc
	log     string
	// exited is closed when the process has ended; err is written before that.
	exited chan struct{}
	err    error
	stop   sync.Once
}

// BuildManager builds the manager and returns the path of the binary.
func BuildManager(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "manager")
	if err := controlplane.Build(ctx, controlplane.Root(), controlplane.ManagerProgram, path); err != nil {
		return "", err
	}
	return path, nil
}

// StartProcess runs a program until Stop or the end of the context, either of which it
// is told by an interrupt. Its name is for messages.
func StartProcess(ctx context.Context, name, log, binary string, args ...string) (*Process, error) {
	output, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("making a log for %s: %w", name, err)
	}
	defer output.Close()

	runContext, cancel := context.WithCancel(ctx)
	command := exec.CommandContext(runContext, binary, args...)
	command.Stdout, command.Stderr = output, output
	// In a process group of its own: from a terminal's Ctrl-C it would get a second
	// interrupt, which it takes for impatience.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = stopTimeout
	if err := command.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &Process{name: name, command: command, cancel: cancel, log: log, exited: make(chan struct{})}
	go func() {
		p.err = command.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Stop ends the process. It may be called more than once, and says only once what was
// wrong.
func (p *Process) Stop() error {
	if p == nil {
		return nil
	}
	var err error
	p.stop.Do(func() {
		p.cancel()
		<-p.exited
		if p.err != nil && !errors.Is(p.err, context.Canceled) && !wasInterrupted(p.err) {
			err = fmt.Errorf("%s ended with %w; it said last: %s", p.name, p.err, p.LastWords())
		}
	})
	return err
}

// wasInterrupted tells whether a process has left it to the operating system what an
// interrupt does.
func wasInterrupted(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, isStatus := exit.Sys().(syscall.WaitStatus)
	return isStatus && status.Signaled() && status.Signal() == syscall.SIGINT
}

// Exited returns a channel that is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// LastWords returns the end of the log.
func (p *Process) LastWords() string {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return "nothing"
	}
	const most = 2000
	return string(bytes.TrimSpace(log[max(0, len(log)-most):]))
}

// PeakMemory returns the most memory that the process has had resident so far, in bytes,
// or false where the operating system does not tell.
func (p *Process) PeakMemory() (int64, bool, error) {
	peak, isKnown, err := readPeakMemory(p.command.Process.Pid)
	if err != nil {
		err = fmt.Errorf("reading the memory of %s, which said last: %s: %w", p.name, p.LastWords(), err)
	}
	return peak, isKnown, err
}

// CPU returns the processor time that the process has used so far, or false where the
// operating system does not tell.
func (p *Process) CPU() (time.Duration, bool, error) {
	used, isKnown, err := ReadCPU(p.command.Process.Pid)
	if err != nil {
		err = fmt.Errorf("reading the processor time of %s, which said last: %s: %w", p.name, p.LastWords(), err)
	}
	return used, isKnown, err
}
