// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package timeouts

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// With config/compat, the write that empties the list does not remove the label: the operator removes
// it afterwards.
var _ = Describe("Before Kubernetes 1.36", func() {
	It("users can write to a namespace whose initializers have timed out or are deregistered", func(ctx context.Context) {
		compat, err := controlplane.Start(ctx)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(compat.Stop()).To(Succeed()) })
		Expect(compat.InstallFrom(ctx, "compat")).To(Succeed())
		Expect(compat.AggregateClusterRoles(ctx)).To(Succeed())
		running, err := compat.StartManager(ctx)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })

		root := framework.NewClient(compat.Admin)
		configuration := wrappers.MakeConfiguration("c").Obj()
		configuration.Initializers = []v1alpha1.NamespaceInitializer{
			limited(slow, 1, v1alpha1.InitializerIgnore), initializer(last),
		}
		Expect(root.Create(ctx, configuration)).To(Succeed())
		// Create namespaces until the operator injects the pending list.
		var namespace *corev1.Namespace
		have := func(g Gomega) *corev1.Namespace {
			now := &corev1.Namespace{}
			g.Expect(root.Get(ctx, client.ObjectKeyFromObject(namespace), now)).To(Succeed())
			return now
		}
		Eventually(func(g Gomega) {
			namespace = wrappers.MakeNamespace(unique("compat")).Obj()
			g.Expect(root.Create(ctx, namespace)).To(Succeed())
			g.Eventually(have).WithTimeout(2 * time.Second).
				Should(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionTrue, v1alpha1.ReasonPending))
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
		Eventually(have).WithContext(ctx).
			Should(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut))

		Expect(root.Delete(ctx, configuration)).To(Succeed())
		Eventually(func(g Gomega) {
			now := have(g)
			g.Expect(now).To(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonCompleted,
				slow+" and "+last+", which were skipped"))
			g.Expect(now.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
		Expect(have(Default)).To(HaveCondition(ownCondition(last), corev1.ConditionFalse, v1alpha1.ReasonDeregistered))
	}, SpecTimeout(5*time.Minute))
})
