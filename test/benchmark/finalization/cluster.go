// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

const (
	// assetsVariable is the environment variable with the directory of the control plane's
	// binaries.
	assetsVariable = "KUBEBUILDER_ASSETS"
	// secondServer is the name of the Lease that simulates a second API server.
	secondServer = "apiserver-of-the-benchmark"
	// leaseSeconds is the duration of that Lease. Leases of real API servers have the same duration.
	leaseSeconds = 3600

	pollInterval = 250 * time.Millisecond
	// setUpTimeout is the maximum time to wait outside measurements.
	setUpTimeout = 5 * time.Minute
)

// cluster is the control plane and the clients of the harness.
type cluster struct {
	*harness.Cluster
	client  kubernetes.Interface
	dynamic dynamic.Interface
	// scraper reads the metrics of the API server. Its requests are not counted.
	scraper  rest.Interface
	meter    harness.Meter
	observer *observer
	// crds is the number of CRDs, and crowd is the number of objects in other namespaces.
	crds, crowd int
	// aggregated is nil if the scenario has no aggregated API server.
	aggregated *aggregatedServer
}

// findAssets builds the binaries, including kube-controller-manager, if they are missing, and
// makes the control plane use them.
func findAssets(ctx context.Context) (string, error) {
	assets, err := controlplane.FindAssets(ctx, "--with-controller-manager")
	if err != nil {
		return "", err
	}
	return assets, os.Setenv(assetsVariable, assets)
}

// startCluster starts a control plane with the manager's ServiceAccount and its permissions.
func startCluster(ctx context.Context, fsync bool) (*cluster, error) {
	plane, err := harness.StartCluster(ctx, fsync)
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: plane}
	if err := c.prepare(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *cluster) prepare(ctx context.Context) error {
	config := rest.CopyConfig(c.Admin)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	scraper, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	c.scraper = scraper.CoreV1().RESTClient()

	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return c.meter.Wrap(next) })
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return fmt.Errorf("failed to create a dynamic client: %w", err)
	}
	typed := rest.CopyConfig(config)
	typed.ContentType = runtime.ContentTypeProtobuf
	if c.client, err = kubernetes.NewForConfig(typed); err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	if err := c.installRights(ctx); err != nil {
		return err
	}
	c.observer, err = startObserver(ctx, c.client)
	return err
}

// Stop stops the control plane.
func (c *cluster) Stop() error {
	if c.observer != nil {
		c.observer.stop()
	}
	return c.Cluster.Stop()
}

// installRights installs the part of config/default that the manager needs to finalize namespaces:
// its namespace, its ServiceAccount and RBAC. The policies are omitted, because they would use
// processor time of the API server.
func (c *cluster) installRights(ctx context.Context) error {
	manifests, err := c.Kubectl(ctx, c.Admin, "kustomize", filepath.Join(controlplane.Root(), "config", "default"))
	if err != nil {
		return err
	}
	var rights []string
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		var object metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return fmt.Errorf("failed to read config/default: %w", err)
		}
		switch object.Kind {
		case "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
			rights = append(rights, document)
		}
	}
	_, err = c.KubectlWithInput(ctx, c.Admin, strings.Join(rights, "\n---\n"), "apply", "-f", "-")
	return err
}

// setServers simulates one or two API servers.
func (c *cluster) setServers(ctx context.Context, count int) error {
	leases := c.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	if err := leases.Delete(ctx, secondServer, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("failed to delete the Lease of the second API server: %w", err)
	}
	if count == 1 {
		return nil
	}
	now := metav1.NewMicroTime(time.Now())
	_, err := leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: secondServer, Labels: map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver"},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(secondServer), LeaseDurationSeconds: ptr.To[int32](leaseSeconds),
			AcquireTime: &now, RenewTime: &now,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create the Lease of a second API server: %w", err)
	}
	return nil
}

// countServers returns the number of API servers in the same way as the controllers determine it.
func (c *cluster) countServers(ctx context.Context) (int, error) {
	leases, err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver"})
	if err != nil {
		return 0, fmt.Errorf("failed to count the API servers: %w", err)
	}
	return len(leases.Items), nil
}

