// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

var _ = Describe("Deletion protection", func() {
	It("is shown as not enforced, with a warning of the API server, unless it is", func(ctx context.Context) {
		const label = "nslifecycle.dev/deletion-protection"
		adminUser := newUser(plane.Admin.Config)
		namespace := makeNamespace(ctx, admin, "guarded")
		reader := newRestrictedUser(ctx, plane, unique("reader"), rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list"},
		})
		kubectl := func(args ...string) result {
			GinkgoHelper()
			done := adminUser.kubectl(ctx, nil, args...)
			Expect(done.code).To(BeZero(), done.stderr)
			return done
		}
		protection := filepath.Join(controlplane.Root(), "config", "protection")
		protect := func() string { return kubectl("label", "namespace", namespace.Name, label+"=enabled").stderr }
		unprotect := func() { kubectl("label", "namespace", namespace.Name, label+"-") }
		wide := func(of *user) string {
			GinkgoHelper()
			return rows(of.run(ctx, "list", namespace.Name, "-o", "wide").stdout)[namespace.Name]
		}

		By("warning of the label while no policy enforces it")
		Eventually(func(g Gomega) {
			unprotect() // Without a change, kubectl sends no request, and there is no warning.
			g.Expect(protect()).To(ContainSubstring("label " + label + " does not protect the namespace"))
		}).WithContext(ctx).Should(Succeed())
		Expect(kubectl("annotate", "namespace", namespace.Name, "other=x").stderr).To(BeEmpty())
		Expect(wide(adminUser)).To(ContainSubstring(" not enforced "))
		Expect(adminUser.run(ctx, "list", namespace.Name, "-o", "jsonpath={.items[0].deletionProtection}").stdout).
			To(Equal("NotEnforced"))
		Expect(adminUser.run(ctx, "explain", namespace.Name).stdout).To(ContainSubstring("Label " + label + ": not enforced"))
		unread := reader.run(ctx, "list", namespace.Name, "-o", "wide")
		Expect(rows(unread.stdout)[namespace.Name]).To(ContainSubstring(" <unknown> "))
		Expect(unread.stderr).To(ContainSubstring("Whether deletion protection is enforced is unknown"))

		By("enforcing the label")
		kubectl("apply", "-k", protection)
		DeferCleanup(func(ctx context.Context) {
			adminUser.kubectl(ctx, nil, "delete", "-k", protection, "--ignore-not-found")
		})
		Expect(wide(adminUser)).To(ContainSubstring(" yes "))
		Eventually(func(g Gomega) {
			unprotect()
			g.Expect(protect()).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())

		By("only warning of the deletion")
		kubectl("patch", "validatingadmissionpolicybinding", "protection", "--type=merge", `--patch={"spec":{"validationActions":["Warn"]}}`)
		Expect(wide(adminUser)).To(ContainSubstring(" not enforced "))
		Eventually(func(g Gomega) {
			unprotect()
			g.Expect(protect()).To(ContainSubstring("does not protect the namespace"))
		}).WithContext(ctx).Should(Succeed())
		unprotect()
	}, NodeTimeout(testTimeout))
})
