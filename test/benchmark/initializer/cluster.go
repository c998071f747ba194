// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/pkg/initializer"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	// account is the name of the ServiceAccount of all initializers, and of the ServiceAccount's
	// namespace.
	account = "bench-initializers"
	// timeout is the maximum duration of a step, after which the run is aborted.
	timeout = 2 * time.Minute
	// pollInterval is the time between polls outside measurements.
	pollInterval = 50 * time.Millisecond
)

// cluster is a control plane with nslifecycle and a manager.
type cluster struct {
	*harness.Cluster
	admin   client.Client
	user    kubernetes.Interface
	manager *harness.Process
	// kubeconfig is the path of the initializers' kubeconfig, and binary is the path of this program.
	kubeconfig, binary string
	// created and started count namespaces and processes, to name them.
	created, started int
}

func startCluster(ctx context.Context, fsync bool) (*cluster, error) {
	plane, err := harness.StartCluster(ctx, fsync)
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: plane}
	if err := c.prepare(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) stop() error { return errors.Join(c.manager.Stop(), c.Stop()) }

func (c *cluster) prepare(ctx context.Context) error {
	var err error
	if c.binary, err = os.Executable(); err != nil {
		return fmt.Errorf("failed to find this program: %w", err)
	}
	if c.admin, err = controlplane.NewClient(c.Admin); err != nil {
		return err
	}
	if c.user, err = kubernetes.NewForConfig(controlplane.Unlimited(c.Admin)); err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	if err := c.Install(ctx); err != nil {
		return err
	}
	if err := c.prepareAccount(ctx); err != nil {
		return err
	}
	return c.startManager(ctx)
}

// prepareAccount creates the ServiceAccount of the initializers.
func (c *cluster) prepareAccount(ctx context.Context) error {
	meta := metav1.ObjectMeta{Name: account}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: meta},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account, Name: account}},
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"namespaces"},
			Verbs: []string{"get", "list", "watch", "patch", v1alpha1.VerbInitialize},
		}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account, Name: account}},
		},
	} {
		if err := c.admin.Create(ctx, object); err != nil {
			return fmt.Errorf("failed to create the ServiceAccount of the initializers: %w", err)
		}
	}
	var err error
	c.kubeconfig, err = c.Kubeconfig(ctx, account, account)
	return err
}

func (c *cluster) startManager(ctx context.Context) error {
	if _, err := c.StartAdmission(ctx); err != nil {
		return err
	}
	var err error
	c.manager, err = c.StartManager(ctx)
	return err
}

// register replaces the registered initializers and waits until new namespaces get them.
func (c *cluster) register(ctx context.Context, names []string) error {
	configuration := wrappers.MakeConfiguration("bench").Obj()
	_, err := controllerutil.CreateOrUpdate(ctx, c.admin, configuration, func() error {
		configuration.Initializers = nil
		for _, name := range names {
			configuration.Initializers = append(configuration.Initializers, v1alpha1.NamespaceInitializer{Name: name})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("failed to register initializers: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
		err := c.admin.Create(ctx, probe, client.DryRunAll)
		if err == nil && probe.Annotations[v1alpha1.AnnotationPendingInitializers] == strings.Join(names, ",") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the pending list was not injected: %w; last output of the manager: %s",
				errors.Join(ctx.Err(), err), c.manager.LastOutput())
		case <-time.After(pollInterval):
		}
	}
}

// way describes how the initializers of a chain run.
type way string

const (
	oneProcess        way = "pkg/initializer, one process"
	separateProcesses way = "pkg/initializer, separate processes"
)

// chain contains the processes that run the initializers of a chain.
type chain []*harness.Process

// serve starts the processes of a chain.
func (c *cluster) serve(ctx context.Context, w way, names []string) (chain, error) {
	groups := [][]string{names}
	if w == separateProcesses {
		groups = slices.Collect(slices.Chunk(names, 1))
	}
	var running chain
	for _, group := range groups {
		c.started++
		process, err := harness.StartProcess(ctx, "an initializer",
			filepath.Join(c.Dir, fmt.Sprintf("initializer-%d.log", c.started)), c.binary,
			"--serve="+c.kubeconfig, "--names="+strings.Join(group, ","))
		if err != nil {
			return nil, errors.Join(err, running.stop())
		}
		running = append(running, process)
	}
	return running, nil
}

func (c chain) stop() error {
	var errs []error
	for _, process := range c {
		errs = append(errs, process.Stop())
	}
	return errors.Join(errs...)
}

// cpu returns the processor time that the processes have used so far, or 0 if it is not available.
func (c chain) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, process := range c {
		used, _, err := process.CPU()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// measureBare measures a client that sends only the requests that cannot be avoided: for each namespace
// the creation, one patch for each initializer, and one write of the status. It stops the manager
// meanwhile. The policies remain, so each namespace gets the pending list.
func (r *outcome) measureBare(ctx context.Context, c *cluster, clients int) error {
	if err := c.manager.Stop(); err != nil {
		return err
	}
	worker, err := newBareClient(filepath.Join(c.Dir, account+".kubeconfig"))
	if err != nil {
		return err
	}
	operator, err := newBareClient(filepath.Join(c.Dir, controlplane.ServiceAccount+".kubeconfig"))
	if err != nil {
		return err
	}
	first := c.created + 1
	c.created += r.atOnce
	began := time.Now()
	err = harness.InParallelWithLimit(ctx, clients, r.atOnce, func(ctx context.Context, i int) error {
		return c.initializeBare(ctx, worker, operator, fmt.Sprintf(namespaceFormat, first+i))
	})
	r.bare = append(r.bare, time.Since(began))
	return errors.Join(err, c.startManager(ctx))
}

func newBareClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("failed to read the kubeconfig: %w", err)
	}
	return kubernetes.NewForConfig(controlplane.Unlimited(config))
}

func (c *cluster) initializeBare(
	ctx context.Context, worker, operator kubernetes.Interface, name string,
) error {
	namespace, err := c.user.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create namespace %q: %w", name, err)
	}
	pending := namesOf(chainAtOnce)
	for i, initializerName := range pending {
		if err := initializers.Finish(ctx, worker, namespace, initializerName); err != nil {
			return err
		}
		namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = strings.Join(pending[i+1:], ",")
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"conditions":[{"type":%q,"status":"False","reason":%q,`+
		`"lastTransitionTime":%q}]}}`, namespace.UID, v1alpha1.ConditionInitializing, v1alpha1.ReasonInitialized,
		time.Now().UTC().Format(time.RFC3339))
	_, err = operator.CoreV1().Namespaces().Patch(ctx, name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("failed to update the status of namespace %q: %w", name, err)
	}
	return nil
}

// serve runs in a child process: it runs no-op initializers with the given names until it is
// interrupted.
func serve(ctx context.Context, kubeconfig string, names []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("failed to read the kubeconfig: %w", err)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	for _, name := range names {
		err := initializer.Add(mgr, name, func(context.Context, *corev1.Namespace) (initializer.Result, error) {
			return initializer.Result{}, nil
		})
		if err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}
