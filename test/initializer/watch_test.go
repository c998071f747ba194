// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/pkg/initializer"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("An initializer that watches other objects", func() {
	// planLabel is the label of a namespace with the name of a ConfigMap in the namespace accounts.
	const planLabel = "watch.corp.com/plan"
	statusRule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces/status"}, Verbs: []string{"patch"}}
	planRule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))

	// waitForPlan returns a function that waits for an hour if the plan is missing. It reads the plan
	// from a cache if c does.
	waitForPlan := func(c client.Reader, plan client.Object, called *calls) initializer.Func {
		return func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
			called.record(namespace)
			found := plan.DeepCopyObject().(client.Object)
			key := client.ObjectKey{Namespace: accounts, Name: namespace.Labels[planLabel]}
			err := c.Get(ctx, key, found)
			if apierrors.IsNotFound(err) {
				return initializer.Result{}, initializer.NotYet(time.Hour, "NoPlan", "ConfigMap %s is missing", key)
			}
			return initializer.Result{}, err
		}
	}
	isPlan := func(object client.Object, namespace *corev1.Namespace) bool {
		return object.GetNamespace() == accounts && object.GetName() == namespace.Labels[planLabel]
	}
	expectNoPlan := func(ctx context.Context, name, initializerName string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			condition := nscondition.Find(get(g, ctx, name), corev1.NamespaceConditionType(initializerName+"/Initialized"))
			g.Expect(condition).NotTo(BeNil())
			g.Expect(condition.Reason).To(Equal("NoPlan"))
		}).WithContext(ctx).Should(Succeed())
	}

	DescribeTable("is called immediately when the object that it waits for is created",
		func(ctx context.Context, plan client.Object) {
			name := unique("watch") + ".corp.com"
			config := newAccount(ctx, unique("watch"), serving, statusRule, planRule)
			mgr, _ := newManager(config)
			var called calls
			Expect(initializer.Add(mgr, name, waitForPlan(mgr.GetClient(), plan, &called), initializer.WithWatch(plan, isPlan))).To(Succeed())
			run(ctx, mgr)
			register(ctx, name)
			red, blue := unique("plan-red"), unique("plan-blue")
			first := create(ctx, wrappers.MakeNamespace(unique("watch-red")).Label(planLabel, red))
			second := create(ctx, wrappers.MakeNamespace(unique("watch-blue")).Label(planLabel, blue))
			expectNoPlan(ctx, first.Name, name)
			expectNoPlan(ctx, second.Name, name)

			Expect(admin.Create(ctx, wrappers.MakeConfigMap(accounts, red))).To(Succeed())
			expectReady(ctx, first.Name)
			Expect(called.of(first.Name)).To(HaveLen(2))
			Expect(called.of(second.Name)).To(HaveLen(1), "the change does not affect this namespace")

			Expect(admin.Create(ctx, wrappers.MakeConfigMap(accounts, blue))).To(Succeed())
			expectReady(ctx, second.Name)
			Expect(called.of(first.Name)).To(HaveLen(2), "the namespace is initialized")
		},
		Entry("watched as typed objects", &corev1.ConfigMap{}),
		Entry("watched as metadata only", metadata),
	)

	It("is not called for a change before its turn", func(ctx context.Context) {
		blocking, name := unique("a-turn")+".corp.com", unique("b-turn")+".corp.com"
		config := newAccount(ctx, unique("turn"), serving, statusRule, planRule)
		mgr, _ := newManager(config)
		var called calls
		changed := make(chan struct{}, 100)
		Expect(initializer.Add(mgr, name, waitForPlan(mgr.GetClient(), metadata, &called), initializer.WithWatch(metadata,
			func(object client.Object, namespace *corev1.Namespace) bool {
				changed <- struct{}{}
				return isPlan(object, namespace)
			}))).To(Succeed())
		run(ctx, mgr)
		register(ctx, blocking, name)
		plan := unique("plan-turn")
		namespace := create(ctx, wrappers.MakeNamespace(unique("watch-turn")).Label(planLabel, plan))
		Expect(admin.Create(ctx, wrappers.MakeConfigMap(accounts, plan))).To(Succeed())
		Consistently(changed, 2*time.Second).ShouldNot(Receive())
		Expect(called.of(namespace.Name)).To(BeEmpty())

		serve(ctx, newAccount(ctx, unique("blocking"), serving), blocking,
			func(context.Context, *corev1.Namespace) (initializer.Result, error) { return initializer.Result{}, nil })
		expectReady(ctx, namespace.Name)
	})

	It("runs without the permission to watch the objects", func(ctx context.Context) {
		name := unique("unwatched") + ".corp.com"
		config := newAccount(ctx, unique("unwatched"), serving)
		mgr, _ := newManager(config)
		Expect(initializer.Add(mgr, name, func(context.Context, *corev1.Namespace) (initializer.Result, error) {
			return initializer.Result{}, nil
		}, initializer.WithWatch(&corev1.ConfigMap{}, nil))).To(Succeed())
		run(ctx, mgr)
		register(ctx, name)
		expectReady(ctx, create(ctx, wrappers.MakeNamespace(unique("unwatched"))).Name)
	})
})
