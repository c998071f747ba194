// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const acquired = "[Ss]uccessfully acquired lease"

// createMany creates the given number of ConfigMaps.
func createMany(ctx context.Context, namespace string, count int) {
	GinkgoHelper()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(20)
	for number := range count {
		group.Go(func() error {
			return admin.Create(ctx, wrappers.MakeConfigMap(namespace, fmt.Sprintf("many-%d", number)))
		})
	}
	Expect(group.Wait()).To(Succeed())
}

// This spec takes a long time because it creates thousands of objects and waits until the Lease of
// a killed leader expires.
var _ = Describe("Two managers with leader election", Label("long"), func() {
	It("finalize a namespace even if the leader is killed during finalization", func(ctx context.Context) {
		const many, some = 3000, 5
		stopManager()
		flags := []string{"--controllers=finalization", "--leader-elect", "--leader-elect-resource-name=ha-test"}
		leader := startProcess(ctx, managerConfig(ctx), flags...)
		Eventually(leader.Err).WithContext(ctx).Should(gbytes.Say(acquired))
		standby := startProcess(ctx, managerConfig(ctx), flags...)
		Eventually(standby.Err).WithContext(ctx).Should(gbytes.Say("[Aa]ttempting to acquire leader lease"))

		namespace := createNamespace(ctx, "large")
		createMany(ctx, namespace.Name, many)
		for number := range some {
			create(ctx, withFinalizer(wrappers.MakeConfigMap(namespace.Name, fmt.Sprintf("held-%d", number))))
		}
		DeferCleanup(func(ctx context.Context) { removeAll(ctx, configMaps, namespace.Name) })

		By("killing the leader during finalization")
		deleteObject(ctx, namespace)
		Eventually(remainingOf).WithContext(ctx).WithArguments(namespace.Name).
			WithPolling(5 * time.Millisecond).Should(BeNumerically("<", many))
		leader.Kill()
		Eventually(leader).WithContext(ctx).Should(gexec.Exit())
		killed := time.Now()
		// The API server might still be processing requests from the leader.
		remaining := remainingOf(Default, ctx, namespace.Name)
		Eventually(func(g Gomega) {
			before := remaining
			remaining = remainingOf(g, ctx, namespace.Name)
			g.Expect(remaining).To(Equal(before))
		}).WithContext(ctx).WithPolling(200 * time.Millisecond).Should(Succeed())
		Expect(remaining).To(And(BeNumerically(">", many/10), BeNumerically("<", many)), "the leader was not killed during finalization")

		By("checking that nothing is deleted while there is no leader")
		Consistently(remainingOf).WithContext(ctx).WithArguments(namespace.Name).Should(Equal(remaining))
		eventuallyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes))
		Expect(standby.Err.Contents()).NotTo(MatchRegexp(acquired))

		By("waiting until the standby becomes the leader")
		Eventually(standby.Err).WithContext(ctx).Should(gbytes.Say(acquired))
		AddReportEntry("time without a leader", time.Since(killed).Round(time.Second).String())
		eventuallyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes),
			HaveRemaining(fmt.Sprintf("configmaps. has %d resource instances", some)),
			HaveFinalizersRemaining(fmt.Sprintf("%s in %d resource instances", testFinalizer, some)))
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(Equal(some))
		for number := range some {
			removeFinalizers(ctx, wrappers.MakeConfigMap(namespace.Name, fmt.Sprintf("held-%d", number)))
		}
		expectDeleted(ctx, namespace)
		AddReportEntry("from killing the leader to the deletion of the namespace", time.Since(killed).Round(time.Second).String())
		Expect(standby).NotTo(gexec.Exit())
	}, SpecTimeout(5*time.Minute))
})
