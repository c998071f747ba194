// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("The gate", Ordered, ContinueOnFailure, func() {
	var namespace *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		namespace = cluster.CreateInitializing(ctx, "gate")
	}, NodeTimeout(5*time.Minute))

	// test/security sends all other writes, as other identities, too.
	It("rejects an ordinary user, with the pending initializers and a command", func(ctx context.Context) {
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "early"))).To(BeForbiddenBy("gate",
			`namespace "`+namespace.Name+`" is being initialized`, "pending: "+framework.Absent,
			"kubectl get namespace "+namespace.Name+" --output=yaml"))
	})

	It("allows writes by control plane components", func(ctx context.Context) {
		for user, groups := range map[string][]string{
			"system:kube-controller-manager": {"system:authenticated"},
			"system:kube-scheduler":          {"system:authenticated"},
			"system:node:worker":             {"system:nodes", "system:authenticated"},
			"system:serviceaccount:kube-system:root-ca-cert-publisher": {
				"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated",
			},
			"system:serviceaccount:kube-system:generic-garbage-collector": {
				"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated",
			},
		} {
			By(user)
			bindUser(ctx, user)
			writer := cluster.Impersonate(user, groups...)
			Eventually(writer.Create).WithArguments(wrappers.MakeConfigMap(namespace.Name, framework.Unique("system"))).
				WithContext(ctx).Should(Succeed())
		}
	})

	It("allows a user with the initialize verb on one namespace to write to this namespace only", func(ctx context.Context) {
		other := cluster.CreateInitializing(ctx, "gate")
		const user = "one-namespace@corp.example.com"
		cluster.Bind(ctx, framework.Unique("one-namespace"), []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{namespace.Name}, Verbs: []string{"initialize"}},
		}, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
		writer := cluster.Impersonate(user, "system:authenticated")
		Eventually(writer.Create).WithArguments(wrappers.MakeConfigMap(namespace.Name, framework.Unique("named"))).
			WithContext(ctx).Should(Succeed())
		Expect(writer.Create(ctx, wrappers.MakeConfigMap(other.Name, "named"))).To(BeForbiddenBy("gate", other.Name))
	})

	It("does not affect reads", func(ctx context.Context) {
		Expect(cluster.Ordinary.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(namespace.Name))).To(Succeed())
	})

	It("is not evaluated for a namespace that is not initializing", func(ctx context.Context) {
		other := cluster.CreateInitializing(ctx, "gate")
		cluster.Finish(ctx, other.Name)
		// If the API server evaluates the policy for this user, the policy rejects the request. A
		// request that succeeds therefore shows that the policy was not evaluated. The API server
		// matches the binding against its watch cache, which can be stale for a few milliseconds.
		Eventually(cluster.Ordinary.Create).WithContext(ctx).WithArguments(wrappers.MakeConfigMap(other.Name, "first")).
			Should(Succeed())
		for range 20 {
			cluster.Ordinary.Creates(ctx, wrappers.MakeConfigMap(other.Name, framework.Unique("free")))
		}
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "rejected"))).To(BeForbiddenBy("gate"))
	})
})

// bindUser grants a user all verbs on all resources except "initialize".
func bindUser(ctx context.Context, user string) {
	GinkgoHelper()
	cluster.Bind(ctx, framework.Unique("user"), []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: framework.VerbsButInitialize},
	}, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
}
