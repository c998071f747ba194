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

// warmUpTimeout is for a controller to start and to end an empty namespace.
const warmUpTimeout = 2 * time.Minute

// contenders are the two controllers, ready to be started.
type contenders struct {
	cluster     *cluster
	binaries    [2]string
	kubeconfigs [2]string
	// limit is how many requests ours may make.
	limit limit
	// started counts, for names.
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
	if c.limit != defaultLimit { // Otherwise the manager's own default is measured.
		args = append(args, c.limit.args()...)
	}
	return args
}

// start starts a controller and lets it end one namespace, after which it has all that it
// needs.
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
		return fmt.Errorf("creating a namespace to warm up: %w", err)
	}
	if err := c.cluster.deleteNamespaces(ctx, names); err != nil {
		return fmt.Errorf("deleting a namespace to warm up: %w", err)
	}
	return waitUntilGone(ctx, expected, process, warmUpTimeout)
}

// waitUntilGone waits for the end of namespaces, and no longer than the controller runs.
func waitUntilGone(ctx context.Context, expected *departure, process *harness.Process, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-expected.done:
		return nil
	case <-process.Exited():
		return fmt.Errorf("the controller ended by itself; it said last: %s", process.LastWords())
	case <-timer.C:
		return fmt.Errorf("%d namespaces are still there after %s; the controller said last: %s",
			expected.left(), timeout, process.LastWords())
	case <-ctx.Done():
		return ctx.Err()
	}
}
