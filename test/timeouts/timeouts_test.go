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
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	first = "first.test.example.com"
	slow  = "slow.test.example.com"
	last  = "last.test.example.com"
)

var _ = Describe("A time-out", func() {
	BeforeEach(bindWorker)

	It("fails the namespace, with a result that says why, and deletes it", func(ctx context.Context) {
		runManager(ctx)
		configuration := register(ctx, limited(slow, 1, ""))
		seen := watchOne(ctx, "fail")
		namespace := create(ctx, wrappers.MakeNamespace("fail"))
		expectDeleted(ctx, namespace)

		var result metav1.Status
		Expect(json.Unmarshal([]byte(seen.annotation(v1alpha1.AnnotationInitializationResult)), &result)).To(Succeed())
		Expect(result.Status).To(Equal(metav1.StatusFailure))
		Expect(result.Reason).To(Equal(metav1.StatusReasonTimeout))
		Expect(result.Code).To(BeEquivalentTo(504))
		Expect(result.Message).To(Equal(fmt.Sprintf("initializer %s: not done within 1s of its turn, the time-out in "+
			"NamespaceInitializerConfiguration %q", slow, configuration.Name)))
		expectEvent(ctx, namespace, "InitializationFailed", result.Message+"; the namespace is deleted")
		// Never early: by the clock of this machine, which is that of the manager, too.
		Expect(seen.deletedAfter()).To(BeNumerically(">=", time.Second))
	}, SpecTimeout(time.Minute))

	It("fails a protected namespace, and lets it be", func(ctx context.Context) {
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
	}, SpecTimeout(time.Minute))

	It("skips the initializer, and the next ones do their work", func(ctx context.Context) {
		runManager(ctx)
		configuration := register(ctx, initializer(first), limited(slow, 1, v1alpha1.InitializerIgnore), initializer(last))
		namespace := create(ctx, wrappers.MakeNamespace("skip"))
		Eventually(finish).WithContext(ctx).WithArguments(namespace.Name, first).Should(Succeed())
		Eventually(func(g Gomega) string { return pendingOf(get(g, ctx, namespace.Name)) }).WithContext(ctx).
			Should(Equal(last))
		now := get(Default, ctx, namespace.Name)
		Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut))
		Expect(now.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
		expectEvent(ctx, namespace, "InitializerTimedOut", fmt.Sprintf("%s was skipped: not done within 1s of its turn, "+
			"the time-out in NamespaceInitializerConfiguration %q", slow, configuration.Name))

		Expect(finish(ctx, namespace.Name, last)).To(Succeed())
		now = expectOpen(ctx, namespace.Name)
		Expect(now).To(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonCompleted,
			"but for "+slow+", which was skipped"))
		Expect(now).To(HaveCondition(ownCondition(first), corev1.ConditionTrue, v1alpha1.ReasonCompleted))
		Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut))
		Expect(now).To(HaveCondition(v1alpha1.ConditionInitializerTurn, corev1.ConditionFalse, v1alpha1.ReasonCompleted))
	}, SpecTimeout(time.Minute))

	It("opens the namespace where the initializer is the last one, in the write that says so", func(ctx context.Context) {
		runManager(ctx)
		register(ctx, limited(slow, 1, v1alpha1.InitializerIgnore))
		seen := watchOne(ctx, "alone")
		create(ctx, wrappers.MakeNamespace("alone"))
		expectOpen(ctx, "alone")
		for _, namespace := range seen.all() {
			if _, isShut := namespace.Labels[v1alpha1.LabelInitializing]; !isShut {
				Expect(namespace).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut))
			}
		}
	}, SpecTimeout(time.Minute))

	It("is acted on when the operator is back, and counts a turn that it has not seen from then", func(ctx context.Context) {
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

		back := time.Now()
		runManager(ctx)
		expectOpen(ctx, seen.Name)
		now := expectOpen(ctx, unseen.Name)
		Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut))
		skipped := nscondition.Find(now, ownCondition(slow)).LastTransitionTime
		// Whole seconds: the time may be up to one second too early.
		Expect(skipped.Time).To(BeTemporally(">=", back.Truncate(time.Second).Add(time.Second)))
	}, SpecTimeout(time.Minute))

	It("counts when it is added later, and not when it has been made longer", func(ctx context.Context) {
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
		expectOpen(ctx, namespace.Name)
	}, SpecTimeout(time.Minute))

	It("leaves a namespace alone that is being deleted", func(ctx context.Context) {
		runManager(ctx)
		register(ctx, limited(slow, 1, v1alpha1.InitializerIgnore))
		held := wrappers.MakeNamespace("dying")
		held.Finalizers = []string{"test.example.com/hold"}
		namespace := create(ctx, held)
		Expect(admin.Delete(ctx, namespace)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(admin.Patch(ctx, namespace, client.RawPatch(types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		})
		Consistently(func(g Gomega) { g.Expect(pendingOf(get(g, ctx, namespace.Name))).To(Equal(slow)) }, 3*time.Second).
			WithContext(ctx).Should(Succeed())
	}, SpecTimeout(time.Minute))

	It("and the initializer at the same moment: one of them takes the name off, with two managers at it", func(ctx context.Context) {
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
				// As close to the deadline as can be: it is between one and two seconds after the turn
				// was seen, in whole seconds.
				limit := &initialization.Limit{Initializer: slow, Timeout: time.Second}
				var left time.Duration
				Eventually(func(g Gomega) {
					now := get(g, ctx, name(i))
					g.Expect(now).To(HaveCondition(v1alpha1.ConditionInitializerTurn, corev1.ConditionTrue, v1alpha1.ReasonPending))
					left = initialization.TimeLeft(now, limit, time.Now())
				}).WithContext(ctx).Should(Succeed())
				timer := time.NewTimer(left + time.Duration(i%10)*5*time.Millisecond)
				defer timer.Stop()
				<-timer.C
				err := finish(ctx, name(i), slow)
				won[i] = err == nil
			})
		}
		wait.Wait()
		finished := 0
		for i := range count {
			now := expectOpen(ctx, name(i))
			if won[i] {
				finished++
				Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionTrue, v1alpha1.ReasonCompleted), name(i))
			} else {
				Expect(now).To(HaveCondition(ownCondition(slow), corev1.ConditionFalse, v1alpha1.ReasonTimedOut), name(i))
			}
		}
		AddReportEntry("finished by the initializer", fmt.Sprintf("%d of %d", finished, count))
	}, SpecTimeout(2*time.Minute))
})

