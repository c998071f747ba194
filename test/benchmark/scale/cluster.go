// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
)

const (
	// objectName is the name of the template and of its objects.
	objectName = "bench"
	// scaleLabel is the label of the namespaces of the benchmark.
	scaleLabel = "bench.example.com/scale"
	// versionKey is the key in the ConfigMap of the template that the benchmark changes.
	versionKey = "version"
	// templateObjects is the number of objects in the template.
	templateObjects = 4
	// watchDelay is the time until the API server has noticed that the manager has stopped.
	watchDelay      = 2 * time.Second
	initializerName = "scale.bench.example.com"
	initializerUser = "bench-initializer"
	// batchSize is the number of namespaces that are created at once between the steps.
	batchSize = 500
	// setUpTimeout is the maximum duration of a step outside measurements.
	setUpTimeout = 3 * time.Minute
	pollInterval = 500 * time.Millisecond
)

var (
	//go:embed manifests/setup.yaml
	setUpManifest string
	//go:embed manifests/template.yaml
	templateManifest string
)

// cluster is the control plane, the manager, and the clients of the benchmark.
type cluster struct {
	*harness.Cluster
	client      kubernetes.Interface
	templates   client.Client
	scraper     rest.Interface
	observer    *observer
	initializer *initializers.Initializer
	manager     *harness.Process
	// metrics is the URL of the manager's metrics.
	metrics       string
	metricsClient *http.Client
	stall         time.Duration
	// names contains the existing namespaces, and created is the number of all that were created.
	names   []string
	created int
	// version is the version in the template.
	version int
}

func startCluster(ctx context.Context, opts options) (*cluster, error) {
	plane, err := harness.StartCluster(ctx, opts.Fsync,
		controlplane.WithEtcdFlag("quota-backend-bytes", strconv.Itoa(8<<30)))
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: plane, stall: opts.stall}
	if err := c.prepare(ctx, opts.crds); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) stop() error {
	err := c.manager.Stop()
	if c.initializer != nil {
		c.initializer.Stop()
	}
	if c.observer != nil {
		c.observer.stop()
	}
	return errors.Join(err, c.Stop())
}

func (c *cluster) prepare(ctx context.Context, crds int) error {
	if err := c.prepareClients(); err != nil {
		return err
	}
	config := controlplane.Unlimited(c.Admin)
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	harness.Say("Creating %d CustomResourceDefinitions", crds)
	if err := harness.SetCRDs(ctx, dynamicClient, c.client.Discovery(), 0, crds); err != nil {
		return err
	}
	if err := c.Install(ctx); err != nil {
		return err
	}
	if _, err := c.KubectlWithInput(ctx, c.Admin, setUpManifest, "apply", "-f", "-"); err != nil {
		return err
	}
	if c.observer, err = startObserver(ctx, c.client); err != nil {
		return err
	}
	initializerConfig, err := c.User(initializerUser)
	if err != nil {
		return err
	}
	c.initializer, err = initializers.Start(ctx, controlplane.Unlimited(initializerConfig), initializerName,
		initializers.Nothing)
	if err != nil {
		return err
	}
	if err := c.startManager(ctx); err != nil {
		return err
	}
	return c.applyTemplate(ctx)
}

func (c *cluster) prepareClients() error {
	config := controlplane.Unlimited(c.Admin)
	config.ContentType = runtime.ContentTypeProtobuf
	var err error
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	c.scraper = c.client.CoreV1().RESTClient()
	c.templates, err = controlplane.NewClient(c.Admin)
	return err
}

func (c *cluster) startManager(ctx context.Context) error {
	address, err := controlplane.FreeAddress()
	if err != nil {
		return err
	}
	c.metrics = "https://" + address + "/metrics"
	if c.metricsClient, err = c.MetricsClient(ctx); err != nil {
		return err
	}
	if _, err := c.StartAdmission(ctx); err != nil {
		return err
	}
	c.manager, err = c.StartManager(ctx, "--metrics-bind-address="+address)
	return err
}

