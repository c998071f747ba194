// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	*Process
	log string
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

	process, err := StartProcess(log, binary, append([]string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0",
	}, flags...)...)
	if err != nil {
		return nil, err
	}
	return &ControllerManager{process, log.Name()}, nil
}

// Log returns the content of the log.
func (m *ControllerManager) Log() (string, error) {
	log, err := os.ReadFile(m.log)
	if err != nil {
		return "", fmt.Errorf("failed to read the log of %s: %w", controllerManager, err)
	}
	return string(log), nil
}

// Stop stops the process like Process.Stop. Its error contains the end of the log.
func (m *ControllerManager) Stop() error {
	err := m.Process.Stop()
	if err == nil {
		return nil
	}
	log, _ := m.Log()
	return fmt.Errorf("%w; last output: %s", err, lastOf(log))
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
