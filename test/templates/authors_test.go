// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

const account = "team-furnisher"

func makeTemplate(name string, copies ...v1alpha1.TemplateCopy) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metaOf(name), Spec: v1alpha1.NamespaceTemplateSpec{
		ServiceAccountName: account,
		Objects: []v1alpha1.TemplateObject{{
			Name: "config", Template: &runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"}}`),
			},
		}},
	}}
	for i, source := range copies {
		template.Spec.Objects = append(template.Spec.Objects, v1alpha1.TemplateObject{
			Name: fmt.Sprintf("copy%d", i), Copy: &source,
		})
	}
	return template
}

func copyOf(kind, namespace, name string) v1alpha1.TemplateCopy {
	return v1alpha1.TemplateCopy{APIVersion: "v1", Kind: kind, Namespace: namespace, Name: name}
}

var _ = Describe("The author of a template", func() {
	// makeAuthor returns a user who can write templates, and grants the rules in a namespace.
	makeAuthor := func(ctx context.Context, namespace string, rules ...rbacv1.PolicyRule) (string, *framework.User) {
		GinkgoHelper()
		name := framework.Unique("author")
		author := cluster.AddUserWithRules(ctx, name, rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group},
			Resources: []string{"namespacetemplates", "namespacetemplates/status"}, Verbs: []string{"*"},
		})
		if len(rules) > 0 {
			meta := metaOf(name)
			meta.Namespace = namespace
			Expect(cluster.Admin.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules})).To(Succeed())
			Expect(cluster.Admin.Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
			})).To(Succeed())
		}
		return name, author
	}
	impersonate := func(group, verb string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups: []string{group}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{account},
			Verbs: []string{verb},
		}
	}
	BeForbidden := func(texts ...string) OmegaMatcher { return BeForbiddenBy(v1alpha1.PolicyTemplateAuthors, texts...) }
	eventually := func(do func() error, matcher OmegaMatcher) {
		GinkgoHelper()
		Eventually(do).Should(matcher)
	}

	BeforeEach(func(ctx context.Context) { publish(ctx) }, NodeTimeout(5*time.Minute))

	It("must be allowed to impersonate its ServiceAccount", func(ctx context.Context) {
		create := func(_ string, author *framework.User) func() error {
			return func() error { return author.Create(ctx, makeTemplate("authored"), client.DryRunAll) }
		}
		eventually(create(makeAuthor(ctx, "")),
			BeForbidden(`impersonate ServiceAccount "nslifecycle-system/team-furnisher"`, `NamespaceTemplate "authored"`))
		eventually(create(makeAuthor(ctx, controlplane.SystemNamespace, impersonate("", "impersonate"))), Succeed())

		By("having only the verb of constrained impersonation")
		name, author := makeAuthor(ctx, controlplane.SystemNamespace,
			impersonate("authentication.k8s.io", "impersonate:serviceaccount"))
		eventually(create(name, author), BeForbidden("impersonate"))
		Consistently(create(name, author)).Should(BeForbidden("impersonate"))

		By("having the permission in another namespace, or for another ServiceAccount")
		name, author = makeAuthor(ctx, "default", impersonate("", "impersonate"))
		eventually(create(name, author), BeForbidden("impersonate"))
		Consistently(create(name, author)).Should(BeForbidden("impersonate"))
		name, author = makeAuthor(ctx, controlplane.SystemNamespace, impersonate("", "impersonate"))
		eventually(create(name, author), Succeed())
		other := makeTemplate("authored")
		other.Spec.ServiceAccountName = "controller-manager"
		Expect(author.Create(ctx, other)).To(BeForbidden("nslifecycle-system/controller-manager"))
	}, SpecTimeout(5*time.Minute))

	It("is checked in an update only if the spec changes", func(ctx context.Context) {
		template := makeTemplate(framework.Unique("updated"))
		Expect(cluster.Admin.Create(ctx, template)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, template)).To(Succeed()) })
		_, author := makeAuthor(ctx, "")
		template.Labels = map[string]string{"note": "x"}
		eventually(func() error { return author.Update(ctx, template.DeepCopy()) }, Succeed())
		Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), template)).To(Succeed())
		template.Status.Revision = "1"
		Expect(author.Status().Update(ctx, template)).To(Succeed())
		template.Spec.ExistingNamespaces = true
		Expect(author.Update(ctx, template)).To(BeForbidden("impersonate"))
	}, SpecTimeout(5*time.Minute))

	It("must be allowed to get the sources of the copies", func(ctx context.Context) {
		var copies []v1alpha1.TemplateCopy
		for i := range 16 {
			copies = append(copies, copyOf([]string{"Secret", "ConfigMap"}[i%2], "default", fmt.Sprintf("source%d", i)))
		}
		get := func(resource string, names ...string) rbacv1.PolicyRule {
			return rbacv1.PolicyRule{
				APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{"get"},
			}
		}
		rules := []rbacv1.PolicyRule{get("secrets"), get("configmaps")}
		for i := range 15 {
			rules[i%2].ResourceNames = append(rules[i%2].ResourceNames, fmt.Sprintf("source%d", i))
		}
		name, author := makeAuthor(ctx, "default", rules...)
		allow(ctx, name, "impersonate", "", "serviceaccounts", account)
		eventually(func() error {
			return author.Create(ctx, makeTemplate("copies", copies[:15]...), client.DryRunAll)
		}, Succeed())
		Expect(author.Create(ctx, makeTemplate("copies", copies...))).
			To(BeForbidden(`get ConfigMap "default/source15"`, `NamespaceTemplate "copies"`))
		Expect(author.Create(ctx, makeTemplate("copies", copyOf("Secret", "kube-system", "source0")))).
			To(BeForbidden(`get Secret "kube-system/source0"`))
		By("changing one of the sources")
		template := makeTemplate(framework.Unique("copies"), copies[:1]...)
		Expect(author.Create(ctx, template)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, template)).To(Succeed()) })
		template.Spec.Objects[1].Copy.Kind = "ConfigMap"
		Expect(author.Update(ctx, template)).To(BeForbidden(`get ConfigMap "default/source0"`))
		By("exceeding the limit")
		Expect(cluster.Admin.Create(ctx, makeTemplate("copies", append(copies, copies[0])...))).
			To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring("at most 16 copies"))))
	}, SpecTimeout(5*time.Minute))

	It("cannot write a template while no set exists", func(ctx context.Context) {
		set := cluster.EffectiveSet(Default, ctx)
		Expect(cluster.Admin.Delete(ctx, set)).To(Succeed())
		eventually(func() error { return cluster.Admin.Create(ctx, makeTemplate("early"), client.DryRunAll) },
			MatchError(ContainSubstring("nslifecycle-template-authors")))
		publishSet(ctx, func(set *v1alpha1.NamespaceInitializerSet) { set.SystemNamespace = "" })
		eventually(func() error { return cluster.Admin.Create(ctx, makeTemplate("early"), client.DryRunAll) },
			BeForbidden("wait until the operator is running"))
	}, SpecTimeout(5*time.Minute))

	It("cannot write a pattern that is not a regular expression", func(ctx context.Context) {
		template := makeTemplate("pattern")
		template.Spec.Parameters = []v1alpha1.TemplateParameter{{Name: "owner", Pattern: "("}}
		Expect(cluster.Admin.Create(ctx, template, client.DryRunAll)).
			To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring("pattern"))))
		template.Spec.Parameters[0].Pattern = "(a|b)?"
		Expect(cluster.Admin.Create(ctx, template, client.DryRunAll)).To(Succeed())
	}, SpecTimeout(5*time.Minute))
})
