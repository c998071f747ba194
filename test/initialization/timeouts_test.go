// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	first = "first.test.example.com"
	slow  = "slow.test.example.com"
	last  = "last.test.example.com"
)

var _ = Describe("A timeout", func() {
	It("sets the failure result of the namespace, and deletes the namespace", func(ctx context.Context) {
		configuration := register(ctx, limited(slow, 1, ""))
		request := wrappers.MakeNamespace(framework.Unique("fail"))
		seen := framework.WatchNamespace(ctx, cluster.Admin.Config, request.Obj())
		namespace := framework.CreateAs(ctx, cluster.Ordinary, request.Obj())
		final, _ := seen.WaitForRemoval(ctx)

		var result metav1.Status
		Expect(json.Unmarshal([]byte(final.Annotations[v1alpha1.AnnotationInitializationResult]), &result)).To(Succeed())
		Expect(result.Status).To(Equal(metav1.StatusFailure))
		Expect(result.Reason).To(Equal(metav1.StatusReasonTimeout))
		Expect(result.Code).To(BeEquivalentTo(504))
		Expect(result.Message).To(And(ContainSubstring(slow), ContainSubstring("1s"),
			ContainSubstring("NamespaceInitializerConfiguration %q", configuration.Name)))
		expectEvent(ctx, namespace, "InitializationFailed", result.Message+"; the namespace will be deleted")
		Expect(final.DeletionTimestamp.Sub(final.CreationTimestamp.Time)).To(BeNumerically(">=", time.Second))
	})

	It("skips the initializer, so that the following initializers can complete", func(ctx context.Context) {
		configuration := register(ctx, initializer(first), limited(slow, 1, v1alpha1.FailurePolicyIgnore), initializer(last))
		namespace := framework.CreateAs(ctx, cluster.Ordinary, wrappers.MakeNamespace(framework.Unique("skip")).Obj())
		cluster.Finish(ctx, namespace.Name)
		Eventually(func(g Gomega) string { return framework.PendingOf(cluster.GetNamespace(g, ctx, namespace.Name)) }).WithContext(ctx).
			Should(Equal(last))
		now := cluster.GetNamespace(Default, ctx, namespace.Name)
		Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut))
		Expect(now.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
		expectEvent(ctx, namespace, "InitializerTimedOut", slow, "1s",
			fmt.Sprintf("NamespaceInitializerConfiguration %q", configuration.Name))

		cluster.Finish(ctx, namespace.Name)
		now = expectWritable(ctx, namespace.Name)
		Expect(now).To(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonInitialized,
			slow+", which was skipped"))
		Expect(now).To(HaveCondition(ownCondition(first), corev1.ConditionTrue, v1alpha1.ReasonInitialized))
		Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut))
		Expect(now.Annotations).NotTo(HaveKey(v1alpha1.AnnotationTurnStartedAt))
	})

	It("completes the initialization in the same write as the condition if the initializer is last", func(ctx context.Context) {
		register(ctx, limited(slow, 1, v1alpha1.FailurePolicyIgnore))
		request := wrappers.MakeNamespace(framework.Unique("alone"))
		seen := framework.WatchNamespace(ctx, cluster.Admin.Config, request.Obj())
		framework.CreateAs(ctx, cluster.Ordinary, request.Obj())
		expectWritable(ctx, request.Name)
		Eventually(seen.States).WithContext(ctx).Should(ContainElement(HaveField("Labels", Not(HaveKey(v1alpha1.LabelInitializing)))))
		for _, namespace := range seen.States() {
			if _, ok := namespace.Labels[v1alpha1.LabelInitializing]; !ok {
				Expect(namespace).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut))
			}
		}
	})

	It("is enforced after a restart of the operator, and starts at the restart if no start is recorded", func(ctx context.Context) {
		const seconds = 15 // A busy machine can take seconds to stop the manager, which must be within the timeout.
		register(ctx, initializer(first), limited(slow, seconds, v1alpha1.FailurePolicyIgnore))
		seen := framework.CreateAs(ctx, cluster.Ordinary, wrappers.MakeNamespace(framework.Unique("seen")).Obj())
		unseen := framework.CreateAs(ctx, cluster.Ordinary, wrappers.MakeNamespace(framework.Unique("unseen")).Obj())
		cluster.Finish(ctx, seen.Name)
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(seen.Name).
			Should(beInTurn(slow))
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(unseen.Name).
			Should(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionTrue, v1alpha1.ReasonInitializing))
		cluster.PauseManager()
		cluster.Finish(ctx, unseen.Name)
		Consistently(func(g Gomega) {
			g.Expect(framework.PendingOf(cluster.GetNamespace(g, ctx, seen.Name))).To(Equal(slow))
			g.Expect(framework.PendingOf(cluster.GetNamespace(g, ctx, unseen.Name))).To(Equal(slow))
		}, (seconds+2)*time.Second).WithContext(ctx).Should(Succeed())

		restarted := time.Now()
		cluster.StartManager(ctx)
		expectWritable(ctx, seen.Name)
		now := expectWritable(ctx, unseen.Name)
		Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut))
		skipped := nsobject.FindCondition(now, ownCondition(slow)).LastTransitionTime
		// Timestamps have a resolution of one second, so the timeout can be up to one second early.
		Expect(skipped.Time).To(BeTemporally(">=", restarted.Truncate(time.Second).Add(seconds*time.Second)))
	})

	// It takes the whole timeout: the manager stops in the middle of it.
	It("does not start again after a restart of the operator, or if messages of conditions change", func(ctx context.Context) {
		const timeout = 20 * time.Second
		register(ctx, limited(slow, int32(timeout.Seconds()), ""))
		request := wrappers.MakeNamespace(framework.Unique("turn"))
		seen := framework.WatchNamespace(ctx, cluster.Admin.Config, request.Obj())
		namespace := framework.CreateAs(ctx, cluster.Ordinary, request.Obj())
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).Should(And(beInTurn(slow),
			HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionTrue, v1alpha1.ReasonInitializing)))
		recorded := cluster.GetNamespace(Default, ctx, namespace.Name).Annotations[v1alpha1.AnnotationTurnStartedAt]
		cluster.PauseManager()
		By("rewording all conditions, as another version of the operator does")
		now := cluster.GetNamespace(Default, ctx, namespace.Name)
		for i := range now.Status.Conditions {
			now.Status.Conditions[i].Message = "other words"
			now.Status.Conditions[i].LastTransitionTime = metav1.Now()
		}
		Expect(cluster.Admin.Status().Update(ctx, now)).To(Succeed())
		Eventually(func() time.Duration { return time.Since(namespace.CreationTimestamp.Time) }).WithContext(ctx).
			Should(BeNumerically(">", timeout/2))
		restarted := time.Now()
		cluster.StartManager(ctx)
		final, _ := seen.WaitForRemoval(ctx)
		Expect(final.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationTurnStartedAt, recorded))
		Expect(final.DeletionTimestamp.Time).To(And(
			BeTemporally(">=", namespace.CreationTimestamp.Add(timeout)), BeTemporally("<", restarted.Add(timeout))))
	})

	It("is enforced if it is added later, and only after the new duration if it is increased", func(ctx context.Context) {
		configuration := register(ctx, initializer(slow))
		namespace := framework.CreateAs(ctx, cluster.Ordinary, wrappers.MakeNamespace(framework.Unique("later")).Obj())
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionTrue, v1alpha1.ReasonInitializing))
		change := func(seconds *int32) {
			Eventually(func() error {
				if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); err != nil {
					return err
				}
				configuration.Initializers[0].TimeoutSeconds = seconds
				configuration.Initializers[0].FailurePolicy = v1alpha1.FailurePolicyIgnore
				return cluster.Admin.Update(ctx, configuration)
			}).WithContext(ctx).Should(Succeed())
		}
		const seconds = 10 // A busy machine can take seconds to increase the timeout, which must be within it.
		change(ptr.To[int32](seconds))
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(beInTurn(slow))
		change(ptr.To[int32](3600))
		Consistently(func(g Gomega) {
			g.Expect(framework.PendingOf(cluster.GetNamespace(g, ctx, namespace.Name))).To(Equal(slow))
		}, (seconds+2)*time.Second).WithContext(ctx).Should(Succeed())
		change(ptr.To[int32](1))
		expectWritable(ctx, namespace.Name)
	})

	It("that expires while the initializer completes has one consistent result, even with two managers", func(ctx context.Context) {
		other, err := cluster.ControlPlane.StartManager(ctx)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(other.Stop)
		const count = 50
		register(ctx, limited(slow, 1, v1alpha1.FailurePolicyIgnore))
		var wait sync.WaitGroup
		won := make([]bool, count)
		prefix := framework.Unique("race")
		name := func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
		for i := range count {
			framework.CreateAs(ctx, cluster.Ordinary, wrappers.MakeNamespace(name(i)).Obj())
			wait.Go(func() {
				defer GinkgoRecover()
				// Finish as close to the timeout as possible.
				timeout := &initialization.Timeout{Initializer: slow, Duration: time.Second}
				var remaining time.Duration
				Eventually(func(g Gomega) {
					now := cluster.GetNamespace(g, ctx, name(i))
					if framework.PendingOf(now) == "" {
						return // On a busy machine, the timeout can expire before the first request.
					}
					g.Expect(now).To(beInTurn(slow))
					remaining = timeout.Remaining(now, time.Now())
				}).WithContext(ctx).Should(Succeed())
				timer := time.NewTimer(remaining + time.Duration(i%10)*5*time.Millisecond)
				defer timer.Stop()
				<-timer.C
				now := cluster.GetNamespace(Default, ctx, name(i))
				won[i] = initializers.Finish(ctx, cluster.Initializer.Clientset(), now, slow) == nil
			})
		}
		wait.Wait()
		finished := 0
		for i := range count {
			now := expectWritable(ctx, name(i))
			if won[i] {
				finished++
				Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionTrue, v1alpha1.ReasonInitialized), name(i))
			} else {
				Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut), name(i))
			}
		}
		AddReportEntry("finished by the initializer", fmt.Sprintf("%d of %d", finished, count))
	})

	// test/chaos runs the binary with other clocks.
	// The specs take longer than the timeout, and the timeout longer than the change of the manager.
	DescribeTable("is not enforced early after a change to a manager with another clock",
		func(ctx context.Context, first, second time.Duration) {
			const timeout = 10 * time.Second
			cluster.PauseManager()
			startManagerWithClock(ctx, offsetClock(first))
			register(ctx, limited(slow, int32(timeout.Seconds()), v1alpha1.FailurePolicyIgnore))
			namespace := framework.CreateAs(ctx, cluster.Ordinary, wrappers.MakeNamespace(framework.Unique("clocks")).Obj())
			Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
				Should(beInTurn(slow))
			cluster.StopManager()
			startManagerWithClock(ctx, offsetClock(second))
			Eventually(func(g Gomega) string { return framework.PendingOf(cluster.GetNamespace(g, ctx, namespace.Name)) }).WithContext(ctx).Should(BeEmpty())
			// The test and the API server use the same clock. The clock of each manager differs by at most a second.
			Expect(time.Since(namespace.CreationTimestamp.Time)).To(BeNumerically(">=", timeout-2*time.Second))
		},
		Entry("that is two hours ahead of the first one", -time.Hour, time.Hour),
		Entry("that is two hours behind the first one", time.Hour, -time.Hour),
	)
})

