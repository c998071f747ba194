// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package timeouts

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("A configuration", func() {
	expectHealthy := func(
		ctx context.Context, configuration *v1alpha1.NamespaceInitializerConfiguration,
		status metav1.ConditionStatus, reason string, messages ...string,
	) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
			condition := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionHealthy)
			g.Expect(condition).NotTo(BeNil())
			g.Expect(condition.Reason).To(Equal(reason), condition.Message)
			g.Expect(condition.Status).To(Equal(status))
			for _, message := range messages {
				g.Expect(condition.Message).To(ContainSubstring(message))
			}
		}).WithContext(ctx).Should(Succeed())
	}
	// touch triggers a reconciliation of all configurations.
	touch := func(ctx context.Context) {
		GinkgoHelper()
		Expect(admin.Create(ctx, wrappers.MakeConfiguration("touch").Obj())).To(Succeed())
		Expect(admin.Delete(ctx, wrappers.MakeConfiguration("touch").Obj())).To(Succeed())
	}

	It("reports whether its initializer is authorized", func(ctx context.Context) {
		runManager(ctx)
		configuration := register(ctx, initializer(slow))
		expectHealthy(ctx, configuration, metav1.ConditionFalse, v1alpha1.ReasonInitializerUnauthorized, slow, "ClusterRoleBinding")
		output, err := plane.Kubectl(ctx, plane.Admin, "get", "nsinit", configuration.Name)
		Expect(err).NotTo(HaveOccurred())
		Expect(output).To(MatchRegexp(`(?m)^NAME +ACTIVE +REASON +HEALTHY`))

		bindWorker(ctx)
		touch(ctx)
		expectHealthy(ctx, configuration, metav1.ConditionTrue, v1alpha1.ReasonHealthy)
	}, SpecTimeout(5*time.Minute))

	It("reports whether its initializer is unresponsive", func(ctx context.Context) {
		bindWorker(ctx)
		passive := clocktesting.NewFakePassiveClock(time.Now())
		runManager(ctx, func(options *manager.Options) { options.Clock = passive })
		configuration := register(ctx, initializer(slow))
		expectHealthy(ctx, configuration, metav1.ConditionTrue, v1alpha1.ReasonHealthy)
		namespace := create(ctx, wrappers.MakeNamespace("waiting"))
		Eventually(get).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveCondition(v1alpha1.ConditionInitializing, "True", v1alpha1.ReasonPending))
		passive.SetTime(time.Now().Add(2 * time.Minute))
		touch(ctx)
		expectHealthy(ctx, configuration, metav1.ConditionFalse, v1alpha1.ReasonInitializerUnresponsive, slow, `namespace "waiting"`)
		Expect(finish(ctx, namespace.Name, slow)).To(Succeed())
		Eventually(func(g Gomega) map[string]string { return get(g, ctx, namespace.Name).Labels }).WithContext(ctx).
			ShouldNot(HaveKey(v1alpha1.LabelInitializing))
		// The manager's cache can be stale, so repeat the reconciliation.
		Eventually(func(g Gomega) {
			touch(ctx)
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
			g.Expect(meta.IsStatusConditionTrue(configuration.Status.Conditions, v1alpha1.ConditionHealthy)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))
})
