// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/pkg/finalizer"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

var _ = Describe("The life of an agent", func() {
	It("begins after the content has gone, if it is to", func(ctx context.Context) {
		const token = corev1.FinalizerName("content.agent.example.com/work")
		namespace := create(ctx, "agent-content", token)
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace.Name, Name: "settings", Finalizers: []string{"example.com/hold"},
		}}
		Expect(admin.Create(ctx, settings)).To(Succeed())
		var hadContent atomic.Bool
		var served calls
		serve(token, func(callContext context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			served.add(namespace.UID)
			var left corev1.ConfigMapList
			if err := admin.List(callContext, &left, client.InNamespace(namespace.Name)); err != nil {
				return finalizer.Result{}, err
			}
			if len(left.Items) > 0 {
				hadContent.Store(true)
			}
			return finalizer.Result{}, nil
		}, finalizer.AfterContent())
		running, err := controlplane.RunManager(ctx, plane.Admin, func(options *manager.Options) {
			options.Controllers = manager.Controllers{manager.Finalization: true}
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })

		remove(ctx, namespace)
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name).Status.Conditions).NotTo(BeEmpty())
			var held corev1.ConfigMap
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(settings), &held)).To(Succeed())
			g.Expect(held.DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
		Expect(served.of(namespace.UID)).To(BeZero())
		Expect(admin.Patch(ctx, settings, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`)))).
			To(Succeed())

		Eventually(isGone(ctx, namespace.Name)).WithContext(ctx).Should(BeTrue())
		Expect(hadContent.Load()).To(BeFalse())
		Expect(served.of(namespace.UID)).To(Equal(1))
	})

	It("puts its token on what it selects, old or new", func(ctx context.Context) {
		const token = corev1.FinalizerName("puton.agent.example.com/work")
		const label = "agent.example.com/team"
		before := create(ctx, "agent-puton-before", first)
		ending := create(ctx, "agent-puton-ending", first)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"`+label+`": "a"}}}`))
		Expect(admin.Patch(ctx, before, patch)).To(Succeed())
		Expect(admin.Patch(ctx, ending, patch)).To(Succeed())
		remove(ctx, ending)
		serve(token, func(context.Context, *corev1.Namespace) (finalizer.Result, error) { return finalizer.Result{}, nil },
			finalizer.AddFinalizer(func(namespace *corev1.Namespace) bool { return namespace.Labels[label] != "" }))

		after := create(ctx, "agent-puton-after")
		later := create(ctx, "agent-puton-later")
		Expect(admin.Patch(ctx, after, patch)).To(Succeed())
		Eventually(tokensOf(ctx, before.Name)).WithContext(ctx).
			Should(Equal([]corev1.FinalizerName{first, corev1.FinalizerKubernetes, token}))
		Eventually(tokensOf(ctx, after.Name)).WithContext(ctx).
			Should(Equal([]corev1.FinalizerName{corev1.FinalizerKubernetes, token}))
		Expect(tokensOf(ctx, later.Name)(Default)).NotTo(ContainElement(token))
		Expect(tokensOf(ctx, ending.Name)(Default)).NotTo(ContainElement(token))

		By("and serves those")
		remove(ctx, after)
		Eventually(tokensOf(ctx, after.Name)).WithContext(ctx).Should(Equal([]corev1.FinalizerName{corev1.FinalizerKubernetes}))
	})

	It("goes on after a restart in the middle of the work", func(ctx context.Context) {
		const token = corev1.FinalizerName("restart.agent.example.com/work")
		entered := make(chan struct{}, 1)
		namespace := create(ctx, "agent-restart", token, first)
		stop := serve(token, func(callContext context.Context, _ *corev1.Namespace) (finalizer.Result, error) {
			entered <- struct{}{}
			<-callContext.Done()
			return finalizer.Result{}, callContext.Err()
		})
		remove(ctx, namespace)
		Eventually(ctx, entered).Should(Receive())
		stop()
		Expect(tokensOf(ctx, namespace.Name)(Default)).To(ContainElement(token))

		var served calls
		serve(token, func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			served.add(namespace.UID)
			return finalizer.Result{}, nil
		})
		Eventually(tokensOf(ctx, namespace.Name)).WithContext(ctx).ShouldNot(ContainElement(token))
		Expect(served.of(namespace.UID)).To(Equal(1))
	})

	It("has one of two replicas at work, and the other one takes over", func(ctx context.Context) {
		const token = corev1.FinalizerName("replicas.agent.example.com/work")
		config := newUser(ctx, "replica@corp.example.com", requiredRules, statusRule, []rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		})
		var working, atOnce, byFirst, bySecond atomic.Int32
		replica := func(count *atomic.Int32) (ctrl.Manager, func()) {
			mgr := newManager(config, func(options *ctrl.Options) {
				options.LeaderElection = true
				options.LeaderElectionID = "replicas.agent.example.com"
				options.LeaderElectionNamespace = metav1.NamespaceDefault
				options.LeaderElectionReleaseOnCancel = true
			})
			Expect(finalizer.Add(mgr, token, func(context.Context, *corev1.Namespace) (finalizer.Result, error) {
				atOnce.Store(max(atOnce.Load(), working.Add(1)))
				defer working.Add(-1)
				count.Add(1)
				return finalizer.Result{}, nil
			}, finalizer.WithWorkers(1))).To(Succeed())
			return mgr, start(mgr)
		}
		leader, stopLeader := replica(&byFirst)
		Eventually(ctx, leader.Elected()).Should(BeClosed())
		_, _ = replica(&bySecond)

		before := create(ctx, "agent-replicas-before", token, first)
		remove(ctx, before)
		Eventually(tokensOf(ctx, before.Name)).WithContext(ctx).ShouldNot(ContainElement(token))
		Expect(byFirst.Load()).To(BeEquivalentTo(1))
		Expect(bySecond.Load()).To(BeZero())

		stopLeader()
		after := create(ctx, "agent-replicas-after", token, first)
		remove(ctx, after)
		Eventually(tokensOf(ctx, after.Name)).WithContext(ctx).ShouldNot(ContainElement(token))
		Expect(byFirst.Load()).To(BeEquivalentTo(1))
		Expect(bySecond.Load()).To(BeEquivalentTo(1))
		Expect(atOnce.Load()).To(BeEquivalentTo(1))
	})
})
