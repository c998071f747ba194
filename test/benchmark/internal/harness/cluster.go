// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"

	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// Cluster is a control plane for a benchmark.
type Cluster struct {
	*controlplane.ControlPlane
	// Version is the version of the API server.
	Version string
	// serverPID is the process ID of kube-apiserver, or 0 if it is unknown.
	serverPID int
	// managers is the number of started managers, to name their logs.
	managers int
}

// StartCluster starts a control plane. Without fsync, etcd does not wait until its writes are on the disk.
func StartCluster(ctx context.Context, fsync bool, options ...controlplane.Option) (*Cluster, error) {
	plane, err := controlplane.Start(ctx,
		append(options, controlplane.WithEtcdFlag("unsafe-no-fsync", strconv.FormatBool(!fsync)))...)
	if err != nil {
		return nil, err
	}
	c := &Cluster{ControlPlane: plane}
	client, err := discovery.NewDiscoveryClientForConfig(plane.Admin)
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	version, err := client.ServerVersion()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("failed to get the version of the API server: %w", err), c.Stop())
	}
	c.Version = version.GitVersion
	if c.serverPID, _, err = FindChild("kube-apiserver"); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// ServerCPU returns the processor time of the API server, or false if it is unknown.
func (c *Cluster) ServerCPU() (time.Duration, bool, error) {
	if c.serverPID == 0 {
		return 0, false, nil
	}
	return ReadCPU(c.serverPID)
}

// Profile writes a profile of the processor time of the API server in the next seconds to a file (go tool pprof).
func (c *Cluster) Profile(ctx context.Context, path string, duration time.Duration) error {
	client, err := discovery.NewDiscoveryClientForConfig(controlplane.Unlimited(c.Admin))
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	profile, err := client.RESTClient().Get().AbsPath("/debug/pprof/profile").
		Param("seconds", strconv.Itoa(int(duration.Seconds()))).Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("failed to profile the API server: %w", err)
	}
	return WriteFile(path, profile)
}

// Kubeconfig writes a kubeconfig with a token of a ServiceAccount, and returns its path.
func (c *Cluster) Kubeconfig(ctx context.Context, namespace, account string) (string, error) {
	config, err := c.ServiceAccountConfig(ctx, namespace, account)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.Dir, account+".kubeconfig")
	return path, controlplane.WriteKubeconfig(path, config)
}

// StartManager builds and starts the manager with its ServiceAccount. The caller starts the admission controller.
func (c *Cluster) StartManager(ctx context.Context, flags ...string) (*Process, error) {
	binary, err := BuildManager(ctx, c.Dir)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.Kubeconfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	if err != nil {
		return nil, err
	}
	c.managers++
	return StartProcess(ctx, "the manager", filepath.Join(c.Dir, fmt.Sprintf("manager-%d.log", c.managers)), binary,
		append([]string{
			"--kubeconfig=" + kubeconfig, controlplane.WithoutAdmission, "--leader-elect=false",
			"--health-probe-bind-address=0", "--metrics-bind-address=0",
		}, flags...)...)
}

// StartInformers starts the informers of the factories, and waits until they have synced.
func StartInformers(ctx context.Context, factories ...informers.SharedInformerFactory) (stop func(), err error) {
	runContext, cancel := context.WithCancel(ctx)
	stop = func() {
		cancel()
		for _, factory := range factories {
			factory.Shutdown()
		}
	}
	for _, factory := range factories {
		factory.Start(runContext.Done())
		for kind, hasSynced := range factory.WaitForCacheSync(ctx.Done()) {
			if !hasSynced {
				stop()
				return nil, fmt.Errorf("failed to sync the informer of %s", kind)
			}
		}
	}
	return stop, nil
}
