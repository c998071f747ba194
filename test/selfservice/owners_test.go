// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package selfservice

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("The policy namespace-owners", func() {
	var owner string
	var namespace *corev1.Namespace

	BeforeEach(func(ctx context.Context) {
		owner = framework.Unique("owner")
		namespace = createOpen(ctx, developer(owner), sized(framework.Unique("owned"), "small"))
	})

	It("permits only the creator to delete a namespace", func(ctx context.Context) {
		other := framework.Unique("other")
		Expect(developer(other).Delete(ctx, namespace.DeepCopy())).To(beDenied("namespace-owners",
			`user "`+other+`" is not allowed to delete namespace "`+namespace.Name+`"`,
			`user "`+owner+`" has created it`, `"delete-any"`))
		Expect(developer(owner).Delete(ctx, namespace)).To(Succeed())
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, SpecTimeout(5*time.Minute))

	It("permits administrators, the garbage collector, and holders of the verb", func(ctx context.Context) {
		for _, user := range []*framework.User{
			cluster.Admin,
			cluster.Impersonate("system:serviceaccount:kube-system:generic-garbage-collector",
				"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"),
		} {
			Expect(user.Delete(ctx, namespace.DeepCopy(), client.DryRunAll)).To(Succeed())
		}
		name := framework.Unique("support")
		support := cluster.AddUserWithRules(ctx, name, rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"delete"},
		})
		Expect(support.Delete(ctx, namespace.DeepCopy())).To(beDenied("namespace-owners"))
		role := &rbacv1.RoleBinding{
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "namespace-deleter"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		}
		role.Namespace, role.Name = namespace.Name, "support"
		Expect(cluster.Admin.Create(ctx, role)).To(Succeed())
		Eventually(func() error { return support.Delete(ctx, namespace.DeepCopy()) }).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("permits only the creator to let a namespace expire, on any subresource", func(ctx context.Context) {
		rules := rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces", "namespaces/status"},
			Verbs: []string{"get", "patch", "delete"},
		}
		other := cluster.AddUserWithRules(ctx, framework.Unique("other"), rules)
		cluster.Bind(ctx, owner, []rbacv1.PolicyRule{rules}, rbacv1.Subject{Kind: rbacv1.UserKind, Name: owner})
		for _, annotation := range []string{v1alpha1.AnnotationTTL, v1alpha1.AnnotationExpiresAt} {
			patch := client.RawPatch("application/merge-patch+json",
				fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"1h"}}}`, annotation))
			Expect(other.Patch(ctx, namespace.DeepCopy(), patch)).To(beDenied("namespace-owners", "let it expire"))
			Expect(other.Status().Patch(ctx, namespace.DeepCopy(), patch)).To(beDenied("namespace-owners"))
			Eventually(func() error {
				return developer(owner).Patch(ctx, namespace, patch)
			}).WithContext(ctx).Should(Succeed())
		}
		Expect(other.Patch(ctx, namespace.DeepCopy(), client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"note":"x"}}}`)))).To(Succeed(), "another change")
		Expect(other.Patch(ctx, namespace.DeepCopy(), client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"annotations":{"nslifecycle.dev/ttl":null,"nslifecycle.dev/expires-at":null}}}`)))).
			To(Succeed(), "the removal of the expiry")
	}, SpecTimeout(5*time.Minute))

	// The garbage collector has the verb, and deletes a namespace whose owner does not exist.
	It("permits only the creator to set an owner of a namespace, on any subresource", func(ctx context.Context) {
		rules := rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces", "namespaces/status", "namespaces/finalize"},
			Verbs: []string{"get", "patch", "update"},
		}
		other := cluster.AddUserWithRules(ctx, framework.Unique("other"), rules)
		cluster.Bind(ctx, owner, []rbacv1.PolicyRule{rules}, rbacv1.Subject{Kind: rbacv1.UserKind, Name: owner})
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"ownerReferences":[`+
			`{"apiVersion":"v1","kind":"Node","name":"absent","uid":"absent"}]}}`))
		Eventually(func() error { return other.Patch(ctx, namespace.DeepCopy(), patch) }).WithContext(ctx).
			Should(beDenied("namespace-owners", "set its owner"))
		Expect(other.Status().Patch(ctx, namespace.DeepCopy(), patch)).To(beDenied("namespace-owners"))
		owned := namespace.DeepCopy()
		owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "absent", UID: "absent"}}
		Expect(other.SubResource("finalize").Update(ctx, owned)).To(beDenied("namespace-owners"))
		Eventually(func() error { return developer(owner).Patch(ctx, namespace, patch) }).WithContext(ctx).
			Should(Succeed())
		Expect(other.Patch(ctx, namespace.DeepCopy(), client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"ownerReferences":null}}`)))).To(Succeed(), "the removal of the owner")
	}, SpecTimeout(5*time.Minute))
})
