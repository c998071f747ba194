// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// authorsOfConfinements are specs about the policy initializer-authors.
func authorsOfConfinements() {
	account := func(number int) v1alpha1.Subject {
		return v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Namespace: "argocd", Name: fmt.Sprintf("account-%d", number)}
	}
	// makeConfined returns a configuration with the first accounts as subjects, 16 of each initializer.
	makeConfined := func(confinement v1alpha1.InitializerConfinement, accounts int) *v1alpha1.NamespaceInitializerConfiguration {
		configuration := wrappers.MakeConfiguration(framework.Unique("confining"))
		for first := 0; first < accounts; first += 16 {
			settings := v1alpha1.InitializerSettings{Confinement: confinement}
			for number := first; number < min(first+16, accounts); number++ {
				settings.Subjects = append(settings.Subjects, account(number))
			}
			configuration.Initializer(fmt.Sprintf("i%d.test.example.com", first), settings)
		}
		return configuration.Obj()
	}
	const none, confined = v1alpha1.ConfinementNone, v1alpha1.ConfinementInitializingNamespaces
	editConfigurations := rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"namespaceinitializerconfigurations"}, Verbs: []string{"*"},
	}
	BeForbidden := func(number int) OmegaMatcher {
		return BeForbiddenBy(internalv1alpha1.PolicyInitializerAuthors,
			fmt.Sprintf(`impersonate ServiceAccount "argocd/account-%d"`, number))
	}

	It("must be allowed to impersonate each ServiceAccount that the request adds", func(ctx context.Context) {
		editor := cluster.AddUserWithRules(ctx, framework.Unique("editor"), editConfigurations)
		Expect(editor.Create(ctx, makeConfined(none, 2), client.DryRunAll)).To(Succeed())
		Eventually(func() error { return editor.Create(ctx, makeConfined(confined, 2), client.DryRunAll) }).WithContext(ctx).
			Should(BeForbidden(0))

		By("changing a configuration with a confined ServiceAccount")
		existing := makeConfined(confined, 1)
		existing.Initializers = append(existing.Initializers, wrappers.MakeConfiguration("").Initializer("other.test.example.com",
			v1alpha1.InitializerSettings{Subjects: []v1alpha1.Subject{account(1)}}).Obj().Initializers...)
		cluster.Admin.Creates(ctx, existing)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, existing)).To(Succeed()) })
		update := func(change func(*v1alpha1.NamespaceInitializerConfiguration)) error {
			changed := existing.DeepCopy()
			change(changed)
			return editor.Update(ctx, changed, client.DryRunAll)
		}
		Expect(update(func(c *v1alpha1.NamespaceInitializerConfiguration) { c.Initializers[0].TimeoutSeconds = new(int32(30)) })).
			To(Succeed())
		Expect(update(func(c *v1alpha1.NamespaceInitializerConfiguration) { c.Initializers[1].Confinement = confined })).
			To(BeForbidden(1))
		Expect(update(func(c *v1alpha1.NamespaceInitializerConfiguration) {
			c.Initializers[0].Subjects = append(c.Initializers[0].Subjects, account(2))
		})).To(BeForbidden(2))

		By("having the permission")
		permitted := cluster.AddUserWithRules(ctx, framework.Unique("editor"), editConfigurations, rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"impersonate"},
			ResourceNames: []string{"account-0", "account-1"},
		})
		Expect(permitted.Create(ctx, makeConfined(confined, 2), client.DryRunAll)).To(Succeed())
		Expect(permitted.Create(ctx, makeConfined(confined, 3), client.DryRunAll)).To(BeForbidden(2))
	})

	It("can add 16 ServiceAccounts in one request, and 128 in all", func(ctx context.Context) {
		tooMany := BeDeniedBy(internalv1alpha1.PolicyInitializerAuthors, "at most 128 confined subjects", "at most 16")
		configuration := makeConfined(confined, 16)
		Eventually(func() error { return cluster.Admin.Create(ctx, makeConfined(confined, 17), client.DryRunAll) }).WithContext(ctx).
			Should(tooMany)
		cluster.Admin.Creates(ctx, configuration)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, configuration)).To(Succeed()) })
		for accounts := 32; accounts <= 128; accounts += 16 {
			configuration.Initializers = makeConfined(confined, accounts).Initializers
			cluster.Admin.Updates(ctx, configuration)
		}
		configuration.Initializers = makeConfined(confined, 129).Initializers
		Expect(cluster.Admin.Update(ctx, configuration, client.DryRunAll)).To(tooMany)
	})
}
