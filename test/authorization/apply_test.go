// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
)

const applies = 20

var _ = Describe("A user who may only create and view namespaces", Ordered, func() {
	BeforeAll(func(ctx context.Context) {
		const name = "slow.test.example.com"
		initializer, err := initializers.Start(ctx, cluster.Initializer.Config, name, initializers.After(500*time.Millisecond))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(initializer.Stop)
		cluster.Register(ctx, "before-templates", name) // The name sorts before the one of the suite.
	})

	It("cannot apply a namespace and its content without the webhook", func(ctx context.Context) {
		Expect(cluster.DisableAuthorization(ctx, files)).To(Succeed())
		name := framework.Unique("shop")
		By("keeping the namespace initializing, so that kubectl cannot be slower than the initializer")
		label := fmt.Sprintf("metadata:\n  labels: {%s: ''}\n", absentLabel)
		shop := strings.Replace(readShop(name), "metadata:\n", label, 1)
		_, err := cluster.RunAs(ctx, requester, shop, cluster.KubectlPath(), "apply", "-f", "-")
		Expect(err).To(MatchError(ContainSubstring("forbidden")))
		Expect(framework.PendingOf(cluster.GetNamespace(Default, ctx, name))).To(ContainSubstring(framework.Absent))
	})

	It("applies a namespace and its content with the webhook", func(ctx context.Context) {
		enable(ctx)
		start := time.Now()
		succeeded, err := applyAll(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(succeeded).To(BeEquivalentTo(applies))
		AddReportEntry(fmt.Sprintf("%d of %d in %s", succeeded, applies, time.Since(start)))
	})
})

// The clients that docs/clients.md names, and the commands that it recommends instead.
var _ = Describe("A client whose first request precedes the namespace, or needs more permissions", Ordered, func() {
	var name, directory string
	BeforeAll(func(ctx context.Context) {
		framework.Make(ctx, "helm")
		enable(ctx)
	})
	BeforeEach(func() {
		name, directory = framework.Unique("shop"), GinkgoT().TempDir()
		_, content, _ := strings.Cut(readShop(name), "---\n")
		for file, text := range map[string]string{
			"Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n", "templates/content.yaml": content,
		} {
			Expect(os.MkdirAll(filepath.Dir(filepath.Join(directory, file)), 0o700)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(directory, file), []byte(text), 0o600)).To(Succeed())
		}
	})
	run := func(ctx context.Context, path string, args ...string) error {
		GinkgoHelper()
		_, err := cluster.RunAs(ctx, requester, readShop(name), path, args...)
		return err
	}

	It("kubectl apply --server-side succeeds in an existing namespace", func(ctx context.Context) {
		Expect(run(ctx, cluster.KubectlPath(), "apply", "--server-side", "-f", "-")).To(MatchError(ContainSubstring("forbidden")))
		Expect(run(ctx, cluster.KubectlPath(), "create", "namespace", name)).To(Succeed())
		Expect(run(ctx, cluster.KubectlPath(), "apply", "--server-side", "-f", filepath.Join(directory, "templates"))).To(Succeed())
	})

	It("helm install succeeds in an existing namespace", func(ctx context.Context) {
		Expect(run(ctx, framework.HelmPath(), "install", "shop", directory, "--namespace="+name, "--create-namespace")).
			To(MatchError(ContainSubstring("forbidden")))
		Expect(run(ctx, cluster.KubectlPath(), "create", "namespace", name)).To(Succeed())
		Expect(run(ctx, framework.HelmPath(), "install", "shop", directory, "--namespace="+name)).To(Succeed())
	})
})

// readShop returns the namespace and its content under a name.
func readShop(name string) string {
	GinkgoHelper()
	shop, err := os.ReadFile(filepath.Join(controlplane.Root(), "hack", "demo", "manifests", "shop.yaml"))
	Expect(err).NotTo(HaveOccurred())
	return strings.ReplaceAll(string(shop), "demo-shop", name)
}

// applyAll applies the namespace and its content under several names, some of them concurrently. It returns how often
// this succeeded, and one of the errors.
func applyAll(ctx context.Context) (int64, error) {
	GinkgoHelper()
	var all errgroup.Group
	all.SetLimit(4)
	var succeeded atomic.Int64
	for range applies {
		all.Go(func() error {
			defer GinkgoRecover()
			_, err := cluster.RunAs(ctx, requester, readShop(framework.Unique("shop")), cluster.KubectlPath(), "apply", "-f", "-")
			if err == nil {
				succeeded.Add(1)
			}
			return err
		})
	}
	err := all.Wait()
	return succeeded.Load(), err
}
