// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package selfservice

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("A developer", func() {
	It("chooses a template and a parameter, and administers the namespace as soon as it is open", func(ctx context.Context) {
		alice := developer(framework.Unique("alice"))
		namespace := sized(framework.Unique("shop"), "small")
		namespace.Annotations = map[string]string{v1alpha1.PrefixParameter + "memory": "2Gi"}
		createOpen(ctx, alice, namespace)
		// The first requests. The gate of the API server can observe the completion later than its clients.
		Eventually(func(g Gomega) {
			err := alice.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "first"))
			Expect(err).To(Or(Succeed(), BeForbiddenBy(v1alpha1.PolicyGate)))
			g.Expect(err).NotTo(HaveOccurred())
		}).WithContext(ctx).Should(Succeed())
		quota := &corev1.ResourceQuota{}
		Expect(alice.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "size"}, quota)).To(Succeed())
		Expect(quota.Status.Hard).To(HaveKeyWithValue(corev1.ResourceName("requests.memory"), resource.MustParse("2Gi")))
		teammate := &rbacv1.RoleBinding{
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "carol"}},
		}
		teammate.Namespace, teammate.Name = namespace.Name, "teammate"
		Expect(alice.Create(ctx, teammate)).To(Succeed())

		By("changing neither the quota nor the binding, although administrators can")
		binding := &rbacv1.RoleBinding{}
		Expect(alice.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "creator"}, binding)).To(Succeed())
		Expect(alice.Delete(ctx, binding)).To(BeForbiddenBy(v1alpha1.PolicyTemplateObjects))
		Expect(alice.Delete(ctx, quota)).To(Satisfy(apierrors.IsForbidden))
	}, SpecTimeout(5*time.Minute))

	It("is refused other templates, invalid parameters, and namespaces without a template", func(ctx context.Context) {
		name := framework.Unique("bob")
		bob := developer(name)
		Expect(bob.Create(ctx, sized("shop", "large"))).To(BeForbiddenBy(v1alpha1.PolicyTemplates,
			`user "`+name+`" is not allowed to use template "large"`))
		namespace := sized("shop", "small")
		namespace.Annotations = map[string]string{v1alpha1.PrefixParameter + "memory": "64Gi"}
		Expect(bob.Create(ctx, namespace)).To(MatchError(And(ContainSubstring("memory"), ContainSubstring(`be one of "1Gi", "2Gi"`))))
		Expect(bob.Create(ctx, wrappers.MakeNamespace("shop").Obj())).To(beDenied("self-service-size", sizeLabel))
		Expect(bob.Create(ctx, wrappers.MakeNamespace("shop").Label(v1alpha1.LabelTemplate, "small").Obj())).
			To(beDenied("self-service-size", sizeLabel))
	}, SpecTimeout(5*time.Minute))

	It("has at most three namespaces, of all sizes together, and reads why another one is deleted", func(ctx context.Context) {
		name := framework.Unique("carol")
		carol := developer(name)
		first := createOpen(ctx, carol, sized(framework.Unique("shop"), "small"))
		for _, size := range []string{"medium", "medium"} {
			createOpen(ctx, carol, sized(framework.Unique("shop"), size))
		}
		fourth := sized(framework.Unique("shop"), "small")
		fourth.Finalizers = []string{"test.example.com/hold"} // The spec reads the condition.
		Expect(carol.Create(ctx, fourth)).To(Succeed())
		Eventually(func(g Gomega) *corev1.Namespace {
			g.Expect(carol.Get(ctx, client.ObjectKeyFromObject(fourth), fourth)).To(Succeed())
			return fourth
		}).WithContext(ctx).Should(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse,
			v1alpha1.ReasonFailed, `user "`+name+`" has 3 namespaces with template "self-service", which permits 3`))

		By("deleting one")
		Expect(carol.Delete(ctx, first)).To(Succeed())
		framework.ExpectDeleted(ctx, cluster.Admin, first)
		createOpen(ctx, carol, sized(framework.Unique("shop"), "medium"))
		Expect(cluster.Admin.Patch(ctx, fourth, client.RawPatch(
			"application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		framework.ExpectDeleted(ctx, cluster.Admin, fourth)
	}, SpecTimeout(5*time.Minute))
})