// applyTemplate repeats the request, since the API server rejects it until the manager has started.
// It then waits until a namespace has the pending list and the objects.
func (c *cluster) applyTemplate(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, setUpTimeout, true, func(ctx context.Context) (bool, error) {
		_, last = c.KubectlWithInput(ctx, c.Admin, templateManifest, "apply", "-f", "-")
		if last != nil {
			return false, nil
		}
		probe, err := c.client.CoreV1().Namespaces().Create(ctx, newNamespace("probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			last = err
			return false, nil
		}
		last = fmt.Errorf("the pending list is %q", probe.Annotations[v1alpha1.AnnotationPendingInitializers])
		return probe.Annotations[v1alpha1.AnnotationPendingInitializers] != "", nil
	})
	if err != nil {
		return fmt.Errorf("failed to apply the template: %w; last output of the manager: %s", errors.Join(err, last),
			c.manager.LastOutput())
	}
	return nil
}

// changeTemplate changes the version in the template and returns a tracker for it.
func (c *cluster) changeTemplate(ctx context.Context) (*harness.Tracker, error) {
	c.version++
	version := strconv.Itoa(c.version)
	changed := c.observer.expectVersion(c.names, version)
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: objectName}}
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/objects/0/template/data/%s","value":%q}]`, versionKey, version)
	if err := c.templates.Patch(ctx, template, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		return nil, fmt.Errorf("failed to change the template: %w", err)
	}
	return changed, nil
}

func newNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{scaleLabel: ""}}}
}

// nextNames returns names for namespaces.
func (c *cluster) nextNames(count int) []string {
	names := make([]string, count)
	for i := range names {
		c.created++
		names[i] = fmt.Sprintf("bench-%06d", c.created)
	}
	return names
}

func (c *cluster) createNamespace(ctx context.Context, name string) error {
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, newNamespace(name), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create namespace %q: %w", name, err)
	}
	return nil
}

func (c *cluster) deleteNamespace(ctx context.Context, name string) error {
	if err := c.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("failed to delete namespace %q: %w", name, err)
	}
	return nil
}

// fill creates other objects in namespaces.
func (c *cluster) fill(ctx context.Context, names []string, objects int) error {
	return harness.InParallel(ctx, len(names)*objects, func(ctx context.Context, i int) error {
		config := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%d", i%objects)},
			Data:       map[string]string{"text": "nothing in particular"},
		}
		name := names[i/objects]
		if _, err := c.client.CoreV1().ConfigMaps(name).Create(ctx, config, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("failed to create a ConfigMap in namespace %q: %w", name, err)
		}
		return nil
	})
}

// grow creates namespaces until there is the given number.
func (c *cluster) grow(ctx context.Context, size, objects int) error {
	for len(c.names) < size {
		names := c.nextNames(min(batchSize, size-len(c.names)))
		initialized := c.observer.expectInitialized(names)
		if err := harness.InParallel(ctx, len(names), func(ctx context.Context, i int) error {
			return c.createNamespace(ctx, names[i])
		}); err != nil {
			return err
		}
		if err := c.wait(ctx, initialized); err != nil {
			return fmt.Errorf("failed to wait for initialized namespaces: %w", err)
		}
		if err := c.fill(ctx, names, objects); err != nil {
			return err
		}
		c.names = append(c.names, names...)
	}
	return nil
}

// wait waits until a time is recorded for all objects. It fails if none is recorded for a while.
func (c *cluster) wait(ctx context.Context, tracker *harness.Tracker) error {
	for before := tracker.Remaining(); before > 0; {
		timer := time.NewTimer(c.stall)
		select {
		case <-tracker.Done():
		case <-timer.C:
		case <-c.manager.Exited():
			return fmt.Errorf("the manager exited; last output: %s", c.manager.LastOutput())
		case <-ctx.Done():
			return ctx.Err()
		}
		timer.Stop()
		remaining := tracker.Remaining()
		if remaining == before {
			return fmt.Errorf("%d remain after %s without progress; last output of the manager: %s", remaining, c.stall,
				c.manager.LastOutput())
		}
		before = remaining
	}
	return nil
}
