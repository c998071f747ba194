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
	"github.com/nslifecycle/nslifecycle/test/matchers"
)

const (
	first = corev1.FinalizerName("first.example.com/other")
	last  = corev1.FinalizerName("last.example.com/other")
)

var _ = Describe("An agent", func() {
	It("is called when a namespace terminates, and takes its own token off", func(ctx context.Context) {
		const token = corev1.FinalizerName("plain.agent.example.com/work")
		var served calls
		serve(token, func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			served.add(namespace.UID)
			return finalizer.Result{Reason: "IndexDeleted", Message: "index shop has been deleted"}, nil
		})
		untouched := create(ctx, "agent-untouched", token)
		namespace := create(ctx, "agent-plain", first, token, last)

		remove(ctx, namespace)
		Eventually(tokensOf(ctx, namespace.Name)).WithContext(ctx).
			Should(Equal([]corev1.FinalizerName{first, last, corev1.FinalizerKubernetes}))
		Eventually(get).WithContext(ctx).WithArguments(ctx, namespace.Name).Should(matchers.HaveCondition(
			corev1.NamespaceConditionType(token), corev1.ConditionTrue, "IndexDeleted", "index shop has been deleted"))
		Expect(served.of(namespace.UID)).To(Equal(1))
		Expect(served.of(untouched.UID)).To(BeZero())
		Expect(tokensOf(ctx, untouched.Name)(Default)).To(ContainElement(token))
	})

	It("ends a namespace that nobody else holds", func(ctx context.Context) {
		const token = corev1.FinalizerName("only.agent.example.com/work")
		serve(token, func(context.Context, *corev1.Namespace) (finalizer.Result, error) { return finalizer.Result{}, nil })
		namespace := create(ctx, "agent-only", token)
		Expect(setTokens(ctx, namespace.Name, without(corev1.FinalizerKubernetes))).To(Succeed())
		remove(ctx, namespace)
		Eventually(isGone(ctx, namespace.Name)).WithContext(ctx).Should(BeTrue())
	})

	It("takes a token that is listed twice off as a whole", func(ctx context.Context) {
		const token = corev1.FinalizerName("twice.agent.example.com/work")
		serve(token, func(context.Context, *corev1.Namespace) (finalizer.Result, error) { return finalizer.Result{}, nil })
		namespace := create(ctx, "agent-twice", token, first, token)
		Expect(namespace.Spec.Finalizers).To(HaveLen(4))
		remove(ctx, namespace)
		Eventually(tokensOf(ctx, namespace.Name)).WithContext(ctx).
			Should(Equal([]corev1.FinalizerName{first, corev1.FinalizerKubernetes}))
	})

	It("loses no write of anybody else, and is not called again for a lost race", func(ctx context.Context) {
		const token = corev1.FinalizerName("race.agent.example.com/work")
		const rounds = 25
		var served calls
		serve(token, func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			served.add(namespace.UID)
			return finalizer.Result{}, nil
		})
		for round := range rounds {
			namespace := create(ctx, fmt.Sprintf("agent-race-%d", round), first, token)
			remove(ctx, namespace)
			// Until the agent has come through, and then no more.
			want := []corev1.FinalizerName{first, corev1.FinalizerKubernetes}
			for n := 0; slices.Contains(tokensOf(ctx, namespace.Name)(Default), token); n++ {
				mine := corev1.FinalizerName(fmt.Sprintf("race.example.com/%d", n))
				Expect(setTokens(ctx, namespace.Name, func(tokens []corev1.FinalizerName) []corev1.FinalizerName {
					return append(tokens, mine)
				})).To(Succeed())
				want = append(want, mine)
				patch := fmt.Sprintf(`{"metadata": {"labels": {"round-%d": "x"}}}`, n)
				Expect(admin.Patch(ctx, namespace.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
			}
			left := get(Default, ctx, namespace.Name)
			Expect(left.Spec.Finalizers).To(Equal(want))
			Expect(left.Labels).To(HaveLen(len(want) - 1)) // One for each token that was added, and that of its name.
			Expect(served.of(namespace.UID)).To(Equal(1))
			end(ctx, namespace.Name)
		}
	})

	It("does not release a namespace that was created again under the name", func(ctx context.Context) {
		const token = corev1.FinalizerName("again.agent.example.com/work")
		entered, leave := make(chan types.UID, 10), make(chan struct{})
		var cancelled atomic.Int32
		serve(token, func(callContext context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			entered <- namespace.UID
			<-leave
			if callContext.Err() != nil {
				cancelled.Add(1)
			}
			// Whatever was going on, it claims to have done its work.
			return finalizer.Result{Message: "done"}, nil
		})
		old := create(ctx, "agent-again", token)
		remove(ctx, old)
		Eventually(ctx, entered).Should(Receive(Equal(old.UID)))
		end(ctx, old.Name)
		Eventually(isGone(ctx, old.Name)).WithContext(ctx).Should(BeTrue())
		renewed := create(ctx, old.Name, token)
		Expect(renewed.UID).NotTo(Equal(old.UID))
		close(leave)

		// The next one shows that the agent is through with what it had.
		next := create(ctx, "agent-again-next", token)
		remove(ctx, next)
		Eventually(tokensOf(ctx, next.Name)).WithContext(ctx).ShouldNot(ContainElement(token))
		left := get(Default, ctx, renewed.Name)
		Expect(left.UID).To(Equal(renewed.UID))
		Expect(left.Spec.Finalizers).To(Equal(renewed.Spec.Finalizers))
		Expect(nscondition.Find(left, corev1.NamespaceConditionType(token))).To(BeNil())
		Eventually(ctx, entered).Should(Receive(Equal(next.UID)))

		By("and is called for it when it terminates in its turn")
		remove(ctx, renewed)
		Eventually(ctx, entered).Should(Receive(Equal(renewed.UID)))
		Eventually(tokensOf(ctx, renewed.Name)).WithContext(ctx).ShouldNot(ContainElement(token))
	})

	It("holds a namespace until the function returns nil, and says why", func(ctx context.Context) {
		const token = corev1.FinalizerName("held.agent.example.com/work")
		const condition = corev1.NamespaceConditionType(token)
		var isMended atomic.Bool
		serve(token, func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			if isMended.Load() {
				return finalizer.Result{}, nil
			}
			switch namespace.Name {
			case "agent-fails":
				return finalizer.Result{}, errors.New("the service is down")
			case "agent-panics":
				panic("no such thing")
			case "agent-waits":
				return finalizer.Result{}, finalizer.NotYet(100*time.Millisecond, "Archiving", "two of three logs are archived")
			}
			return finalizer.Result{}, nil
		}, finalizer.WithWorkers(1))
		reasons := map[string][]string{
			"agent-fails":  {"Retrying", "the service is down"},
			"agent-panics": {"Panicked", "no such thing"},
			"agent-waits":  {"Archiving", "two of three logs are archived"},
		}
		for name := range reasons {
			remove(ctx, create(ctx, name, token, first))
		}
		for name, told := range reasons {
			Eventually(get).WithContext(ctx).WithArguments(ctx, name).Should(
				matchers.HaveCondition(condition, corev1.ConditionFalse, told[0], told[1]))
			Expect(tokensOf(ctx, name)(Default)).To(ContainElement(token))
		}
		By("which is no trouble for others, with one worker")
		healthy := create(ctx, "agent-healthy", token, first)
		remove(ctx, healthy)
		Eventually(tokensOf(ctx, healthy.Name)).WithContext(ctx).ShouldNot(ContainElement(token))
		for name := range reasons {
			Expect(tokensOf(ctx, name)(Default)).To(ContainElement(token))
		}

		isMended.Store(true)
		for name := range reasons {
			Eventually(tokensOf(ctx, name)).WithContext(ctx).ShouldNot(ContainElement(token))
			Eventually(get).WithContext(ctx).WithArguments(ctx, name).Should(
				matchers.HaveCondition(condition, corev1.ConditionTrue, "Released"))
		}
	})

	It("says which rights are missing and with which commands they are given", func(ctx context.Context) {
		const token = corev1.FinalizerName("rights.agent.example.com/work")
		const user = "rightless@corp.example.com"
		config := newUser(ctx, user, requiredRules[:1])
		mgr := newManager(config)
		Expect(finalizer.Add(mgr, token, func(context.Context, *corev1.Namespace) (finalizer.Result, error) {
			return finalizer.Result{}, nil
		})).To(Succeed())
		start(mgr)
		namespace := create(ctx, "agent-rights", first, token)
		remove(ctx, namespace)

		err := finalizer.Check(ctx, config, token)
		var missing *finalizer.MissingPermissionsError
		Expect(errors.As(err, &missing)).To(BeTrue(), "%v", err)
		Expect(missing.Missing).To(Equal([]string{"update namespaces/finalize"}))
		Expect(err).To(MatchError(ContainSubstring(user)))
		Expect(finalizer.Check(ctx, agentConfig, token)).To(Succeed())
		Expect(tokensOf(ctx, namespace.Name)(Default)).To(ContainElement(token))

		By("which work as they are")
		_, commands, found := strings.Cut(err.Error(), "run: ")
		Expect(found).To(BeTrue())
		for command := range strings.SplitSeq(commands, "; ") {
			args := strings.Fields(strings.ReplaceAll(command, `"`, ""))
			Expect(args[0]).To(Equal("kubectl"))
			_, err := plane.Kubectl(ctx, plane.Admin, args[1:]...)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(finalizer.Check(ctx, config, token)).To(Succeed())
		// Without a right to write a condition, which is no trouble.
		Eventually(tokensOf(ctx, namespace.Name)).WithContext(ctx).ShouldNot(ContainElement(token))
		Expect(nscondition.Find(get(Default, ctx, namespace.Name), corev1.NamespaceConditionType(token))).To(BeNil())
	})

	It("goes by the deletion of the namespace alone", func(ctx context.Context) {
		// What Add relies on when it watches the phase Terminating alone.
		namespace := create(ctx, "agent-phase", first)
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
