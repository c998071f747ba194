// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package timeouts

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	first = "first.test.example.com"
	slow  = "slow.test.example.com"
	last  = "last.test.example.com"
)

var _ = Describe("A timeout", func() {
	BeforeEach(bindWorker)

	It("sets the failure result of the namespace, and deletes the namespace", func(ctx context.Context) {
		runManager(ctx)
		configuration := register(ctx, limited(slow, 1, ""))
		seen := framework.WatchNamespace(ctx, plane.Admin, wrappers.MakeNamespace("fail").Obj())
		namespace := create(ctx, wrappers.MakeNamespace("fail"))
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
	}, SpecTimeout(5*time.Minute))

	It("fails a protected namespace without deleting it", func(ctx context.Context) {
		runManager(ctx)
		register(ctx, limited(slow, 1, v1alpha1.InitializerFail))
		namespace := create(ctx, wrappers.MakeNamespace("kept").Label(v1alpha1.LabelDeletionProtection, "enabled"))
		Eventually(get).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonFailed))
		Consistently(func(g Gomega) {
			now := get(g, ctx, namespace.Name)
			g.Expect(now.DeletionTimestamp).To(BeNil())
			g.Expect(pendingOf(now)).To(Equal(slow))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("skips the initializer, so that the following initializers can complete", func(ctx context.Context) {
		runManager(ctx)
		configuration := register(ctx, initializer(first), limited(slow, 1, v1alpha1.InitializerIgnore), initializer(last))
		namespace := create(ctx, wrappers.MakeNamespace("skip"))
		Eventually(finish).WithContext(ctx).WithArguments(namespace.Name, first).Should(Succeed())
		Eventually(func(g Gomega) string { return pendingOf(get(g, ctx, namespace.Name)) }).WithContext(ctx).
			Should(Equal(last))
		now := get(Default, ctx, namespace.Name)
		Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut))
		Expect(now.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
		expectEvent(ctx, namespace, "InitializerTimedOut", slow, "1s",
			fmt.Sprintf("NamespaceInitializerConfiguration %q", configuration.Name))

		Expect(finish(ctx, namespace.Name, last)).To(Succeed())
		now = expectWritable(ctx, namespace.Name)
		Expect(now).To(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonCompleted,
			slow+", which was skipped"))
		Expect(now).To(HaveCondition(ownCondition(first), corev1.ConditionTrue, v1alpha1.ReasonCompleted))
		Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut))
		Expect(now).To(HaveCondition(v1alpha1.ConditionInitializerTurn, corev1.ConditionFalse, v1alpha1.ReasonCompleted))
	}, SpecTimeout(5*time.Minute))

	It("completes the initialization in the same write as the condition if the initializer is last", func(ctx context.Context) {
		runManager(ctx)
		register(ctx, limited(slow, 1, v1alpha1.InitializerIgnore))
		seen := framework.WatchNamespace(ctx, plane.Admin, wrappers.MakeNamespace("alone").Obj())
		create(ctx, wrappers.MakeNamespace("alone"))
		expectWritable(ctx, "alone")
		Eventually(seen.States).WithContext(ctx).Should(ContainElement(HaveField("Labels", Not(HaveKey(v1alpha1.LabelInitializing)))))
		for _, namespace := range seen.States() {
			if _, ok := namespace.Labels[v1alpha1.LabelInitializing]; !ok {
				Expect(namespace).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut))
			}
		}
	}, SpecTimeout(5*time.Minute))

	It("is enforced after a restart of the operator, and starts at the restart if there is no condition", func(ctx context.Context) {
		stop := runManager(ctx)
		register(ctx, initializer(first), limited(slow, 1, v1alpha1.InitializerIgnore))
		seen := create(ctx, wrappers.MakeNamespace("seen"))
		unseen := create(ctx, wrappers.MakeNamespace("unseen"))
		Eventually(finish).WithContext(ctx).WithArguments(seen.Name, first).Should(Succeed())
		Eventually(get).WithContext(ctx).WithArguments(seen.Name).
			Should(HaveCondition(v1alpha1.ConditionInitializerTurn, corev1.ConditionTrue, v1alpha1.ReasonPending, slow))
		Eventually(get).WithContext(ctx).WithArguments(unseen.Name).
			Should(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionTrue, v1alpha1.ReasonPending))
		stop()
		Expect(finish(ctx, unseen.Name, first)).To(Succeed())
		Consistently(func(g Gomega) {
			g.Expect(pendingOf(get(g, ctx, seen.Name))).To(Equal(slow))
			g.Expect(pendingOf(get(g, ctx, unseen.Name))).To(Equal(slow))
		}, 3*time.Second).WithContext(ctx).Should(Succeed())

		restarted := time.Now()
		runManager(ctx)
		expectWritable(ctx, seen.Name)
		now := expectWritable(ctx, unseen.Name)
		Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut))
		skipped := nscondition.Find(now, ownCondition(slow)).LastTransitionTime
		// Condition timestamps have a resolution of one second, so the timeout can be up to one second
		// early.
		Expect(skipped.Time).To(BeTemporally(">=", restarted.Truncate(time.Second).Add(time.Second)))
	}, SpecTimeout(5*time.Minute))

	It("is enforced if it is added later, and only after the new duration if it is increased", func(ctx context.Context) {
		runManager(ctx)
		configuration := register(ctx, initializer(slow))
		namespace := create(ctx, wrappers.MakeNamespace("later"))
		Eventually(get).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionTrue, v1alpha1.ReasonPending))
		change := func(seconds *int32) {
			Eventually(func() error {
				if err := admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); err != nil {
					return err
				}
				configuration.Initializers[0].TimeoutSeconds = seconds
				configuration.Initializers[0].FailurePolicy = nil
				if seconds != nil {
					configuration.Initializers[0].FailurePolicy = ptr.To(v1alpha1.InitializerIgnore)
				}
				return admin.Update(ctx, configuration)
			}).WithContext(ctx).Should(Succeed())
		}
		change(ptr.To[int32](2))
		Eventually(get).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveCondition(v1alpha1.ConditionInitializerTurn, corev1.ConditionTrue, v1alpha1.ReasonPending))
		change(ptr.To[int32](3600))
		Consistently(func(g Gomega) { g.Expect(pendingOf(get(g, ctx, namespace.Name))).To(Equal(slow)) }, 4*time.Second).
			WithContext(ctx).Should(Succeed())
		change(ptr.To[int32](1))
		expectWritable(ctx, namespace.Name)
	}, SpecTimeout(5*time.Minute))

	It("does not change a terminating namespace", func(ctx context.Context) {
		runManager(ctx)
		register(ctx, limited(slow, 1, v1alpha1.InitializerIgnore))
		held := wrappers.MakeNamespace("terminating")
		held.Finalizers = []string{"test.example.com/hold"}
		namespace := create(ctx, held)
		Expect(admin.Delete(ctx, namespace)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(admin.Patch(ctx, namespace, client.RawPatch(types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		})
		Consistently(func(g Gomega) { g.Expect(pendingOf(get(g, ctx, namespace.Name))).To(Equal(slow)) }, 3*time.Second).
			WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("that expires while the initializer completes has one consistent result, even with two managers", func(ctx context.Context) {
		runManager(ctx)
		runManager(ctx)
		const count = 50
		register(ctx, limited(slow, 1, v1alpha1.InitializerIgnore))
		var wait sync.WaitGroup
		won := make([]bool, count)
		name := func(i int) string { return fmt.Sprintf("race-%d", i) }
		for i := range count {
			create(ctx, wrappers.MakeNamespace(name(i)))
			wait.Go(func() {
				defer GinkgoRecover()
				// Finish as close to the timeout as possible.
				timeout := &initialization.Timeout{Initializer: slow, Duration: time.Second}
				var remaining time.Duration
				Eventually(func(g Gomega) {
					now := get(g, ctx, name(i))
					g.Expect(now).To(HaveCondition(v1alpha1.ConditionInitializerTurn, corev1.ConditionTrue, v1alpha1.ReasonPending))
					remaining = initialization.TimeRemaining(now, timeout, time.Now())
				}).WithContext(ctx).Should(Succeed())
				timer := time.NewTimer(remaining + time.Duration(i%10)*5*time.Millisecond)
				defer timer.Stop()
				<-timer.C
				err := finish(ctx, name(i), slow)
				won[i] = err == nil
			})
		}
		wait.Wait()
		finished := 0
		for i := range count {
			now := expectWritable(ctx, name(i))
			if won[i] {
				finished++
				Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionTrue, v1alpha1.ReasonCompleted), name(i))
			} else {
				Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut), name(i))
			}
		}
		AddReportEntry("finished by the initializer", fmt.Sprintf("%d of %d", finished, count))
	}, SpecTimeout(5*time.Minute))
})

// expectEvent waits for an Event about the namespace that has the reason and whose note contains
// the values.
func expectEvent(ctx context.Context, namespace *corev1.Namespace, reason string, values ...string) {
	GinkgoHelper()
	matcher := Not(BeEmpty())
	for _, value := range values {
		matcher = And(matcher, ContainSubstring(value))
	}
	Eventually(func(g Gomega) {
		var list eventsv1.EventList
		g.Expect(admin.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
		var notes []string
		for _, event := range list.Items {
			if event.Regarding.UID == namespace.UID && event.Reason == reason {
				notes = append(notes, event.Note)
			}
		}
		g.Expect(notes).To(ContainElement(matcher), strings.Join(notes, "\n"))
	}).WithContext(ctx).Should(Succeed())
}
