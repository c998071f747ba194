// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// warmUpTimeout is the maximum time for a controller to start and finalize an empty namespace.
const warmUpTimeout = 2 * time.Minute

// contenders holds the configuration of the two controllers.
type contenders struct {
	cluster     *cluster
	binaries    [2]string
	kubeconfigs [2]string
	// limit is the client-side rate limit of nslifecycle.
	limit limit
	// started counts the started processes, to name their namespaces.
	started int
}

func newContenders(ctx context.Context, c *cluster, assets string) (*contenders, error) {
	peerConfig, err := c.User("system:kube-controller-manager")
	if err != nil {
		return nil, err
	}
	oursConfig, err := c.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	if err != nil {
		return nil, err
	}
	result := &contenders{cluster: c, limit: defaultLimit}
	for side, config := range [2]*rest.Config{peer: peerConfig, ours: oursConfig} {
		result.kubeconfigs[side] = filepath.Join(c.Dir, sideNames[side]+".kubeconfig")
		if err := controlplane.WriteKubeconfig(result.kubeconfigs[side], config); err != nil {
			return nil, err
		}
	}
	result.binaries[peer] = filepath.Join(assets, "kube-controller-manager")
	result.binaries[ours], err = harness.BuildManager(ctx, c.Dir)
	return result, err
}

func (c *contenders) args(side int) []string {
	if side == peer {
		return []string{
			"--kubeconfig", c.kubeconfigs[peer], "--controllers=namespace-controller", "--leader-elect=false",
			"--use-service-account-credentials", "--secure-port=0",
		}
	}
	args := []string{
		"--kubeconfig", c.kubeconfigs[ours], "--controllers=finalization", "--leader-elect=false",
		"--health-probe-bind-address=0", "--metrics-bind-address=0",
	}
	if c.limit != defaultLimit { // Otherwise, the manager uses its default.
		args = append(args, c.limit.args()...)
	}
	return args
}

// start starts a controller and waits until it has finalized one namespace, so that its caches are
// filled and its discovery is complete.
func (c *contenders) start(ctx context.Context, side int) (*harness.Process, error) {
	process, err := harness.StartProcess(ctx, sideNames[side], filepath.Join(c.cluster.Dir, sideNames[side]+".log"),
		c.binaries[side], c.args(side)...)
	if err != nil {
		return nil, err
	}
	if err := c.warmUp(ctx, process); err != nil {
		return nil, errors.Join(err, process.Stop())
	}
	return process, nil
}

func (c *contenders) warmUp(ctx context.Context, process *harness.Process) error {
	c.started++
	names := []string{fmt.Sprintf("bench-warm-up-%d", c.started)}
	expected := c.cluster.observer.expect(names)
	if err := c.cluster.createNamespaces(ctx, names); err != nil {
		return fmt.Errorf("failed to create a namespace for the warm-up: %w", err)
	}
	if err := c.cluster.deleteNamespaces(ctx, names); err != nil {
		return fmt.Errorf("failed to delete a namespace for the warm-up: %w", err)
	}
	return waitUntilRemoved(ctx, expected, process, warmUpTimeout)
}

// waitUntilRemoved waits for the removal of namespaces, and fails if the controller exits.
func waitUntilRemoved(
	ctx context.Context, expected *harness.Tracker, process *harness.Process, timeout time.Duration,
) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-expected.Done():
		return nil
	case <-process.Exited():
		return fmt.Errorf("the controller exited; last output: %s", process.LastOutput())
	case <-timer.C:
		return fmt.Errorf("%d namespaces remain after %s; last output of the controller: %s",
			expected.Remaining(), timeout, process.LastOutput())
	case <-ctx.Done():
		return ctx.Err()
	}
}
