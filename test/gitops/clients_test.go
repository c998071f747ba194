// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/cli-utils/pkg/kstatus/polling/engine"
	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"github.com/fluxcd/pkg/ssa"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// apply creates a namespace unless it exists, waits for it, and writes an object to it once, as the ordinary user. The
// API server rejects the object of a client that does not wait.
type apply = func(ctx context.Context, name string) error

// patientClients wait until a condition exists, or read the label, which exists in the response to the creation.
var patientClients = map[string]apply{
	"kubectl wait": func(ctx context.Context, name string) error {
		if err := run(ctx, cluster.KubectlPath(), "create", "namespace", name); err != nil {
			return err
		}
		if err := run(ctx, cluster.KubectlPath(), "wait", "--for=condition=Ready", "namespace/"+name, "--timeout=5m"); err != nil {
			return err
		}
		return createConfig(ctx, name)
	},
	"Flux with the documented health check": func(ctx context.Context, name string) error {
		return applyWithFlux(ctx, documentedHealthCheck(), name)
	},
}

// kstatusClients do not wait if no condition exists when they read the namespace.
var kstatusClients = map[string]apply{
	"helm install --wait": func(ctx context.Context, name string) error {
		if err := run(ctx, framework.HelmPath(), installation(name)...); err != nil {
			return err
		}
		return createConfig(ctx, name)
	},
	"Flux": func(ctx context.Context, name string) error { return applyWithFlux(ctx, nil, name) },
}

var _ = Describe("Without the webhook server, while initializers run,", Ordered, ContinueOnFailure, func() {
	const number = 5

	BeforeAll(func(ctx context.Context) { startInitializer(ctx, 2*time.Second) })

	for client, apply := range patientClients {
		It(client+" waits for new namespaces", func(ctx context.Context) {
			Expect(applyAll(ctx, apply, uniqueNames(number))).To(BeEmpty())
		})
	}
	for client, apply := range kstatusClients {
		It(client+" waits for namespaces whose state the operator has reported", func(ctx context.Context) {
			names := uniqueNames(number)
			for _, name := range names {
				framework.CreateNamespace(ctx, cluster.Ordinary, name)
				Eventually(history.readyAt).WithContext(ctx).WithArguments(name).ShouldNot(BeZero())
			}
			Expect(applyAll(ctx, apply, names)).To(BeEmpty())
		})
	}
})

// uniqueNames returns names of namespaces.
func uniqueNames(number int) []string {
	names := make([]string, number)
	for i := range names {
		names[i] = framework.Unique("shop")
	}
	return names
}

// applyAll runs a client for each namespace, with all at the same time, and returns the errors.
func applyAll(ctx context.Context, apply apply, names []string) []error {
	var all sync.WaitGroup
	errs := make([]error, len(names))
	for i, name := range names {
		all.Go(func() {
			defer GinkgoRecover()
			errs[i] = apply(ctx, name)
		})
	}
	all.Wait()
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

func beDenied() OmegaMatcher { return matchers.BeDeniedBy("gate", "is being initialized") }

var _ = DescribeTable("A client does not wait for a namespace that has Failed,",
	func(ctx context.Context, wait func(ctx context.Context, namespace *corev1.Namespace) error) {
		namespace := createProtected(ctx, "stalled")
		expectStatus(ctx, namespace, status.InProgressStatus)
		done := make(chan error, 1)
		go func() {
			defer GinkgoRecover()
			done <- wait(ctx, namespace)
		}()
		Consistently(done).WithContext(ctx).ShouldNot(Receive())
		fail(ctx, namespace)
		var err error
		Eventually(done).WithContext(ctx).Should(Receive(&err))
		Expect(err).To(MatchError(ContainSubstring("Failed")))
	},
	Entry("Helm", func(ctx context.Context, namespace *corev1.Namespace) error {
		return run(ctx, framework.HelmPath(), installation(namespace.Name)...)
	}),
	Entry("Flux", func(ctx context.Context, namespace *corev1.Namespace) error {
		return waitWithFlux(ctx, nil, namespace)
	}),
	Entry("Flux, with the health check in the documentation", func(ctx context.Context, namespace *corev1.Namespace) error {
		return waitWithFlux(ctx, documentedHealthCheck(), namespace)
	}),
)

// startInitializer registers an initializer and runs it until the container ends.
func startInitializer(ctx context.Context, duration time.Duration) {
	GinkgoHelper()
	const name = "slow.test.example.com"
	initializer, err := initializers.Start(ctx, cluster.Initializer.Config, name, initializers.After(duration))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(initializer.Stop)
	cluster.Register(ctx, "slow", name)
}

// newFlux returns the code of kustomize-controller that applies objects, for the ordinary user. The health checks are
// the field spec.healthCheckExprs of a Kustomization.
func newFlux(healthChecks []kustomize.CustomHealthCheck) (*ssa.ResourceManager, error) {
	return newFluxAs(cluster.Ordinary.Config, healthChecks)
}

func newFluxAs(config *rest.Config, healthChecks []kustomize.CustomHealthCheck) (*ssa.ResourceManager, error) {
	c, err := client.New(controlplane.Unlimited(config), client.Options{})
	if err != nil {
		return nil, err
	}
	newReader, err := cel.NewStatusReader(healthChecks)
	if err != nil {
		return nil, err
	}
	poller := polling.NewStatusPoller(c, c.RESTMapper(), polling.Options{
		CustomStatusReaders: []engine.StatusReader{newReader(c.RESTMapper())},
	})
	return ssa.NewResourceManager(c, poller, ssa.Owner{
		Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io",
	}), nil
}

func createConfig(ctx context.Context, namespace string) error {
	return repeatLate(ctx, namespace, func() error {
		return cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace, "config"))
	})
}

