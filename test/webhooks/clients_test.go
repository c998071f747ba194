// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	kustomization = "test/webhooks/testdata/kustomize"
	chartFile     = "test/webhooks/testdata/chart/Chart.yaml"
	contentKinds  = "serviceaccount,configmap,secret,service,persistentvolumeclaim,resourcequota,role,rolebinding," +
		"networkpolicy,deployment"
)

// concurrentClients is the number of clients that run at the same time, as the same user.
const concurrentClients = 4

// rounds is how often each client creates and fills a namespace.
func rounds() int {
	number, err := strconv.Atoi(os.Getenv("HOLD_ROUNDS"))
	if err != nil {
		return 2
	}
	return number
}

// clients create a namespace and fill it immediately, as the user of a kubeconfig.
var clients = map[string]func(ctx context.Context, name string) error{
	"kubectl apply": func(ctx context.Context, name string) error {
		return run(ctx, renderKustomization(name), cluster.KubectlPath(), "apply", "-f", "-")
	},
	"kubectl apply --server-side": func(ctx context.Context, name string) error {
		return run(ctx, renderKustomization(name), cluster.KubectlPath(), "apply", "--server-side", "-f", "-")
	},
	"kubectl apply -k": func(ctx context.Context, name string) error {
		return run(ctx, "", cluster.KubectlPath(), "apply", "-k", overlay(name))
	},
	"helm install --create-namespace": func(ctx context.Context, name string) error {
		return run(ctx, "", framework.HelmPath(),
			"install", "shop", makeChart(), "--namespace="+name, "--create-namespace")
	},
	"client-go, all objects at once": func(ctx context.Context, name string) error {
		framework.CreateNamespace(ctx, cluster.Ordinary, name)
		var writes errgroup.Group
		for _, object := range content(name) {
			writes.Go(func() error { return cluster.Ordinary.Create(ctx, object) })
		}
		return writes.Wait()
	},
}

var _ = Describe("A client that creates a namespace and fills it", func() {
	for _, duration := range []time.Duration{20 * time.Millisecond, 2 * time.Second, 15 * time.Second} {
		labels := Label()
		if duration > 10*time.Second {
			labels = Label("long")
		}
		Context(fmt.Sprintf("with an initializer that takes %s", duration), labels, Ordered, func() {
			BeforeAll(func(ctx context.Context) {
				const name = "slow.test.example.com"
				initializer, err := initializers.Start(ctx, cluster.Initializer.Config, name, initializers.After(duration))
				Expect(err).NotTo(HaveOccurred())
				DeferCleanup(initializer.Stop)
				cluster.Register(ctx, "slow", name)
			})
			for name, fill := range clients {
				It(name+" succeeds", func(ctx context.Context) {
					var all errgroup.Group
					all.SetLimit(concurrentClients)
					for range rounds() {
						all.Go(func() error {
							defer GinkgoRecover()
							namespace := framework.Unique("shop")
							if err := fill(ctx, namespace); err != nil {
								return err
							}
							output, err := cluster.Kubectl(ctx, cluster.Admin.Config, "get", contentKinds,
								"--namespace="+namespace, "--output=name", "--selector=example.com/content")
							Expect(bytes.Count([]byte(output), []byte("\n"))).To(Equal(len(content(namespace))), output)
							return err
						})
					}
					Expect(all.Wait()).To(Succeed())
				})
			}
		})
	}
})

var _ = DescribeTable("A client fails with the names of the pending initializers", Label("long"),
	func(ctx context.Context, write func(ctx context.Context, name string) error) {
		namespace := cluster.CreateInitializing(ctx, "endless").Name
		start := time.Now()
		err := write(ctx, namespace)
		Expect(err).To(MatchError(And(ContainSubstring("is being initialized"), ContainSubstring("absent.test.example.com"))))
		AddReportEntry("failed after", time.Since(start).String())
	},
	Entry("kubectl create", func(ctx context.Context, name string) error {
		return run(ctx, "", cluster.KubectlPath(), "create", "configmap", "web", "--namespace="+name)
	}),
	Entry("helm install", func(ctx context.Context, name string) error {
		return run(ctx, "", framework.HelmPath(),
			"install", "shop", makeChart(), "--namespace="+name)
	}),
	Entry("client-go", func(ctx context.Context, name string) error {
		return cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(name, "web"))
	}),
)

// run runs a command as the ordinary user.
func run(ctx context.Context, input, path string, args ...string) error {
	GinkgoHelper()
	_, err := cluster.RunAs(ctx, cluster.Ordinary, input, path, args...)
	return err
}

// overlay returns the directory of a kustomization for a namespace with the given name.
func overlay(name string) string {
	GinkgoHelper()
	directory := GinkgoT().TempDir()
	for _, file := range []string{"namespace.yaml", "content.yaml"} {
		copyFile(filepath.Join(kustomization, file), filepath.Join(directory, file))
	}
	Expect(os.WriteFile(filepath.Join(directory, "kustomization.yaml"),
		[]byte("namespace: "+name+"\nresources: [namespace.yaml, content.yaml]\n"), 0o600)).To(Succeed())
	return directory
}

func renderKustomization(name string) string {
	GinkgoHelper()
	output, err := exec.Command(cluster.KubectlPath(), "kustomize", overlay(name)).Output()
	Expect(err).NotTo(HaveOccurred())
	return string(output)
}

// makeChart returns the directory of a chart with the same content.
func makeChart() string {
	GinkgoHelper()
	directory := GinkgoT().TempDir()
	Expect(os.Mkdir(filepath.Join(directory, "templates"), 0o700)).To(Succeed())
	copyFile(chartFile, filepath.Join(directory, "Chart.yaml"))
	copyFile(filepath.Join(kustomization, "content.yaml"), filepath.Join(directory, "templates", "content.yaml"))
	return directory
}

func copyFile(from, to string) {
	GinkgoHelper()
	data, err := os.ReadFile(filepath.Join(controlplane.Root(), from))
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(to, data, 0o600)).To(Succeed())
}

// content returns the objects of a namespace.
func content(namespace string) []client.Object {
	GinkgoHelper()
	data, err := os.ReadFile(filepath.Join(controlplane.Root(), kustomization, "content.yaml"))
	Expect(err).NotTo(HaveOccurred())
	var objects []client.Object
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data))
	for {
		object := &unstructured.Unstructured{}
		if decoder.Decode(&object.Object) != nil {
			return objects
		}
		object.SetNamespace(namespace)
		objects = append(objects, object)
	}
}
