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
	expectServed := func(
		ctx context.Context, configuration *v1alpha1.NamespaceInitializerConfiguration,
		status metav1.ConditionStatus, reason string, messages ...string,
	) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
			served := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionHealthy)
			g.Expect(served).NotTo(BeNil())
			g.Expect(served.Reason).To(Equal(reason), served.Message)
			g.Expect(served.Status).To(Equal(status))
			for _, message := range messages {
				g.Expect(served.Message).To(ContainSubstring(message))
			}
		}).WithContext(ctx).Should(Succeed())
	}
	// touch has all configurations looked at at once.
	touch := func(ctx context.Context) {
		GinkgoHelper()
		Expect(admin.Create(ctx, wrappers.MakeConfiguration("touch").Obj())).To(Succeed())
		Expect(admin.Delete(ctx, wrappers.MakeConfiguration("touch").Obj())).To(Succeed())
	}

	It("says that nobody may serve it, and when somebody may", func(ctx context.Context) {
		runManager(ctx)
		configuration := register(ctx, initializer(slow))
		expectServed(ctx, configuration, metav1.ConditionFalse, v1alpha1.ReasonInitializerUnauthorized, slow, "ClusterRoleBinding")
		output, err := plane.Kubectl(ctx, plane.Admin, "get", "nsinit", configuration.Name)
		Expect(err).NotTo(HaveOccurred())
		Expect(output).To(MatchRegexp(`(?m)^NAME +ACTIVE +REASON +SERVED`))

		bindWorker(ctx)
		touch(ctx)
		expectServed(ctx, configuration, metav1.ConditionTrue, v1alpha1.ReasonHealthy)
	}, SpecTimeout(time.Minute))

	It("says that an initializer does not act, and when it has acted", func(ctx context.Context) {
		bindWorker(ctx)
		passive := clocktesting.NewFakePassiveClock(time.Now())
		runManager(ctx, func(options *manager.Options) { options.Clock = passive })
		configuration := register(ctx, initializer(slow))
		expectServed(ctx, configuration, metav1.ConditionTrue, v1alpha1.ReasonHealthy)
		namespace := create(ctx, wrappers.MakeNamespace("neglected"))
		Eventually(get).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveCondition(v1alpha1.ConditionInitializing, "True", v1alpha1.ReasonPending))
		passive.SetTime(time.Now().Add(2 * time.Minute))
		touch(ctx)
		expectServed(ctx, configuration, metav1.ConditionFalse, v1alpha1.ReasonInitializerUnresponsive, slow, `namespace "neglected"`)
		Expect(finish(ctx, namespace.Name, slow)).To(Succeed())
		Eventually(func(g Gomega) map[string]string { return get(g, ctx, namespace.Name).Labels }).WithContext(ctx).
			ShouldNot(HaveKey(v1alpha1.LabelInitializing))
		// The cache may be a moment behind.
		Eventually(func(g Gomega) {
			touch(ctx)
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
			g.Expect(meta.IsStatusConditionTrue(configuration.Status.Conditions, v1alpha1.ConditionHealthy)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(time.Minute))
})
