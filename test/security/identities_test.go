// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// almostInitializers are rules of ClusterRoles that look as if they granted the initialize verb, but do not.
var almostInitializers = map[string]rbacv1.PolicyRule{
	"on another namespace": {
		APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"default"},
		Verbs: []string{"initialize"},
	},
	"on subresources": {
		APIGroups: []string{""}, Resources: []string{"namespaces/status", "namespaces/finalize", "*/initialize"},
		Verbs: []string{"initialize"},
	},
	"in another group": {
		APIGroups: []string{v1alpha1.GroupVersion.Group, "apps"}, Resources: []string{"*"}, Verbs: []string{"*"},
	},
	"on other resources": {
		APIGroups: []string{""}, Resources: []string{"pods", "namespace"}, Verbs: []string{"initialize"},
	},
	"in upper case": {APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"Initialize"}},
	"on a path":     {NonResourceURLs: []string{"*"}, Verbs: []string{"*"}},
}

var _ = Describe("An identity without the initialize verb", Ordered, ContinueOnFailure, func() {
	var namespace *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		namespace = cluster.CreateInitializing(ctx, "identities")
	}, NodeTimeout(5*time.Minute))

	// expectRejected checks that a user who may write ConfigMaps and Namespaces can neither write to the
	// namespace nor open it.
	expectRejected := func(ctx context.Context, user *framework.User) {
		GinkgoHelper()
		Eventually(func() error {
			return user.Create(ctx, wrappers.MakeConfigMap(namespace.Name, framework.Unique("written")))
		}).WithContext(ctx).Should(BeForbiddenBy("gate"))
		Expect(user.Patch(ctx, namespace.DeepCopy(),
			mergePatch(`{"metadata":{"annotations":{"nslifecycle.dev/pending-initializers":""}}}`))).To(BeForbiddenBy("guard"))
		expectUnchanged(ctx, namespace)
	}
	writer := rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: []string{"create", "get", "patch"},
	}

	for name, rule := range almostInitializers {
		It("cannot get it from a rule "+name, func(ctx context.Context) {
			expectRejected(ctx, cluster.AddUserWithRules(ctx, framework.Unique("almost"), writer, rule))
		}, SpecTimeout(5*time.Minute))
	}

	It("can be a ServiceAccount in the namespace with all permissions there", func(ctx context.Context) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "tenant"}}
		Eventually(cluster.Initializer.Create).WithContext(ctx).WithArguments(account).Should(Succeed())
		for _, role := range []string{"cluster-admin", "nslifecycle-namespace-initializer"} {
			Expect(cluster.Initializer.Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: role},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects: []rbacv1.Subject{{
					Kind: rbacv1.ServiceAccountKind, Namespace: namespace.Name, Name: account.Name,
				}},
			})).To(Succeed())
		}
		request := &authenticationv1.TokenRequest{}
		Expect(cluster.Ordinary.SubResource("token").Create(ctx, account, request.DeepCopy())).To(BeForbiddenBy("gate"))
		Expect(cluster.Initializer.SubResource("token").Create(ctx, account, request)).To(Succeed())
		config := rest.AnonymousClientConfig(cluster.Admin.Config)
		config.BearerToken = request.Status.Token
		expectRejected(ctx, framework.NewUser(config))
	}, SpecTimeout(5*time.Minute))

	It("can impersonate only identities without the verb", func(ctx context.Context) {
		name := framework.Unique("impersonator")
		user := cluster.AddUserWithRules(ctx, name, writer,
			rbacv1.PolicyRule{
				APIGroups: []string{""}, Resources: []string{"users"}, ResourceNames: []string{name},
				Verbs: []string{"impersonate"},
			},
			rbacv1.PolicyRule{
				APIGroups: []string{authenticationv1.GroupName}, Resources: []string{"uids", "userextras/scopes"},
				Verbs: []string{"impersonate"},
			})
		as := func(impersonated rest.ImpersonationConfig) *framework.User {
			config := rest.CopyConfig(user.Config)
			config.Impersonate = impersonated
			return framework.NewUser(config)
		}
		expectRejected(ctx, as(rest.ImpersonationConfig{
			UserName: name, UID: "0", Extra: map[string][]string{"scopes": {framework.InitializerUser, "system:masters"}},
		}))
		for _, forbidden := range []rest.ImpersonationConfig{
			{UserName: framework.InitializerUser}, {UserName: framework.ManagerUser},
			{UserName: "system:serviceaccount:kube-system:generic-garbage-collector"},
			{UserName: name, Groups: []string{"system:masters"}},
			{UserName: name, Groups: []string{"system:serviceaccounts:kube-system"}},
		} {
			_, err := as(forbidden).Clientset().CoreV1().ConfigMaps(namespace.Name).Create(ctx,
				wrappers.MakeConfigMap(namespace.Name, framework.Unique("written")), metav1.CreateOptions{})
			Expect(err).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("cannot impersonate"))))
		}
		var written corev1.ConfigMapList
		Expect(cluster.Admin.List(ctx, &written, client.InNamespace(namespace.Name))).To(Succeed())
		for _, one := range written.Items {
			Expect(one.Name).NotTo(HavePrefix("written"))
		}
	}, SpecTimeout(5*time.Minute))
})