// offsetClock is a clock that is ahead of the API server's clock, or behind it.
type offsetClock time.Duration

func (c offsetClock) Now() time.Time { return time.Now().Add(time.Duration(c)) }

func (c offsetClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// startManagerWithClock starts the manager with another local clock.
func startManagerWithClock(ctx context.Context, local offsetClock) {
	GinkgoHelper()
	config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	serverClock := servertime.NewClock(local)
	config.Wrap(serverClock.Wrap)
	cluster.Manager, err = cluster.StartManagerAs(ctx, config, func(options *manager.Options) {
		options.Clock, options.ServerClock = local, serverClock
	})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("Deregistration", func() {
	It("removes initializers at any position of the pending list in one write, and completes the initialization if no other initializer is pending", func(ctx context.Context) {
		kept := register(ctx, initializer("middle.test.example.com"))
		removed := register(ctx, initializer(first), initializer(last))
		// Sorted by the names of the configurations.
		some := framework.CreateAs(ctx, cluster.Ordinary, wrappers.MakeNamespace(framework.Unique("some")).Obj())
		Expect(framework.PendingOf(some)).To(Equal("middle.test.example.com," + first + "," + last))
		all := framework.CreateAs(ctx, cluster.Ordinary, wrappers.MakeNamespace(framework.Unique("all")).Obj())
		cluster.Finish(ctx, all.Name)
		seen := framework.WatchNamespace(ctx, cluster.Admin.Config, some)
		deleted := time.Now()
		cluster.Admin.Deletes(ctx, removed)

		now := expectWritable(ctx, all.Name)
		Expect(time.Since(deleted)).To(BeNumerically(">=", initialization.DeregistrationDelay))
		AddReportEntry("time until the namespace was initialized", time.Since(deleted))
		Expect(now).To(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonInitialized,
			first+" and "+last+", which were skipped"))
		for _, name := range []string{first, last} {
			Expect(now).To(HaveCondition(ownCondition(name), corev1.ConditionFalse, v1alpha1.ReasonDeregistered))
		}
		expectEvent(ctx, all, "InitializerDeregistered", first+" and "+last)
		Eventually(seen.States).WithContext(ctx).Should(ContainElement(WithTransform(framework.PendingOf, Equal("middle.test.example.com"))))
		for _, namespace := range seen.States() {
			Expect(framework.PendingOf(namespace)).To(Or(Equal("middle.test.example.com"),
				Equal("middle.test.example.com,"+first+","+last)))
		}
		cluster.Admin.Deletes(ctx, kept)
		expectWritable(ctx, some.Name)
	})

	It("completes the initialization of a namespace without its initializer when the configuration is deleted, but not while no manager runs", func(ctx context.Context) {
		configuration := register(ctx, initializer(slow))
		namespace := framework.CreateAs(ctx, cluster.Ordinary, wrappers.MakeNamespace(framework.Unique("unprepared")).Obj())
		cluster.PauseManager()
		cluster.Admin.Deletes(ctx, configuration)
		Consistently(func(g Gomega) string { return framework.PendingOf(cluster.GetNamespace(g, ctx, namespace.Name)) },
			initialization.DeregistrationDelay+time.Second).WithContext(ctx).Should(Equal(slow))
		started := time.Now()
		cluster.StartManager(ctx)
		now := expectWritable(ctx, namespace.Name)
		AddReportEntry("time until the namespace was initialized", time.Since(started))
		Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonDeregistered))
	})

	It("does not occur while the configuration exists, or if it is recreated within the delay", func(ctx context.Context) {
		configuration := register(ctx, initializer(slow))
		namespace := framework.CreateAs(ctx, cluster.Ordinary, wrappers.MakeNamespace(framework.Unique("again")).Obj())
		isWaiting := func(g Gomega) {
			g.Expect(framework.PendingOf(cluster.GetNamespace(g, ctx, namespace.Name))).To(Equal(slow))
		}
		// Six interruptions of 1 s are not treated as one interruption of 5 s.
		for range 6 {
			cluster.Admin.Deletes(ctx, configuration)
			Consistently(isWaiting, time.Second).WithContext(ctx).Should(Succeed())
			configuration = wrappers.MakeConfiguration(configuration.Name).Initializers(slow).Obj()
			cluster.Admin.Creates(ctx, configuration)
		}
		finalizers := func(value string) {
			Expect(client.IgnoreNotFound(cluster.Admin.Patch(ctx, configuration, framework.MergePatch(
				`{"metadata":{"finalizers":`+value+`}}`)))).To(Succeed())
		}
		finalizers(`["test.example.com/hold"]`)
		Expect(cluster.Admin.Delete(ctx, configuration)).To(Succeed()) // The finalizer prevents the deletion.
		Consistently(isWaiting, initialization.DeregistrationDelay+time.Second).WithContext(ctx).Should(Succeed())
		finalizers("null")
		now := expectWritable(ctx, namespace.Name)
		Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonDeregistered))
	})
})
