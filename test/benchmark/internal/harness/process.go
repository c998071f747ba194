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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

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

// clockTicks is the number of ticks per second in /proc/<pid>/stat: USER_HZ, which is 100 on every
// architecture that Go runs on.
const clockTicks = 100

// linux is the only operating system on which the benchmarks read these files in /proc.
const linux = "linux"

// processStat contains the fields of /proc/<pid>/stat that the benchmarks use.
type processStat struct {
	name   string
	parent int
	cpu    time.Duration
}

// ReadCPU returns the processor time that a process has used so far in user and kernel mode, or
// false if the operating system does not provide it.
func ReadCPU(pid int) (time.Duration, bool, error) {
	if runtime.GOOS != linux {
		return 0, false, nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false, err
	}
	stat, err := parseStat(string(text))
	return stat.cpu, err == nil, err
}

// FindChild returns the process ID of the child of this process with the given name, or false if
// the operating system does not provide it.
func FindChild(name string) (int, bool, error) {
	if runtime.GOOS != linux {
		return 0, false, nil
	}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, false, err
	}
	for _, path := range paths {
		// The process might have exited in the meantime.
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		stat, err := parseStat(string(text))
		if err == nil && stat.name == name && stat.parent == os.Getpid() {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid, err == nil, err
		}
	}
	return 0, false, fmt.Errorf("this process has no child named %s", name)
}

// parseStat parses the content of /proc/<pid>/stat. The process name is in parentheses and can
// itself contain parentheses.
func parseStat(text string) (processStat, error) {
	start, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if start < 0 || end < start {
		return processStat{}, fmt.Errorf("the process statistics %q contain no name", text)
	}
	// The first of these fields is the state, which is field 3 in proc(5).
	fields := strings.Fields(text[end+1:])
	const parent, user, system = 4 - 3, 14 - 3, 15 - 3
	if len(fields) <= system {
		return processStat{}, fmt.Errorf("the process statistics %q have too few fields", text)
	}
	stat := processStat{name: text[start+1 : end]}
	var err, userErr, systemErr error
	var userTicks, systemTicks int64
	stat.parent, err = strconv.Atoi(fields[parent])
	userTicks, userErr = strconv.ParseInt(fields[user], 10, 64)
	systemTicks, systemErr = strconv.ParseInt(fields[system], 10, 64)
	if err := errors.Join(err, userErr, systemErr); err != nil {
		return processStat{}, fmt.Errorf("failed to parse the process statistics %q: %w", text, err)
	}
	stat.cpu = time.Duration(userTicks+systemTicks) * time.Second / clockTicks
	return stat, nil
}

func readPeakMemory(pid int) (int64, bool, error) {
	if runtime.GOOS != linux {
		return 0, false, nil
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false, err
	}
	peak, err := parsePeakMemory(string(status))
	return peak, err == nil, err
}

// parsePeakMemory parses VmHWM in the content of /proc/<pid>/status.
func parsePeakMemory(status string) (int64, error) {
	for line := range strings.Lines(status) {
		value, found := strings.CutPrefix(line, "VmHWM:")
		if !found {
			continue
		}
		kibibytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("failed to parse the peak resident memory %q: %w", strings.TrimSpace(line), err)
		}
		return kibibytes * 1024, nil
	}
	return 0, errors.New("the process status contains no peak resident memory (VmHWM)")
}
