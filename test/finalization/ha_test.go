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

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const acquired = "[Ss]uccessfully acquired lease"

// createMany creates numbered ConfigMaps.
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

// Long: thousands of objects, and the Lease of a killed leader has to expire.
var _ = Describe("Two managers with leader election", Label("long"), func() {
	It("end a namespace although the leader is killed half-way", func(ctx context.Context) {
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
			create(ctx, hold(wrappers.MakeConfigMap(namespace.Name, fmt.Sprintf("held-%d", number))))
		}
		DeferCleanup(func(ctx context.Context) { removeAll(ctx, configMaps, namespace.Name) })

		By("killing the leader in the middle of it")
		deleteObject(ctx, namespace)
		Eventually(remainingOf).WithContext(ctx).WithArguments(namespace.Name).
			WithPolling(5 * time.Millisecond).Should(BeNumerically("<", many))
		leader.Kill()
		Eventually(leader).WithContext(ctx).Should(gexec.Exit())
		killed := time.Now()
		// The API server still answers what the leader had requested.
		left := remainingOf(Default, ctx, namespace.Name)
		Eventually(func(g Gomega) {
			before := left
			left = remainingOf(g, ctx, namespace.Name)
			g.Expect(left).To(Equal(before))
		}).WithContext(ctx).WithPolling(200 * time.Millisecond).Should(Succeed())
		Expect(left).To(And(BeNumerically(">", many/10), BeNumerically("<", many)), "it was not in the middle")

		By("leaving everything as it is while there is no leader")
		Consistently(remainingOf).WithContext(ctx).WithArguments(namespace.Name).Should(Equal(left))
		eventuallyNamespace(ctx, namespace.Name, BeTerminating(), HaveTokens(kubernetesToken))
		Expect(standby.Err.Contents()).NotTo(MatchRegexp(acquired))

		By("letting the other one take over")
		Eventually(standby.Err).WithContext(ctx).Should(gbytes.Say(acquired))
		AddReportEntry("time without a leader", time.Since(killed).Round(time.Second).String())
		eventuallyNamespace(ctx, namespace.Name, BeTerminating(), HaveTokens(kubernetesToken),
			HaveRemaining(fmt.Sprintf("configmaps. has %d resource instances", some)),
			HaveFinalizersRemaining(fmt.Sprintf("%s in %d resource instances", testFinalizer, some)))
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(Equal(some))
		for number := range some {
			release(ctx, wrappers.MakeConfigMap(namespace.Name, fmt.Sprintf("held-%d", number)))
		}
		expectGone(ctx, namespace)
		AddReportEntry("time from the kill to the end", time.Since(killed).Round(time.Second).String())
		Expect(standby).NotTo(gexec.Exit())
	}, SpecTimeout(3*time.Minute))
})
