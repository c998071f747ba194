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
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// stopTimeout is the maximum time for a process to exit after an interrupt.
const stopTimeout = 15 * time.Second

// Process is a child process that writes its output to a file.
type Process struct {
	name    string
	command *exec.Cmd
	cancel  context.CancelFunc
	log     string
	// exited is closed when the process exits; err is then its exit error, or nil.
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

// StartProcess starts a program. The program is interrupted when Stop is called or the context is
// canceled. Error messages contain the name.
func StartProcess(ctx context.Context, name, log, binary string, args ...string) (*Process, error) {
	return StartProcessWithEnvironment(ctx, nil, name, log, binary, args...)
}

// StartProcessWithEnvironment is like StartProcess, with additional environment variables.
func StartProcessWithEnvironment(
	ctx context.Context, environment []string, name, log, binary string, args ...string,
) (*Process, error) {
	output, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("failed to create a log for %s: %w", name, err)
	}
	defer output.Close()

	runContext, cancel := context.WithCancel(ctx)
	command := exec.CommandContext(runContext, binary, args...)
	command.Env = append(os.Environ(), environment...)
	command.Stdout, command.Stderr = output, output
	// Run the process in its own process group. Otherwise, Ctrl-C in a terminal would send it a
	// second interrupt, which forces an immediate exit.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = stopTimeout
	if err := command.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("failed to start %s: %w", name, err)
	}
	p := &Process{name: name, command: command, cancel: cancel, log: log, exited: make(chan struct{})}
	go func() {
		p.err = command.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Stop stops the process. It can be called more than once, but only the first call returns an error.
func (p *Process) Stop() error {
	if p == nil {
		return nil
	}
	var err error
	p.stop.Do(func() {
		p.cancel()
		<-p.exited
		if p.err != nil && !errors.Is(p.err, context.Canceled) && !wasInterrupted(p.err) {
			err = fmt.Errorf("%s exited with %w; last output: %s", p.name, p.err, p.LastOutput())
		}
	})
	return err
}

// wasInterrupted reports whether an interrupt terminated a process that does not handle interrupts.
func wasInterrupted(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, isStatus := exit.Sys().(syscall.WaitStatus)
	return isStatus && status.Signaled() && status.Signal() == syscall.SIGINT
}

// Exited returns a channel that is closed when the process exits.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// LastOutput returns the end of the log.
func (p *Process) LastOutput() string {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return "not available"
	}
	const most = 2000
	return string(bytes.TrimSpace(log[max(0, len(log)-most):]))
}

// exitState returns nil while the process runs.
func (p *Process) exitState() *os.ProcessState {
	select {
	case <-p.exited:
		return p.command.ProcessState
	default:
		return nil
	}
}

// exitStateAfter returns nil if the process still runs after the error. /proc has no values for a
// process that is exiting.
func (p *Process) exitStateAfter(err error) *os.ProcessState {
	if err == nil {
		return nil
	}
	select {
	case <-p.exited:
	case <-time.After(time.Second):
	}
	return p.exitState()
}

func peakMemory(state *os.ProcessState) (int64, bool, error) {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok || runtime.GOOS != linux {
		return 0, false, nil
	}
	return usage.Maxrss * 1024, true, nil // in KiB on Linux
}

// PeakMemory returns the peak resident memory of the process in bytes, or false if the operating
// system does not provide it.
func (p *Process) PeakMemory() (int64, bool, error) {
	if state := p.exitState(); state != nil {
		return peakMemory(state)
	}
	peak, ok, err := readPeakMemory(p.command.Process.Pid)
	if state := p.exitStateAfter(err); state != nil {
		return peakMemory(state)
	}
	if err != nil {
		err = fmt.Errorf("failed to read the memory usage of %s: %w; last output: %s", p.name, err, p.LastOutput())
	}
	return peak, ok, err
}

// CPU returns the processor time that the process has used so far, or false if the operating system
// does not provide it.
func (p *Process) CPU() (time.Duration, bool, error) {
	if state := p.exitState(); state != nil {
		return state.UserTime() + state.SystemTime(), true, nil
	}
	used, ok, err := ReadCPU(p.command.Process.Pid)
	if state := p.exitStateAfter(err); state != nil {
		return state.UserTime() + state.SystemTime(), true, nil
	}
	if err != nil {
		err = fmt.Errorf("failed to read the processor time of %s: %w; last output: %s", p.name, err, p.LastOutput())
	}
	return used, ok, err
}

// linux is the only operating system on which the benchmarks read /proc.
const linux = "linux"

// ReadCPU returns the processor time that a process has used so far in user and kernel mode, or
// false if the operating system does not provide it.
func ReadCPU(pid int) (time.Duration, bool, error) {
	if runtime.GOOS != linux {
		return 0, false, nil
	}
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, false, err
	}
	stat, err := process.Stat()
	return time.Duration(stat.CPUTime() * float64(time.Second)), err == nil, err
}

// FindChild returns the process ID of the child of this process with the given name, or false if
// the operating system does not provide it.
func FindChild(name string) (int, bool, error) {
	if runtime.GOOS != linux {
		return 0, false, nil
	}
	processes, err := procfs.AllProcs()
	if err != nil {
		return 0, false, err
	}
	for _, process := range processes {
		stat, err := process.Stat() // The process might have exited in the meantime.
		if err == nil && stat.Comm == name && stat.PPID == os.Getpid() {
			return process.PID, true, nil
		}
	}
	return 0, false, fmt.Errorf("this process has no child named %s", name)
}

func readPeakMemory(pid int) (int64, bool, error) {
	if runtime.GOOS != linux {
		return 0, false, nil
	}
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, false, err
	}
	status, err := process.NewStatus()
	if err == nil && status.VmHWM == 0 {
		err = errors.New("the process status contains no peak resident memory (VmHWM)")
	}
	return int64(status.VmHWM), err == nil, err
}
