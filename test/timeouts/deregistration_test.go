// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package timeouts

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("Deregistration", func() {
	BeforeEach(bindWorker)

	It("removes initializers at any position of the pending list in one write, and completes the initialization if no other initializer is pending", func(ctx context.Context) {
		runManager(ctx)
		kept := register(ctx, initializer("middle.test.example.com"))
		removed := register(ctx, initializer(first), initializer(last))
		// Sorted by the names of the configurations.
		some := create(ctx, wrappers.MakeNamespace("some"))
		Expect(pendingOf(some)).To(Equal("middle.test.example.com," + first + "," + last))
		all := create(ctx, wrappers.MakeNamespace("all"))
		Eventually(finish).WithContext(ctx).WithArguments(all.Name, "middle.test.example.com").Should(Succeed())
		seen := framework.WatchNamespace(ctx, plane.Admin, some)
		deleted := time.Now()
		Expect(admin.Delete(ctx, removed)).To(Succeed())

		now := expectWritable(ctx, all.Name)
		Expect(time.Since(deleted)).To(BeNumerically(">=", initialization.DeregistrationDelay))
		AddReportEntry("time until the namespace was writable", time.Since(deleted))
		Expect(now).To(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonCompleted,
			first+" and "+last+", which were skipped"))
		for _, name := range []string{first, last} {
			Expect(now).To(HaveCondition(ownCondition(name), corev1.ConditionFalse, v1alpha1.ReasonDeregistered))
		}
		expectEvent(ctx, all, "InitializerDeregistered", first+" and "+last)
		Eventually(seen.States).WithContext(ctx).Should(ContainElement(WithTransform(pendingOf, Equal("middle.test.example.com"))))
		for _, namespace := range seen.States() {
			Expect(pendingOf(namespace)).To(Or(Equal("middle.test.example.com"),
				Equal("middle.test.example.com,"+first+","+last)))
		}
		Expect(admin.Delete(ctx, kept)).To(Succeed())
		expectWritable(ctx, some.Name)
	}, SpecTimeout(5*time.Minute))

	It("of one initializer in a configuration does not affect the other initializers", func(ctx context.Context) {
		runManager(ctx)
		configuration := register(ctx, initializer(first), initializer(slow), initializer(last))
		namespace := create(ctx, wrappers.MakeNamespace("shrunk"))
		Eventually(func() error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); err != nil {
				return err
			}
			configuration.Initializers = []v1alpha1.NamespaceInitializer{initializer(slow)}
			return admin.Update(ctx, configuration)
		}).WithContext(ctx).Should(Succeed())
		Eventually(func(g Gomega) string { return pendingOf(get(g, ctx, namespace.Name)) }).WithContext(ctx).
			Should(Equal(slow))
		Consistently(func(g Gomega) { g.Expect(pendingOf(get(g, ctx, namespace.Name))).To(Equal(slow)) }).
			WithContext(ctx).Should(Succeed())
		Expect(finish(ctx, namespace.Name, slow)).To(Succeed())
		now := expectWritable(ctx, namespace.Name)
		Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionTrue, v1alpha1.ReasonCompleted))
		Expect(now).To(HaveCondition(ownCondition(first), corev1.ConditionFalse, v1alpha1.ReasonDeregistered))
	}, SpecTimeout(5*time.Minute))

	It("opens a waiting namespace without its initializer when the configuration is deleted, but not while no manager runs", func(ctx context.Context) {
		stop := runManager(ctx)
		configuration := register(ctx, initializer(slow))
		namespace := create(ctx, wrappers.MakeNamespace("unprepared"))
		stop()
		Expect(admin.Delete(ctx, configuration)).To(Succeed())
		Consistently(func(g Gomega) string { return pendingOf(get(g, ctx, namespace.Name)) },
			initialization.DeregistrationDelay+time.Second).WithContext(ctx).Should(Equal(slow))
		runManager(ctx)
		started := time.Now()
		now := expectWritable(ctx, namespace.Name)
		AddReportEntry("time until the namespace was writable", time.Since(started))
		Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonDeregistered))
	}, SpecTimeout(5*time.Minute))

	It("does not occur while the configuration exists, or if it is recreated within the delay", func(ctx context.Context) {
		runManager(ctx)
		configuration := register(ctx, initializer(slow))
		namespace := create(ctx, wrappers.MakeNamespace("again"))
		isWaiting := func(g Gomega) { g.Expect(pendingOf(get(g, ctx, namespace.Name))).To(Equal(slow)) }
		// Six interruptions of 1 s are not treated as one interruption of 5 s.
		for range 6 {
			Expect(admin.Delete(ctx, configuration)).To(Succeed())
			Consistently(isWaiting, time.Second).WithContext(ctx).Should(Succeed())
			configuration = wrappers.MakeConfiguration(configuration.Name).Initializers(slow).Obj()
			Expect(admin.Create(ctx, configuration)).To(Succeed())
		}
		finalizers := func(value string) {
			Expect(client.IgnoreNotFound(admin.Patch(ctx, configuration, client.RawPatch(types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":`+value+`}}`))))).To(Succeed())
		}
		finalizers(`["test.example.com/hold"]`)
		Consistently(isWaiting, initialization.DeregistrationDelay+time.Second).WithContext(ctx).Should(Succeed())
		Expect(admin.Delete(ctx, configuration)).To(Succeed()) // The finalizer prevents the deletion.
		Consistently(isWaiting, initialization.DeregistrationDelay+time.Second).WithContext(ctx).Should(Succeed())
		finalizers("null")
		now := expectWritable(ctx, namespace.Name)
		Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonDeregistered))
	}, SpecTimeout(5*time.Minute))
})
