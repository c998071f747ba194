// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// startControllerManager runs kube-controller-manager until the spec ends.
func startControllerManager(ctx context.Context, controllers string) *controlplane.ControllerManager {
	GinkgoHelper()
	controllerManager, err := cluster.StartControllerManager(ctx, "--controllers="+controllers)
	if errors.Is(err, controlplane.ErrNoControllerManager) {
		Skip(err.Error())
	}
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(controllerManager.Stop()).To(Succeed()) })
	Eventually(controllerManager.Log).WithContext(ctx).Should(ContainSubstring("Starting namespace controller"))
	return controllerManager
}

// These specs take a long time because they observe several resync periods of both controllers.
var _ = Describe("A stuck namespace in a cluster with kube-controller-manager", Label("long"), func() {
	DescribeTable("is not updated repeatedly while it is blocked",
		func(ctx context.Context, make func(namespace string) client.Object, most int) {
			cluster.PauseManager()
			namespace := createNamespace(ctx, "peer-stuck")
			held := withFinalizer(make(namespace.Name))
			admin.Creates(ctx, append(makeConfigMaps(namespace.Name, "a", "b"), held)...)
			DeferCleanup(func(ctx context.Context) { framework.RemoveFinalizers(ctx, admin, held) })
			startControllerManager(ctx, "namespace-controller")
			startManager(ctx, managerConfig(ctx))
			admin.Deletes(ctx, namespace)

			By("waiting until both controllers have updated the conditions")
			observed := framework.WatchNamespace(ctx, cluster.Admin.Config, namespace)
			eventuallyNamespace(ctx, namespace.Name, HaveRemaining(), HaveFinalizersRemaining())
			// kube-controller-manager starts after 5 s and retries every 8 s. The manager retries
			// every 15 s.
			Consistently(func(g Gomega) {
				g.Expect(cluster.GetNamespace(g, ctx, namespace.Name)).To(And(BeTerminating(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes)))
			}).WithContext(ctx).WithTimeout(15 * time.Second).Should(Succeed())

			By("counting the updates")
			before := len(observed.States())
			Consistently(func(g Gomega) {
				g.Expect(cluster.GetNamespace(g, ctx, namespace.Name)).To(And(BeTerminating(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes)))
			}).WithContext(ctx).WithTimeout(32 * time.Second).Should(Succeed())
			states := observed.States()
			for _, state := range states {
				GinkgoWriter.Println("conditions at", state.ResourceVersion, state.Status.Conditions)
			}
			AddReportEntry("updates in total, updates in the last 32 s", fmt.Sprintf("%d, %d", len(states), len(states)-before))
			Expect(len(states) - before).To(BeNumerically("<=", most))

			framework.RemoveFinalizers(ctx, admin, held)
			framework.ExpectDeleted(ctx, admin, namespace)
		},
		Entry("by a ConfigMap", func(namespace string) client.Object {
			return wrappers.MakeConfigMap(namespace, "held")
		}, 0),
		Entry("by a Pod", func(namespace string) client.Object {
			// While kube-controller-manager waits for Pods, it reports that no content remains
			// (kubernetes/kubernetes PR 138209), but the manager reports the remaining content.
			// Each controller updates the conditions on its own schedule, not in response to the
			// other controller.
			return wrappers.MakePod(namespace, "held")
		}, 9),
	)
})
