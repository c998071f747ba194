// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/pkg/finalizer"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/matchers"
)

const (
	first = corev1.FinalizerName("first.example.com/other")
	last  = corev1.FinalizerName("last.example.com/other")
)

var _ = Describe("A namespace finalizer", func() {
	It("is removed from a terminating namespace after the function succeeds", func(ctx context.Context) {
		const own = corev1.FinalizerName("plain.finalizer.example.com/work")
		var served calls
		serve(own, func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			served.add(namespace.UID)
			return finalizer.Result{Reason: "IndexDeleted", Message: "index shop has been deleted"}, nil
		})
		untouched := create(ctx, "finalizer-untouched", own)
		namespace := create(ctx, "finalizer-plain", first, own, last)

		remove(ctx, namespace)
		Eventually(finalizersOf(ctx, namespace.Name)).WithContext(ctx).
			Should(Equal([]corev1.FinalizerName{first, last, corev1.FinalizerKubernetes}))
		Eventually(get).WithContext(ctx).WithArguments(ctx, namespace.Name).Should(matchers.HaveCondition(
			corev1.NamespaceConditionType(own), corev1.ConditionTrue, "IndexDeleted", "index shop has been deleted"))
		Expect(served.of(namespace.UID)).To(Equal(1))
		Expect(served.of(untouched.UID)).To(BeZero())
		Expect(finalizersOf(ctx, untouched.Name)(Default)).To(ContainElement(own))
	})

	It("is removed if it is the only namespace finalizer, so that the namespace is deleted", func(ctx context.Context) {
		const own = corev1.FinalizerName("only.finalizer.example.com/work")
		serve(own, func(context.Context, *corev1.Namespace) (finalizer.Result, error) { return finalizer.Result{}, nil })
		namespace := create(ctx, "finalizer-only", own)
		Expect(setFinalizers(ctx, namespace.Name, without(corev1.FinalizerKubernetes))).To(Succeed())
		remove(ctx, namespace)
		framework.ExpectDeleted(ctx, admin, namespace)
	})

	It("is removed together with its duplicates", func(ctx context.Context) {
		const own = corev1.FinalizerName("twice.finalizer.example.com/work")
		serve(own, func(context.Context, *corev1.Namespace) (finalizer.Result, error) { return finalizer.Result{}, nil })
		namespace := create(ctx, "finalizer-twice", own, first, own)
		Expect(namespace.Spec.Finalizers).To(HaveLen(4))
		remove(ctx, namespace)
		Eventually(finalizersOf(ctx, namespace.Name)).WithContext(ctx).
			Should(Equal([]corev1.FinalizerName{first, corev1.FinalizerKubernetes}))
	})

	It("is removed without reverting concurrent updates or calling the function again", func(ctx context.Context) {
		const own = corev1.FinalizerName("race.finalizer.example.com/work")
		const rounds = 25
		var served calls
		serve(own, func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			served.add(namespace.UID)
			return finalizer.Result{}, nil
		})
		for round := range rounds {
			namespace := create(ctx, fmt.Sprintf("finalizer-race-%d", round), first, own)
			remove(ctx, namespace)
			// The Namespace is not deleted until the finalizer is removed.
			want := []corev1.FinalizerName{first, corev1.FinalizerKubernetes}
			for n := 0; slices.Contains(finalizersOf(ctx, namespace.Name)(Default), own); n++ {
				mine := corev1.FinalizerName(fmt.Sprintf("race.example.com/%d", n))
				Expect(setFinalizers(ctx, namespace.Name, func(finalizers []corev1.FinalizerName) []corev1.FinalizerName {
					return append(finalizers, mine)
				})).To(Succeed())
				want = append(want, mine)
				patch := fmt.Sprintf(`{"metadata": {"labels": {"round-%d": "x"}}}`, n)
				Expect(admin.Patch(ctx, namespace.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
			}
			remaining := get(Default, ctx, namespace.Name)
			Expect(remaining.Spec.Finalizers).To(Equal(want))
			Expect(remaining.Labels).To(HaveLen(len(want) - 1)) // One label per added finalizer, plus the name label.
			Expect(served.of(namespace.UID)).To(Equal(1))
			forceDelete(ctx, namespace.Name)
		}
	})

	It("is not removed from a recreated namespace with the same name", func(ctx context.Context) {
		const own = corev1.FinalizerName("again.finalizer.example.com/work")
		entered, leave := make(chan types.UID, 10), make(chan struct{})
		var cancelled atomic.Int32
		serve(own, func(callContext context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			entered <- namespace.UID
			<-leave
			if callContext.Err() != nil {
				cancelled.Add(1)
			}
			// The function reports success although its context is canceled.
			return finalizer.Result{Message: "done"}, nil
		})
		old := create(ctx, "finalizer-again", own)
		remove(ctx, old)
		Eventually(ctx, entered).Should(Receive(Equal(old.UID)))
		forceDelete(ctx, old.Name)
		framework.ExpectDeleted(ctx, admin, old)
		recreated := create(ctx, old.Name, own)
		Expect(recreated.UID).NotTo(Equal(old.UID))
		close(leave)

		// The controller processes this Namespace after the pending call returns.
		next := create(ctx, "finalizer-again-next", own)
		remove(ctx, next)
		Eventually(finalizersOf(ctx, next.Name)).WithContext(ctx).ShouldNot(ContainElement(own))
		remaining := get(Default, ctx, recreated.Name)
		Expect(remaining.UID).To(Equal(recreated.UID))
		Expect(remaining.Spec.Finalizers).To(Equal(recreated.Spec.Finalizers))
		Expect(nscondition.Find(remaining, corev1.NamespaceConditionType(own))).To(BeNil())
		Eventually(ctx, entered).Should(Receive(Equal(next.UID)))

		By("deleting the recreated namespace")
		remove(ctx, recreated)
		Eventually(ctx, entered).Should(Receive(Equal(recreated.UID)))
		Eventually(finalizersOf(ctx, recreated.Name)).WithContext(ctx).ShouldNot(ContainElement(own))
	})

	It("is kept until the function returns nil, and a condition reports the reason", func(ctx context.Context) {
		const own = corev1.FinalizerName("held.finalizer.example.com/work")
		const condition = corev1.NamespaceConditionType(own)
		var isFixed atomic.Bool
		serve(own, func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			if isFixed.Load() {
				return finalizer.Result{}, nil
			}
			switch namespace.Name {
			case "finalizer-fails":
				return finalizer.Result{}, errors.New("the service is down")
			case "finalizer-panics":
				panic("no such thing")
			case "finalizer-waits":
				return finalizer.Result{}, finalizer.NotYet(100*time.Millisecond, "Archiving", "two of three logs are archived")
			}
			return finalizer.Result{}, nil
		}, finalizer.WithWorkers(1))
		reasons := map[string][]string{
			"finalizer-fails":  {"Retrying", "the service is down"},
			"finalizer-panics": {"Panicked", "no such thing"},
			"finalizer-waits":  {"Archiving", "two of three logs are archived"},
		}
		for name := range reasons {
			remove(ctx, create(ctx, name, own, first))
		}
		for name, want := range reasons {
			Eventually(get).WithContext(ctx).WithArguments(ctx, name).Should(
				matchers.HaveCondition(condition, corev1.ConditionFalse, want[0], want[1]))
			Expect(finalizersOf(ctx, name)(Default)).To(ContainElement(own))
		}
		By("processing another namespace with the same worker")
		healthy := create(ctx, "finalizer-healthy", own, first)
		remove(ctx, healthy)
		Eventually(finalizersOf(ctx, healthy.Name)).WithContext(ctx).ShouldNot(ContainElement(own))
		for name := range reasons {
			Expect(finalizersOf(ctx, name)(Default)).To(ContainElement(own))
		}

		isFixed.Store(true)
		for name := range reasons {
			Eventually(finalizersOf(ctx, name)).WithContext(ctx).ShouldNot(ContainElement(own))
			Eventually(get).WithContext(ctx).WithArguments(ctx, name).Should(
				matchers.HaveCondition(condition, corev1.ConditionTrue, "Released"))
		}
	})

	It("reports missing permissions and the commands that grant them", func(ctx context.Context) {
		const own = corev1.FinalizerName("permissions.finalizer.example.com/work")
		const user = "unprivileged@corp.example.com"
		config := newUser(ctx, user, requiredRules[:1])
		mgr := newManager(config)
		Expect(finalizer.Add(mgr, own, func(context.Context, *corev1.Namespace) (finalizer.Result, error) {
			return finalizer.Result{}, nil
		})).To(Succeed())
		start(mgr)
		namespace := create(ctx, "finalizer-permissions", first, own)
		remove(ctx, namespace)

		err := finalizer.Check(ctx, config, own)
		var missing *finalizer.MissingPermissionsError
		Expect(errors.As(err, &missing)).To(BeTrue(), "%v", err)
		Expect(missing.Missing).To(Equal([]string{"update namespaces/finalize"}))
		Expect(err).To(MatchError(ContainSubstring(user)))
		Expect(finalizer.Check(ctx, controllerConfig, own)).To(Succeed())
		Expect(finalizersOf(ctx, namespace.Name)(Default)).To(ContainElement(own))

		By("running the commands")
		_, commands, found := strings.Cut(err.Error(), "run: ")
		Expect(found).To(BeTrue())
		for command := range strings.SplitSeq(commands, "; ") {
			args := strings.Fields(strings.ReplaceAll(command, `"`, ""))
			Expect(args[0]).To(Equal("kubectl"))
			_, err := plane.Kubectl(ctx, plane.Admin, args[1:]...)
			Expect(err).NotTo(HaveOccurred())
		}
		Eventually(finalizer.Check).WithContext(ctx).WithArguments(ctx, config, own).Should(Succeed())
		// The permission to patch the condition is optional.
		Eventually(finalizersOf(ctx, namespace.Name)).WithContext(ctx).ShouldNot(ContainElement(own))
		Expect(nscondition.Find(get(Default, ctx, namespace.Name), corev1.NamespaceConditionType(own))).To(BeNil())
	})

	It("requires that the API server keeps the phase consistent with the deletion timestamp", func(ctx context.Context) {
		// Add watches only Namespaces with phase Terminating.
		namespace := create(ctx, "finalizer-phase", first)
		namespace.Status.Phase = corev1.NamespaceTerminating
		Expect(admin.Status().Update(ctx, namespace)).To(Satisfy(apierrors.IsInvalid))
		namespace = get(Default, ctx, namespace.Name)
		remove(ctx, namespace)
		namespace = get(Default, ctx, namespace.Name)
		Expect(namespace.Status.Phase).To(Equal(corev1.NamespaceTerminating))
		namespace.Status.Phase = corev1.NamespaceActive
		Expect(admin.Status().Update(ctx, namespace)).To(Satisfy(apierrors.IsInvalid))
	})
})