// repeatLate repeats a write that the API server rejects although the namespace is no longer Initializing: its informer
// can be behind what the client has read.
func repeatLate(ctx context.Context, namespace string, write func() error) error {
	return retry.OnError(wait.Backoff{Duration: 100 * time.Millisecond, Steps: 50}, func(err error) bool {
		isDenied, _ := beDenied().Match(err)
		_, isInitializing := cluster.GetNamespace(Default, ctx, namespace).Labels[v1alpha1.LabelInitializing]
		return isDenied && !isInitializing
	}, write)
}

// applyWithFlux applies a namespace and an object in it, in stages.
func applyWithFlux(ctx context.Context, healthChecks []kustomize.CustomHealthCheck, name string) error {
	flux, err := newFlux(healthChecks)
	if err != nil {
		return err
	}
	objects := []*unstructured.Unstructured{
		toUnstructured(Default, wrappers.MakeNamespace(name).Obj()),
		toUnstructured(Default, wrappers.MakeConfigMap(name, "config")),
	}
	options := ssa.DefaultApplyOptions()
	options.WaitTimeout = 5 * time.Minute
	return repeatLate(ctx, name, func() error {
		_, err := flux.ApplyAllStaged(ctx, objects, options)
		return err
	})
}

// waitWithFlux waits as kustomize-controller does for the objects of a stage.
func waitWithFlux(
	ctx context.Context, healthChecks []kustomize.CustomHealthCheck, namespace *corev1.Namespace,
) error {
	flux, err := newFlux(healthChecks)
	if err != nil {
		return err
	}
	set := object.UnstructuredSetToObjMetadataSet([]*unstructured.Unstructured{toUnstructured(Default, namespace)})
	return flux.WaitForSetWithContext(ctx, set, ssa.WaitOptions{Interval: 2 * time.Second, Timeout: 5 * time.Minute})
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// documentedHealthCheck returns the only health checks for a Kustomization in docs/clients.md.
func documentedHealthCheck() []kustomize.CustomHealthCheck {
	GinkgoHelper()
	page, err := os.ReadFile(filepath.Join(controlplane.Root(), "docs", "clients.md"))
	Expect(err).NotTo(HaveOccurred())
	for _, block := range yamlBlock.FindAllSubmatch(page, -1) {
		var kustomization struct {
			Spec struct{ HealthCheckExprs []kustomize.CustomHealthCheck }
		}
		Expect(yaml.Unmarshal(block[1], &kustomization)).To(Succeed())
		if checks := kustomization.Spec.HealthCheckExprs; len(checks) > 0 {
			return checks
		}
	}
	Fail("the documentation contains no health check")
	return nil
}

// installation returns the arguments of helm for a release that contains a namespace.
func installation(namespace string) []string {
	return []string{"install", namespace, "testdata/chart", "--namespace=default", "--set=namespace=" + namespace,
		"--take-ownership", "--wait", "--timeout=5m"}
}

// run runs a command as the ordinary user.
func run(ctx context.Context, path string, args ...string) error {
	GinkgoHelper()
	_, err := cluster.RunAs(ctx, cluster.Ordinary, "", path, args...)
	return err
}
