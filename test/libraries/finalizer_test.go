// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package libraries

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
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/pkg/finalizer"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
)

const (
	first = corev1.FinalizerName("first.example.com/other")
	last  = corev1.FinalizerName("last.example.com/other")
)

var (
	requiredRules = []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces/finalize"}, Verbs: []string{"update"}},
	}
	statusRule = []rbacv1.PolicyRule{publishing}
	// controllerConfig has only the documented permissions.
	controllerConfig *rest.Config
)

// Nothing else removes namespace finalizers in these specs, unless a spec runs the finalization controller.
var _ = Describe("A controller of a namespace finalizer", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		cluster.StopManager()
		cluster.StartManager(ctx, func(options *manager.Options) {
			options.Controllers = manager.Controllers{manager.Initialization: true}
		})
		DeferCleanup(func(ctx context.Context) {
			cluster.StopManager()
			cluster.StartManager(ctx)
		})
		controllerConfig = newUser(ctx, "controller@corp.example.com", requiredRules, statusRule)
	})

	It("is removed from a terminating namespace after the function succeeds", func(ctx context.Context) {
		const own = corev1.FinalizerName("plain.finalizer.example.com/work")
		var served calls
		serveFinalizer(own, func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			served.record(namespace)
			return finalizer.Result{Reason: "IndexDeleted", Message: "index shop has been deleted"}, nil
		})
		untouched := createWithFinalizers(ctx, "finalizer-untouched", own)
		namespace := createWithFinalizers(ctx, "finalizer-plain", first, own, last, own)
		Expect(namespace.Spec.Finalizers).To(HaveLen(5))

		admin.Deletes(ctx, namespace)
		Eventually(finalizersOf(ctx, namespace.Name)).WithContext(ctx).
			Should(Equal([]corev1.FinalizerName{first, last, corev1.FinalizerKubernetes}))
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(ctx, namespace.Name).Should(matchers.HaveCondition(
			corev1.NamespaceConditionType(own), corev1.ConditionTrue, "IndexDeleted", "index shop has been deleted"))
		Expect(served.of(namespace.Name)).To(HaveLen(1))
		Expect(served.of(untouched.Name)).To(BeEmpty())
		Expect(finalizersOf(ctx, untouched.Name)(Default)).To(ContainElement(own))
	})

	It("is removed without reverting concurrent updates or calling the function again", func(ctx context.Context) {
		const own = corev1.FinalizerName("race.finalizer.example.com/work")
		const rounds = 25
		var served calls
		serveFinalizer(own, func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			served.record(namespace)
			return finalizer.Result{}, nil
		})
		for round := range rounds {
			namespace := createWithFinalizers(ctx, fmt.Sprintf("finalizer-race-%d", round), first, own)
			admin.Deletes(ctx, namespace)
			// The Namespace is not deleted until the finalizer is removed.
			want := []corev1.FinalizerName{first, corev1.FinalizerKubernetes}
			for n := 0; slices.Contains(finalizersOf(ctx, namespace.Name)(Default), own); n++ {
				mine := corev1.FinalizerName(fmt.Sprintf("race.example.com/%d", n))
				Expect(setFinalizers(ctx, namespace.Name, func(finalizers []corev1.FinalizerName) []corev1.FinalizerName {
					return append(finalizers, mine)
				})).To(Succeed())
				want = append(want, mine)
				patch := fmt.Sprintf(`{"metadata": {"labels": {"round-%d": "x"}}}`, n)
				admin.Patches(ctx, namespace.DeepCopy(), patch)
			}
			remaining := cluster.GetNamespace(Default, ctx, namespace.Name)
			Expect(remaining.Spec.Finalizers).To(Equal(want))
			Expect(remaining.Labels).To(HaveLen(len(want) - 1)) // One label per added finalizer, plus the name label.
			Expect(served.of(namespace.Name)).To(HaveLen(1))
			forceDelete(ctx, namespace.Name)
		}
	})

	It("is kept until the function returns nil, and a condition reports the reason", func(ctx context.Context) {
		const own = corev1.FinalizerName("held.finalizer.example.com/work")
		const condition = corev1.NamespaceConditionType(own)
		var isFixed atomic.Bool
		serveFinalizer(own, func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
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
			admin.Deletes(ctx, createWithFinalizers(ctx, name, own, first))
		}
		for name, want := range reasons {
			Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(ctx, name).Should(
				matchers.HaveCondition(condition, corev1.ConditionFalse, want[0], want[1]))
			Expect(finalizersOf(ctx, name)(Default)).To(ContainElement(own))
		}
		By("processing another namespace with the same worker")
		healthy := createWithFinalizers(ctx, "finalizer-healthy", own, first)
		admin.Deletes(ctx, healthy)
		Eventually(finalizersOf(ctx, healthy.Name)).WithContext(ctx).ShouldNot(ContainElement(own))
		for name := range reasons {
			Expect(finalizersOf(ctx, name)(Default)).To(ContainElement(own))
		}

		isFixed.Store(true)
		for name := range reasons {
			Eventually(finalizersOf(ctx, name)).WithContext(ctx).ShouldNot(ContainElement(own))
			Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(ctx, name).Should(
				matchers.HaveCondition(condition, corev1.ConditionTrue, "Released"))
		}
	})

	It("reports missing permissions and the commands that grant them", func(ctx context.Context) {
		const own = corev1.FinalizerName("permissions.finalizer.example.com/work")
		const user = "unprivileged@corp.example.com"
		config := newUser(ctx, user, requiredRules[:1])
		mgr, _ := newManager(config)
		Expect(finalizer.Add(mgr, own, func(context.Context, *corev1.Namespace) (finalizer.Result, error) {
			return finalizer.Result{}, nil
		})).To(Succeed())
		run(mgr)
		namespace := createWithFinalizers(ctx, "finalizer-permissions", first, own)
		admin.Deletes(ctx, namespace)

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
			_, err := cluster.Kubectl(ctx, cluster.Admin.Config, args[1:]...)
			Expect(err).NotTo(HaveOccurred())
		}
		Eventually(finalizer.Check).WithContext(ctx).WithArguments(ctx, config, own).Should(Succeed())
		// The permission to patch the condition is optional.
		Eventually(finalizersOf(ctx, namespace.Name)).WithContext(ctx).ShouldNot(ContainElement(own))
		Expect(nsobject.FindCondition(cluster.GetNamespace(Default, ctx, namespace.Name), corev1.NamespaceConditionType(own))).To(BeNil())
	})

	It("waits for the content to be deleted if AfterContent is set", func(ctx context.Context) {
		const own = corev1.FinalizerName("content.finalizer.example.com/work")
		namespace := createWithFinalizers(ctx, "finalizer-content", own)
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace.Name, Name: "settings", Finalizers: []string{"example.com/hold"},
		}}
		admin.Creates(ctx, settings)
		var hadContent atomic.Bool
		var served calls
		serveFinalizer(own, func(callContext context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			served.record(namespace)
			var remaining corev1.ConfigMapList
			if err := admin.List(callContext, &remaining, client.InNamespace(namespace.Name)); err != nil {
				return finalizer.Result{}, err
			}
			if len(remaining.Items) > 0 {
				hadContent.Store(true)
			}
			return finalizer.Result{}, nil
		}, finalizer.AfterContent())
		running, err := controlplane.RunManager(ctx, cluster.Admin.Config, func(options *manager.Options) {
			options.Controllers = manager.Controllers{manager.Finalization: true}
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })

		admin.Deletes(ctx, namespace)
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).Status.Conditions).NotTo(BeEmpty())
			var held corev1.ConfigMap
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(settings), &held)).To(Succeed())
			g.Expect(held.DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
		Expect(served.of(namespace.Name)).To(BeEmpty())
		Expect(admin.Patch(ctx, settings, framework.MergePatch(`{"metadata": {"finalizers": null}}`))).
			To(Succeed())

		framework.ExpectDeleted(ctx, admin, namespace)
		Expect(hadContent.Load()).To(BeFalse())
		Expect(served.of(namespace.Name)).To(HaveLen(1))
	})

	It("adds the finalizer to selected existing and new namespaces", func(ctx context.Context) {
		const own = corev1.FinalizerName("add.finalizer.example.com/work")
		const label = "finalizer.example.com/team"
		before := createWithFinalizers(ctx, "add-finalizer-before", first)
		ending := createWithFinalizers(ctx, "add-finalizer-ending", first)
		patch := framework.MergePatch(`{"metadata": {"labels": {"` + label + `": "a"}}}`)
		Expect(admin.Patch(ctx, before, patch)).To(Succeed())
		Expect(admin.Patch(ctx, ending, patch)).To(Succeed())
		admin.Deletes(ctx, ending)
		serveFinalizer(own, func(context.Context, *corev1.Namespace) (finalizer.Result, error) { return finalizer.Result{}, nil },
			finalizer.AddFinalizer(func(namespace *corev1.Namespace) bool { return namespace.Labels[label] != "" }))

		after := createWithFinalizers(ctx, "add-finalizer-after")
		later := createWithFinalizers(ctx, "add-finalizer-later")
		Expect(admin.Patch(ctx, after, patch)).To(Succeed())
		Eventually(finalizersOf(ctx, before.Name)).WithContext(ctx).
			Should(Equal([]corev1.FinalizerName{first, corev1.FinalizerKubernetes, own}))
		Eventually(finalizersOf(ctx, after.Name)).WithContext(ctx).
			Should(Equal([]corev1.FinalizerName{corev1.FinalizerKubernetes, own}))
		Expect(finalizersOf(ctx, later.Name)(Default)).NotTo(ContainElement(own))
		Expect(finalizersOf(ctx, ending.Name)(Default)).NotTo(ContainElement(own))

		By("deleting a selected namespace")
		admin.Deletes(ctx, after)
		Eventually(finalizersOf(ctx, after.Name)).WithContext(ctx).Should(Equal([]corev1.FinalizerName{corev1.FinalizerKubernetes}))
	})

	It("calls the function immediately when the object that it waits for is deleted", func(ctx context.Context) {
		const own = corev1.FinalizerName("watch.finalizer.example.com/work")
		lock := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "finalizer-watch-lock"}}
		admin.Creates(ctx, lock)
		mgr, _ := newManager(newUser(ctx, "watch@corp.example.com", requiredRules, statusRule, []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
		}))
		var served calls
		waitForUnlock := func(ctx context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			served.record(namespace)
			err := mgr.GetClient().Get(ctx, client.ObjectKeyFromObject(lock), &corev1.ConfigMap{})
			if err == nil {
				err = finalizer.NotYet(time.Hour, "Locked", "ConfigMap %s exists", lock.Name)
			}
			return finalizer.Result{}, client.IgnoreNotFound(err)
		}
		isLock := func(object client.Object, _ *corev1.Namespace) bool { return object.GetName() == lock.Name }
		Expect(finalizer.Add(mgr, own, waitForUnlock, finalizer.WithWatch(&corev1.ConfigMap{}, isLock),
			finalizer.AddFinalizer(func(*corev1.Namespace) bool { return false }))).To(Succeed())
		run(mgr)
		kept := createWithFinalizers(ctx, "finalizer-watch-kept", own)
		namespace := createWithFinalizers(ctx, "finalizer-watch", own)
		admin.Deletes(ctx, namespace)
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).Status.Conditions).To(ContainElement(HaveField("Reason", "Locked")))
		}).WithContext(ctx).Should(Succeed())

		admin.Deletes(ctx, lock)
		Eventually(finalizersOf(ctx, namespace.Name)).WithContext(ctx).ShouldNot(ContainElement(own))
		Expect(len(served.of(namespace.Name))).To(BeNumerically(">=", 2))
		Expect(served.of(kept.Name)).To(BeEmpty(), "the namespace is not terminating")
	})

	It("calls the function again after a restart", func(ctx context.Context) {
		const own = corev1.FinalizerName("restart.finalizer.example.com/work")
		entered := make(chan struct{}, 1)
		namespace := createWithFinalizers(ctx, "finalizer-restart", own, first)
		stop := serveFinalizer(own, func(callContext context.Context, _ *corev1.Namespace) (finalizer.Result, error) {
			entered <- struct{}{}
			<-callContext.Done()
			return finalizer.Result{}, callContext.Err()
		})
		admin.Deletes(ctx, namespace)
		Eventually(ctx, entered).Should(Receive())
		stop()
		Expect(finalizersOf(ctx, namespace.Name)(Default)).To(ContainElement(own))

		var served calls
		serveFinalizer(own, func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
			served.record(namespace)
			return finalizer.Result{}, nil
		})
		Eventually(finalizersOf(ctx, namespace.Name)).WithContext(ctx).ShouldNot(ContainElement(own))
		Expect(served.of(namespace.Name)).To(HaveLen(1))
	})

	It("runs in one of two replicas and fails over to the other", func(ctx context.Context) {
		const own = corev1.FinalizerName("replicas.finalizer.example.com/work")
		config := newUser(ctx, "replica@corp.example.com", requiredRules, statusRule, []rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		})
		var working, maxConcurrent, byFirst, bySecond atomic.Int32
		replica := func(count *atomic.Int32) (ctrl.Manager, func()) {
			mgr, _ := newManager(config, func(options *ctrl.Options) {
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
			return mgr, run(mgr)
		}
		leader, stopLeader := replica(&byFirst)
		Eventually(ctx, leader.Elected()).Should(BeClosed())
		_, _ = replica(&bySecond)

		before := createWithFinalizers(ctx, "finalizer-replicas-before", own, first)
		admin.Deletes(ctx, before)
		Eventually(finalizersOf(ctx, before.Name)).WithContext(ctx).ShouldNot(ContainElement(own))
		Expect(byFirst.Load()).To(BeEquivalentTo(1))
		Expect(bySecond.Load()).To(BeZero())

		stopLeader()
		after := createWithFinalizers(ctx, "finalizer-replicas-after", own, first)
		admin.Deletes(ctx, after)
		Eventually(finalizersOf(ctx, after.Name)).WithContext(ctx).ShouldNot(ContainElement(own))
		Expect(byFirst.Load()).To(BeEquivalentTo(1))
		Expect(bySecond.Load()).To(BeEquivalentTo(1))
		Expect(maxConcurrent.Load()).To(BeEquivalentTo(1))
	})
})

