// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("An object that the operator may replace", func() {
	It("is not deleted if an admission policy rejects its change", func(ctx context.Context) {
		template := newTemplate(framework.Unique("named"), only("team", bindingTo("ClusterRole", "edit")))
		create(ctx, template)
		old := selectedBy(template.Name)
		createOpen(ctx, old)
		_, uid := valueOf(Default, ctx, old, roleBindings)
		name := framework.Unique("named")
		policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{"CREATE", "UPDATE"},
						Rule:       admissionv1.Rule{APIGroups: []string{"rbac.authorization.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"rolebindings"}},
					},
				}}},
				Validations: []admissionv1.Validation{{Expression: "object.metadata.name != 'team' || !has(object.metadata.labels) || !('forbidden' in object.metadata.labels)"}},
			}}
		Expect(cluster.Admin.Create(ctx, policy)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, policy)).To(Succeed()) })
		binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{"Deny"}}}
		Expect(cluster.Admin.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, binding)).To(Succeed()) })
		probe := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "team", Labels: map[string]string{"forbidden": "x"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}}
		Eventually(func() bool {
			err := cluster.Admin.Create(ctx, probe.DeepCopy(), client.DryRunAll)
			return apierrors.IsInvalid(err)
		}).WithContext(ctx).Should(BeTrue())
		manifest := strings.Replace(bindingTo("ClusterRole", "edit"), `"name":"team"`, `"name":"team","labels":{"forbidden":"x"}`, 1)
		Expect(manifest).To(ContainSubstring("forbidden"))
		change(ctx, template.Name, only("team", manifest))
		Eventually(failuresOf).WithContext(ctx).WithArguments(ctx, template.Name).Should(Equal([]string{"FieldImmutable"}))
		_, now := valueOf(Default, ctx, old, roleBindings)
		Expect(now).To(Equal(uid))
	})

	It("does not stop the rollout if a quota has no space for another one", func(ctx context.Context) {
		template := newTemplate(framework.Unique("full"), only("team", bindingTo("ClusterRole", "edit")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Rollout.PauseAfterFailures = 1 })
		create(ctx, template)
		hostile := selectedBy(template.Name)
		createOpen(ctx, hostile)
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: hostile.Name, Name: "full"}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{"count/rolebindings.rbac.authorization.k8s.io": resource.MustParse("1")},
		}}
		Expect(cluster.Admin.Create(ctx, quota)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(quota), quota)).To(Succeed())
			g.Expect(quota.Status.Used).NotTo(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		var others []*corev1.Namespace
		for range 4 {
			o := selectedBy(template.Name)
			createOpen(ctx, o)
			others = append(others, o)
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("team", bindingTo("ClusterRole", "view"))(spec)
			spec.Rollout.RatePerSecond = 1
		})
		for _, o := range others {
			Eventually(func(g Gomega) {
				role, _ := valueOf(g, ctx, o, roleBindings, "roleRef", "name")
				g.Expect(role).To(Equal("view"))
			}).WithContext(ctx).WithTimeout(20 * time.Second).Should(Succeed())
		}
		expectReached(ctx, template.Name)
		Eventually(func() []string { return failuresOf(ctx, template.Name) }).WithContext(ctx).
			Should(Equal([]string{"FieldImmutable"}))
	})
})
