// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package guardrails

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// beDeniedToOthers matches the error of the policy, which is applied without config/default, so its name has no prefix.
func beDeniedToOthers(texts ...string) types.GomegaMatcher {
	all := []types.GomegaMatcher{
		Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("ValidatingAdmissionPolicy 'namespace-owners'")),
	}
	for _, text := range texts {
		all = append(all, MatchError(ContainSubstring(text)))
	}
	return And(all...)
}

// createInitialized creates a namespace and completes its initialization.
func createInitialized(ctx context.Context, creator *framework.User, wrapper *wrappers.NamespaceWrapper) *corev1.Namespace {
	GinkgoHelper()
	namespace := framework.CreateAs(ctx, creator, wrapper.Obj())
	admin.Patches(ctx, namespace, `{"metadata":{"annotations":{"`+v1alpha1.AnnotationPendingInitializers+`":""}}}`)
	Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
		Should(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonInitialized))
	return namespace
}

var _ = Describe("The policy namespace-owners", Ordered, func() {
	var creator, other *framework.User
	var creatorName, otherName string
	var namespace *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		directory := filepath.Join(controlplane.Root(), "config", "owners")
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-k", directory)
		Expect(err).NotTo(HaveOccurred())
		others := framework.CreateAs(ctx, editor, wrappers.MakeNamespace(unique("others")).Obj())
		tryOthers := func(ctx context.Context) error { return owner.Delete(ctx, others.DeepCopy(), client.DryRunAll) }
		DeferCleanup(func(ctx context.Context) {
			_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", "-k", directory)
			Expect(err).NotTo(HaveOccurred())
			Eventually(tryOthers).WithContext(ctx).Should(Succeed())
		})
		Eventually(tryOthers).WithContext(ctx).Should(beDeniedToOthers())
		cluster.Register(ctx, "owners", "a.test.example.com") // The creator of a namespace without initializers is not recorded.
	}, NodeTimeout(5*time.Minute))

	BeforeEach(func(ctx context.Context) {
		creatorName, otherName = unique("creator"), unique("other")
		rules := rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces", "namespaces/status", "namespaces/finalize"},
			Verbs: []string{"create", "get", "patch", "update", "delete"},
		}
		creator, other = cluster.AddUserWithRules(ctx, creatorName, rules), cluster.AddUserWithRules(ctx, otherName, rules)
		namespace = createInitialized(ctx, creator, wrappers.MakeNamespace(unique("owned")))
	})

	It("permits only the creator to delete a namespace", func(ctx context.Context) {
		Expect(other.Delete(ctx, namespace.DeepCopy())).To(beDeniedToOthers(
			`user "`+otherName+`" is not allowed to delete namespace "`+namespace.Name+`"`,
			`user "`+creatorName+`" has created it`, `"delete-any"`))
		creator.Deletes(ctx, namespace)
		framework.ExpectDeleted(ctx, admin, namespace)
	}, SpecTimeout(5*time.Minute))

	It("permits administrators, the garbage collector, and holders of the verb", func(ctx context.Context) {
		for _, user := range []*framework.User{
			cluster.Admin,
			cluster.Impersonate("system:serviceaccount:kube-system:generic-garbage-collector",
				"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"),
		} {
			Expect(user.Delete(ctx, namespace.DeepCopy(), client.DryRunAll)).To(Succeed())
		}
		role := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "support"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "namespace-deleter"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: otherName}},
		}
		Expect(other.Delete(ctx, namespace.DeepCopy())).To(beDeniedToOthers())
		admin.Creates(ctx, role)
		Eventually(func() error { return other.Delete(ctx, namespace.DeepCopy()) }).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("permits the operator to delete failed namespaces of all users", func(ctx context.Context) {
		failed := framework.CreateAs(ctx, creator, wrappers.MakeNamespace(unique("failed")).Obj())
		fail(ctx, failed)
		framework.ExpectDeleted(ctx, admin, failed)
	}, SpecTimeout(5*time.Minute))

	// The garbage collector has the verb, and deletes a namespace whose owner does not exist.
	It("permits only the creator to set an owner of a namespace, on any subresource", func(ctx context.Context) {
		patch := framework.MergePatch(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"absent","uid":"absent"}]}}`)
		Expect(other.Patch(ctx, namespace.DeepCopy(), patch)).To(beDeniedToOthers("set its owner"))
		Expect(other.Status().Patch(ctx, namespace.DeepCopy(), patch)).To(beDeniedToOthers())
		owned := namespace.DeepCopy()
		owned.ResourceVersion = "" // The operator writes conditions.
		owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "absent", UID: "absent"}}
		Expect(other.SubResource("finalize").Update(ctx, owned)).To(beDeniedToOthers())
		Expect(creator.Patch(ctx, namespace, patch)).To(Succeed())
		Expect(other.Patch(ctx, namespace.DeepCopy(), framework.MergePatch(`{"metadata":{"labels":{"note":"x"}}}`))).To(Succeed(), "another change")
		Expect(other.Patch(ctx, namespace.DeepCopy(), framework.MergePatch(`{"metadata":{"ownerReferences":null}}`))).To(Succeed(), "the removal of the owner")
	}, SpecTimeout(5*time.Minute))
})
