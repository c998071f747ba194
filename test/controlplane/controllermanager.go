// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	controllerManager = "kube-controller-manager"
	// stopTimeout is the maximum time for a process to exit after it is signaled.
	stopTimeout = 30 * time.Second
)

// ErrNoControllerManager is returned if KUBEBUILDER_ASSETS does not contain
// kube-controller-manager.
var ErrNoControllerManager = errors.New("there is no kube-controller-manager in KUBEBUILDER_ASSETS; " +
	"put one there, or unset KUBEBUILDER_ASSETS to have one built")

// ControllerManager is a running kube-controller-manager.
type ControllerManager struct {
	command *exec.Cmd
	log     string
	// ended is closed when the process has exited with err.
	ended chan struct{}
	err   error
}

// StartControllerManager runs kube-controller-manager with additional flags, such as
// --controllers=namespace-controller, until Stop. It has the permissions of Admin. The
// binary is built if it is missing, which takes minutes; the error is
// ErrNoControllerManager if KUBEBUILDER_ASSETS is set to a directory without one.
func (c *ControlPlane) StartControllerManager(ctx context.Context, flags ...string) (*ControllerManager, error) {
	binary, err := findControllerManager(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(c.Dir, controllerManager+"-")
	if err != nil {
		return nil, fmt.Errorf("failed to create a directory for %s: %w", controllerManager, err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := WriteKubeconfig(kubeconfig, c.Admin); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, fmt.Errorf("failed to create a log for %s: %w", controllerManager, err)
	}
	defer log.Close()

	// The process is not bound to the context, because a step of a test may cancel it.
	command := exec.Command(binary, append([]string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0",
	}, flags...)...)
	command.Dir = dir
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("failed to start %s: %w", binary, err)
	}
	running := &ControllerManager{command: command, log: log.Name(), ended: make(chan struct{})}
	go func() {
		running.err = command.Wait()
		close(running.ended)
	}()
	return running, nil
}

// Log returns its log.
func (m *ControllerManager) Log() (string, error) {
	log, err := os.ReadFile(m.log)
	if err != nil {
		return "", fmt.Errorf("failed to read the log of %s: %w", controllerManager, err)
	}
	return string(log), nil
}

// Stop stops the process and waits for its exit. It returns an error if the process has exited
// before, or had to be killed.
func (m *ControllerManager) Stop() error {
	select {
	case <-m.ended:
		log, _ := m.Log()
		return fmt.Errorf("%s exited unexpectedly: %w; last output: %s", controllerManager, m.err, lastOf(log))
	default:
	}
	if err := m.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("failed to stop %s: %w", controllerManager, err)
	}
	select {
	case <-m.ended:
		return nil
	case <-time.After(stopTimeout):
	}
	err := m.command.Process.Kill()
	<-m.ended
	return errors.Join(fmt.Errorf("%s did not stop within %s and was killed", controllerManager, stopTimeout), err)
}

func lastOf(log string) string {
	const most = 2000
	log = strings.TrimSpace(log)
	return log[max(0, len(log)-most):]
}

// findControllerManager returns the path of the binary.
func findControllerManager(ctx context.Context) (string, error) {
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		if _, err := os.Stat(filepath.Join(assets, controllerManager)); err != nil {
			return "", ErrNoControllerManager
		}
	}
	assets, err := findAssets(ctx, "--with-controller-manager")
	if err != nil {
		return "", err
	}
	return filepath.Join(assets, controllerManager), nil
}