// newUser adds a user with cluster-wide permissions.
func newUser(ctx context.Context, name string, rules ...[]rbacv1.PolicyRule) *rest.Config {
	GinkgoHelper()
	return cluster.AddUserWithRules(ctx, name, slices.Concat(rules...)...).Config
}

// serveFinalizer runs a controller with controllerConfig until the spec ends or the returned function is called.
func serveFinalizer(own corev1.FinalizerName, fn finalizer.Func, opts ...finalizer.Option) func() {
	GinkgoHelper()
	mgr, _ := newManager(controllerConfig)
	Expect(finalizer.Add(mgr, own, fn, opts...)).To(Succeed())
	return run(mgr)
}

// createWithFinalizers creates a Namespace with the given namespace finalizers. The API server appends
// "kubernetes".
func createWithFinalizers(ctx context.Context, name string, finalizers ...corev1.FinalizerName) *corev1.Namespace {
	GinkgoHelper()
	namespace := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NamespaceSpec{Finalizers: finalizers},
	}
	admin.Creates(ctx, namespace)
	DeferCleanup(func(ctx context.Context) { forceDelete(ctx, name) })
	return namespace
}

// setFinalizers changes spec.finalizers of a Namespace as the administrator.
func setFinalizers(
	ctx context.Context, name string, change func([]corev1.FinalizerName) []corev1.FinalizerName,
) error {
	return retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		var namespace corev1.Namespace
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, &namespace); err != nil {
			return err
		}
		namespace.Spec.Finalizers = change(namespace.Spec.Finalizers)
		return admin.SubResource("finalize").Update(ctx, &namespace)
	})
}

// forceDelete deletes a Namespace and removes its namespace finalizers.
func forceDelete(ctx context.Context, name string) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_ = admin.Delete(ctx, namespace)
	_ = setFinalizers(ctx, name, func([]corev1.FinalizerName) []corev1.FinalizerName { return nil })
	_ = client.IgnoreNotFound(admin.Delete(ctx, namespace))
}

func finalizersOf(ctx context.Context, name string) func(g Gomega) []corev1.FinalizerName {
	return func(g Gomega) []corev1.FinalizerName { return cluster.GetNamespace(g, ctx, name).Spec.Finalizers }
}
