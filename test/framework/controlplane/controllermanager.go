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
var ErrNoControllerManager = errors.New("KUBEBUILDER_ASSETS contains no kube-controller-manager; " +
	"add it, or unset KUBEBUILDER_ASSETS to build it")

// ControllerManager is a running kube-controller-manager.
type ControllerManager struct {
	command *exec.Cmd
	log     string
	// ended is closed when the process exits; err is then its exit error, or nil.
	ended chan struct{}
	err   error
}

// StartControllerManager starts kube-controller-manager with the permissions of Admin and with
// additional flags, such as --controllers=namespace-controller. It runs until Stop is called.
// StartControllerManager builds the binary if it is missing, which takes minutes. If
// KUBEBUILDER_ASSETS is set but does not contain the binary, it returns ErrNoControllerManager.
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

	// The process must outlive the context, which ends with the Ginkgo node.
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

// Log returns the content of the log.
func (m *ControllerManager) Log() (string, error) {
	log, err := os.ReadFile(m.log)
	if err != nil {
		return "", fmt.Errorf("failed to read the log of %s: %w", controllerManager, err)
	}
	return string(log), nil
}

// Stop stops the process and waits until it exits. It returns an error if the process has already
// exited or does not exit within stopTimeout.
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
	assets, err := FindAssets(ctx, "--with-controller-manager")
	if err != nil {
		return "", err
	}
	return filepath.Join(assets, controllerManager), nil
}
