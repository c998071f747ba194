// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

const managerKubeconfig = "manager.kubeconfig"

// startManager starts the manager with a token of its ServiceAccount. The caller starts the admission controller.
func startManager(ctx context.Context, s *server, binary string, flags ...string) (*harness.Process, error) {
	config, err := s.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(s.Dir, managerKubeconfig)
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	return harness.StartProcess(ctx, "the manager", filepath.Join(s.Dir, "manager.log"), binary,
		append(flags, "--kubeconfig", kubeconfig, controlplane.WithoutAdmission, "--leader-elect=false",
			"--health-probe-bind-address=0", "--metrics-bind-address=0")...)
}
