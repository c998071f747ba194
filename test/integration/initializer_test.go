// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	pkginitializer "github.com/nslifecycle/nslifecycle/pkg/initializer"
	"github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// initializerRules are the rights that package initializer asks for.
var initializerRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch", "patch", "initialize"}},
}

// userWith makes a user with some rights and no others.
func userWith(ctx context.Context, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	GinkgoHelper()
	config, err := plane.User(name)
	Expect(err).NotTo(HaveOccurred())
	bind(ctx, admin, name, rules, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name})
	return config
}

// startManager runs a manager that knows no type at all, until the spec is over.
func startManager(config *rest.Config, add func(mgr ctrl.Manager) error) {
	GinkgoHelper()
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: runtime.NewScheme(), Metrics: server.Options{BindAddress: "0"},
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(add(mgr)).To(Succeed())
	running, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(running) }()
	DeferCleanup(func(ctx context.Context) {
		stop()
		Eventually(done).WithContext(ctx).Should(Receive(Succeed()))
	})
}

var _ = Describe("Package initializer", func() {
	It("takes its entry off the list once the function has done its work, with no more rights than it says", func(ctx context.Context) {
		first, second := unique("first")+".corp.example.com", unique("second")+".corp.example.com"
		config := userWith(ctx, unique("package-initializer"), initializerRules...)
		var calls atomic.Int32
		startManager(config, func(mgr ctrl.Manager) error {
			return errors.Join(
				pkginitializer.Add(mgr, second, func(_ context.Context, namespace *corev1.Namespace) (pkginitializer.Result, error) {
					calls.Add(1)
					if pending := namespace.Annotations[v1alpha1.AnnotationPendingInitializers]; pending != second {
						return pkginitializer.Result{}, pkginitializer.Failed("TooEarly", "pending are %s", pending)
					}
					return pkginitializer.Result{Message: "nothing is left to do"}, nil
				}),
				pkginitializer.Add(mgr, first, func(context.Context, *corev1.Namespace) (pkginitializer.Result, error) {
					return pkginitializer.Result{}, nil
				}),
			)
		})
		register(ctx, unique("package"), first, second)

		name := unique("shop")
		Expect(ordinary.Create(ctx, wrappers.MakeNamespace(name).Obj())).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, name)).To(matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonCompleted))
		}).WithContext(ctx).Should(Succeed())
		Expect(calls.Load()).To(BeEquivalentTo(1))
	})
})