// sightings are the states that a namespace has gone through, as a watch has seen them.
type sightings struct {
	lock       sync.Mutex
	namespaces []*corev1.Namespace
	begun      time.Time
	deleted    time.Time
}

// watchOne watches a namespace that is to be created.
func watchOne(ctx context.Context, name string) *sightings {
	GinkgoHelper()
	config := plane.Admin
	watcher, err := client.NewWithWatch(config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	events, err := watcher.Watch(ctx, &corev1.NamespaceList{}, client.MatchingFields{"metadata.name": name})
	Expect(err).NotTo(HaveOccurred())
	seen := &sightings{}
	go func() {
		for event := range events.ResultChan() {
			if namespace, isNamespace := event.Object.(*corev1.Namespace); isNamespace {
				seen.add(namespace, time.Now())
			}
		}
	}()
	DeferCleanup(events.Stop)
	return seen
}

func (s *sightings) add(namespace *corev1.Namespace, now time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if len(s.namespaces) == 0 {
		s.begun = now
	}
	if namespace.DeletionTimestamp != nil && s.deleted.IsZero() {
		s.deleted = now
	}
	s.namespaces = append(s.namespaces, namespace)
}

func (s *sightings) all() []*corev1.Namespace {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.namespaces
}

// annotation returns the last value that an annotation had.
func (s *sightings) annotation(key string) string {
	value := ""
	for _, namespace := range s.all() {
		if text, found := namespace.Annotations[key]; found {
			value = text
		}
	}
	return value
}

// deletedAfter returns how long the namespace lived, as it was seen.
func (s *sightings) deletedAfter() time.Duration {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.deleted.Sub(s.begun)
}

// expectEvent waits for an Event about a namespace.
func expectEvent(ctx context.Context, namespace *corev1.Namespace, reason, note string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list eventsv1.EventList
		g.Expect(admin.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
		var notes []string
		for _, event := range list.Items {
			if event.Regarding.UID == namespace.UID && event.Reason == reason {
				notes = append(notes, event.Note)
			}
		}
		g.Expect(notes).To(ContainElement(ContainSubstring(note)), strings.Join(notes, "\n"))
	}).WithContext(ctx).Should(Succeed())
}
