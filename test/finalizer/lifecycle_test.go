// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"sync/atomic"
	"time"

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
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("A controller of a namespace finalizer", func() {
	It("waits for the content to be deleted if AfterContent is set", func(ctx context.Context) {
		const own = corev1.FinalizerName("content.finalizer.example.com/work")
		namespace := create(ctx, "finalizer-content", own)
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace.Name, Name: "settings", Finalizers: []string{"example.com/hold"},
		}}
		Expect(admin.Create(ctx, settings)).To(Succeed())
		var hadContent atomic.Bool
		var served calls
		serve(own, func(callContext context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			served.add(namespace.UID)
			var remaining corev1.ConfigMapList
			if err := admin.List(callContext, &remaining, client.InNamespace(namespace.Name)); err != nil {
				return finalizer.Result{}, err
			}
			if len(remaining.Items) > 0 {
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

		framework.ExpectDeleted(ctx, admin, namespace)
		Expect(hadContent.Load()).To(BeFalse())
		Expect(served.of(namespace.UID)).To(Equal(1))
	})

	It("adds the finalizer to selected existing and new namespaces", func(ctx context.Context) {
		const own = corev1.FinalizerName("add.finalizer.example.com/work")
		const label = "finalizer.example.com/team"
		before := create(ctx, "add-finalizer-before", first)
		ending := create(ctx, "add-finalizer-ending", first)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"`+label+`": "a"}}}`))
		Expect(admin.Patch(ctx, before, patch)).To(Succeed())
		Expect(admin.Patch(ctx, ending, patch)).To(Succeed())
		remove(ctx, ending)
		serve(own, func(context.Context, *corev1.Namespace) (finalizer.Result, error) { return finalizer.Result{}, nil },
			finalizer.AddFinalizer(func(namespace *corev1.Namespace) bool { return namespace.Labels[label] != "" }))

		after := create(ctx, "add-finalizer-after")
		later := create(ctx, "add-finalizer-later")
		Expect(admin.Patch(ctx, after, patch)).To(Succeed())
		Eventually(finalizersOf(ctx, before.Name)).WithContext(ctx).
			Should(Equal([]corev1.FinalizerName{first, corev1.FinalizerKubernetes, own}))
		Eventually(finalizersOf(ctx, after.Name)).WithContext(ctx).
			Should(Equal([]corev1.FinalizerName{corev1.FinalizerKubernetes, own}))
		Expect(finalizersOf(ctx, later.Name)(Default)).NotTo(ContainElement(own))
		Expect(finalizersOf(ctx, ending.Name)(Default)).NotTo(ContainElement(own))

		By("deleting a selected namespace")
		remove(ctx, after)
		Eventually(finalizersOf(ctx, after.Name)).WithContext(ctx).Should(Equal([]corev1.FinalizerName{corev1.FinalizerKubernetes}))
	})

	It("calls the function immediately when the object that it waits for is deleted", func(ctx context.Context) {
		const own = corev1.FinalizerName("watch.finalizer.example.com/work")
		lock := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "finalizer-watch-lock"}}
		Expect(admin.Create(ctx, lock)).To(Succeed())
		mgr := newManager(newUser(ctx, "watch@corp.example.com", requiredRules, statusRule, []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
		}))
		var served calls
		waitForUnlock := func(ctx context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			served.add(namespace.UID)
			err := mgr.GetClient().Get(ctx, client.ObjectKeyFromObject(lock), &corev1.ConfigMap{})
			if err == nil {
				err = finalizer.NotYet(time.Hour, "Locked", "ConfigMap %s exists", lock.Name)
			}
			return finalizer.Result{}, client.IgnoreNotFound(err)
		}
		isLock := func(object client.Object, _ *corev1.Namespace) bool { return object.GetName() == lock.Name }
		Expect(finalizer.Add(mgr, own, waitForUnlock, finalizer.WithWatch(&corev1.ConfigMap{}, isLock),
			finalizer.AddFinalizer(func(*corev1.Namespace) bool { return false }))).To(Succeed())
		start(mgr)
		kept := create(ctx, "finalizer-watch-kept", own)
		namespace := create(ctx, "finalizer-watch", own)
		remove(ctx, namespace)
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name).Status.Conditions).To(ContainElement(HaveField("Reason", "Locked")))
		}).WithContext(ctx).Should(Succeed())

		Expect(admin.Delete(ctx, lock)).To(Succeed())
		Eventually(finalizersOf(ctx, namespace.Name)).WithContext(ctx).ShouldNot(ContainElement(own))
		Expect(served.of(namespace.UID)).To(BeNumerically(">=", 2))
		Expect(served.of(kept.UID)).To(BeZero(), "the namespace is not terminating")
	})

	It("calls the function again after a restart", func(ctx context.Context) {
		const own = corev1.FinalizerName("restart.finalizer.example.com/work")
		entered := make(chan struct{}, 1)
		namespace := create(ctx, "finalizer-restart", own, first)
		stop := serve(own, func(callContext context.Context, _ *corev1.Namespace) (finalizer.Result, error) {
			entered <- struct{}{}
			<-callContext.Done()
			return finalizer.Result{}, callContext.Err()
		})
		remove(ctx, namespace)
		Eventually(ctx, entered).Should(Receive())
		stop()
		Expect(finalizersOf(ctx, namespace.Name)(Default)).To(ContainElement(own))

		var served calls
		serve(own, func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			served.add(namespace.UID)
			return finalizer.Result{}, nil
		})
		Eventually(finalizersOf(ctx, namespace.Name)).WithContext(ctx).ShouldNot(ContainElement(own))
		Expect(served.of(namespace.UID)).To(Equal(1))
	})

	It("runs in one of two replicas and fails over to the other", func(ctx context.Context) {
		const own = corev1.FinalizerName("replicas.finalizer.example.com/work")
		config := newUser(ctx, "replica@corp.example.com", requiredRules, statusRule, []rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		})
		var working, maxConcurrent, byFirst, bySecond atomic.Int32
		replica := func(count *atomic.Int32) (ctrl.Manager, func()) {
			mgr := newManager(config, func(options *ctrl.Options) {
				options.LeaderElection = true
				options.LeaderElectionID = "replicas.finalizer.example.com"
				options.LeaderElectionNamespace = metav1.NamespaceDefault
				options.LeaderElectionReleaseOnCancel = true
			})
			Expect(finalizer.Add(mgr, own, func(context.Context, *corev1.Namespace) (finalizer.Result, error) {
				maxConcurrent.Store(max(maxConcurrent.Load(), working.Add(1)))
				defer working.Add(-1)
				count.Add(1)
				return finalizer.Result{}, nil
			}, finalizer.WithWorkers(1))).To(Succeed())
			return mgr, start(mgr)
		}
		leader, stopLeader := replica(&byFirst)
		Eventually(ctx, leader.Elected()).Should(BeClosed())
		_, _ = replica(&bySecond)

		before := create(ctx, "finalizer-replicas-before", own, first)
		remove(ctx, before)
		Eventually(finalizersOf(ctx, before.Name)).WithContext(ctx).ShouldNot(ContainElement(own))
		Expect(byFirst.Load()).To(BeEquivalentTo(1))
		Expect(bySecond.Load()).To(BeZero())

		stopLeader()
		after := create(ctx, "finalizer-replicas-after", own, first)
		remove(ctx, after)
		Eventually(finalizersOf(ctx, after.Name)).WithContext(ctx).ShouldNot(ContainElement(own))
		Expect(byFirst.Load()).To(BeEquivalentTo(1))
		Expect(bySecond.Load()).To(BeEquivalentTo(1))
		Expect(maxConcurrent.Load()).To(BeEquivalentTo(1))
	})
})