// waitForServers waits until the given number of API servers have created their Leases.
func (c *cluster) waitForServers(ctx context.Context, count int) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, setUpTimeout, true,
		func(ctx context.Context) (bool, error) {
			servers, err := c.countServers(ctx)
			return servers == count, err
		})
	if err != nil {
		return fmt.Errorf("failed to wait for %d Leases of API servers in kube-system: %w", count, err)
	}
	return nil
}

// The API server is idle if, within calmInterval, it serves at most calmRequests requests and uses
// at most half a processor.
const (
	calmInterval = time.Second
	calmRequests = 5
	calmTimeout  = 90 * time.Second
)

// calm waits until the API server is idle, and returns the number of requests that the API server
// has served. After calmTimeout, calm returns even if the API server is busy.
func (c *cluster) calm(ctx context.Context) (int64, error) {
	deadline := time.Now().Add(calmTimeout)
	last, lastCPU, err := c.read(ctx)
	if err != nil {
		return 0, err
	}
	for inARow := 0; inARow < 2; {
		if err := harness.Sleep(ctx, calmInterval); err != nil {
			return 0, err
		}
		now, cpu, err := c.read(ctx)
		if err != nil {
			return 0, err
		}
		inARow++
		// The processor time includes the time for reading the metrics.
		if now-last > calmRequests || cpu-lastCPU > calmInterval/2 {
			inARow = 0
		}
		if inARow == 0 && time.Now().After(deadline) {
			harness.Say("The API server has been busy for %s; continuing", calmTimeout)
			return now, nil
		}
		last, lastCPU = now, cpu
	}
	return last, nil
}

func (c *cluster) read(ctx context.Context) (int64, time.Duration, error) {
	cpu, _, err := c.ServerCPU()
	if err != nil {
		return 0, 0, err
	}
	requests, err := harness.ScrapeRequests(ctx, c.scraper)
	return requests, cpu, err
}

func (c *cluster) createNamespaces(ctx context.Context, names []string) error {
	return harness.InParallel(ctx, len(names), func(ctx context.Context, i int) error {
		_, err := c.client.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names[i]}}, metav1.CreateOptions{})
		return err
	})
}

// createFilled creates namespaces with content.
func (c *cluster) createFilled(ctx context.Context, prefix string, count int, what content) ([]string, error) {
	names := makeNames(prefix, count)
	if err := c.createNamespaces(ctx, names); err != nil {
		return nil, fmt.Errorf("failed to create namespaces: %w", err)
	}
	for _, name := range names {
		if err := c.fill(ctx, name, what); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func (c *cluster) deleteNamespaces(ctx context.Context, names []string) error {
	return harness.InParallel(ctx, len(names), func(ctx context.Context, i int) error {
		return c.client.CoreV1().Namespaces().Delete(ctx, names[i], metav1.DeleteOptions{})
	})
}

// removeNamespaces deletes and finalizes empty namespaces. The caller must stop all controllers
// first.
func (c *cluster) removeNamespaces(ctx context.Context, names []string) error {
	if err := c.deleteNamespaces(ctx, names); err != nil {
		return err
	}
	return c.finalizeNamespaces(ctx, names)
}

func (c *cluster) finalizeNamespaces(ctx context.Context, names []string) error {
	return harness.InParallel(ctx, len(names), func(ctx context.Context, i int) error {
		_, err := c.client.CoreV1().Namespaces().Finalize(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names[i]}}, metav1.UpdateOptions{})
		return err
	})
}

// makeNames returns names with a common prefix.
func makeNames(prefix string, count int) []string {
	names := make([]string, 0, count)
	for i := range count {
		names = append(names, fmt.Sprintf("%s-%05d", prefix, i))
	}
	return names
}

// warmUpTimeout is the maximum time for a controller to start and finalize an empty namespace.
const warmUpTimeout = 2 * time.Minute

// contenders holds the configuration of the two controllers.
type contenders struct {
	cluster     *cluster
	binaries    [2]string
	kubeconfigs [2]string
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
	result := &contenders{cluster: c}
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
	return []string{
		"--kubeconfig", c.kubeconfigs[ours], "--controllers=finalization", "--leader-elect=false",
		"--health-probe-bind-address=0", "--metrics-bind-address=0",
	}
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
