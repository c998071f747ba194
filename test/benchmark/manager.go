// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

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
	"time"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// stopTimeout is how long the manager has to end by itself.
const stopTimeout = 15 * time.Second

// manager is the manager in a process of its own.
type manager struct {
	command *exec.Cmd
	cancel  context.CancelFunc
	log     string
}

// buildManager builds the manager and returns the path of the binary.
func buildManager(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "manager")
	command := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd")
	command.Dir = controlplane.Root()
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the manager: %w: %s", err, bytes.TrimSpace(output))
	}
	return path, nil
}

// startManager runs the manager with a token of its own ServiceAccount.
func startManager(ctx context.Context, s *server, binary string) (*manager, error) {
	config, err := s.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(s.Dir, "manager.kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(s.Dir, "manager.log"))
	if err != nil {
		return nil, fmt.Errorf("making a log for the manager: %w", err)
	}
	defer log.Close()

	runContext, cancel := context.WithCancel(ctx)
	command := exec.CommandContext(runContext, binary, "--kubeconfig", kubeconfig, "--leader-elect=false",
		"--health-probe-bind-address=0", "--metrics-bind-address=0")
	command.Stdout, command.Stderr = log, log
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = stopTimeout
	if err := command.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("starting the manager: %w", err)
	}
	return &manager{command: command, cancel: cancel, log: log.Name()}, nil
}

// stop ends the manager. It may be called more than once.
func (m *manager) stop() error {
	if m == nil || m.command.ProcessState != nil {
		return nil
	}
	m.cancel()
	err := m.command.Wait()
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("the manager ended with %w; it said last: %s", err, m.lastWords())
}

// lastWords returns the end of the manager's log.
func (m *manager) lastWords() string {
	log, err := os.ReadFile(m.log)
	if err != nil {
		return "nothing"
	}
	const most = 2000
	return string(bytes.TrimSpace(log[max(0, len(log)-most):]))
}

// peakMemory returns the most memory that the manager has had resident so far, in bytes,
// or false where the operating system does not tell.
func (m *manager) peakMemory() (int64, bool, error) {
	if runtime.GOOS != "linux" {
		return 0, false, nil
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.command.Process.Pid))
	if err != nil {
		return 0, false, fmt.Errorf("reading the memory of the manager, which said last: %s: %w", m.lastWords(), err)
	}
	peak, err := parsePeakMemory(string(status))
	return peak, err == nil, err
}

// parsePeakMemory reads VmHWM from the text of /proc/<pid>/status.
func parsePeakMemory(status string) (int64, error) {
	for line := range strings.Lines(status) {
		value, found := strings.CutPrefix(line, "VmHWM:")
		if !found {
			continue
		}
		kibibytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the peak of resident memory from %q: %w", strings.TrimSpace(line), err)
		}
		return kibibytes * 1024, nil
	}
	return 0, errors.New("the process status names no peak of resident memory (VmHWM)")
}
