// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	rbacv1 "k8s.io/api/rbac/v1"
)

var _ = Describe("list, like kubectl get", func() {
	It("prints names and templates, of all or of some namespaces", func(ctx context.Context) {
		one, two := makeNamespace(ctx, bareAdmin, "output"), makeNamespace(ctx, bareAdmin, "output")
		adminUser := newUser(bare.Admin.Config)
		for _, output := range []struct{ format, want string }{
			{"name", "namespace/" + one.Name + "\nnamespace/" + two.Name + "\n"},
			{"jsonpath={.items[*].metadata.name}", one.Name + " " + two.Name},
			{"go-template={{range .items}}{{.state}},{{end}}", "Initialized,Initialized,"},
		} {
			listed := adminUser.run(ctx, "list", "-l", "test=output", "-o", output.format)
			Expect(listed.code).To(BeZero(), listed.stderr)
			Expect(strings.Join(strings.Fields(listed.stdout), " ")).To(
				Equal(strings.Join(strings.Fields(output.want), " ")), output.format)
		}
		Expect(adminUser.run(ctx, "list", "-o", "jsonpath={").stderr).To(HavePrefix("error: "))

		By("listing named namespaces, with permission to get them")
		getter := newRestrictedUser(ctx, bare, unique("getter"), rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"},
		})
		listed := getter.run(ctx, "list", two.Name, "missing", "--no-headers")
		Expect(listed.code).To(Equal(1))
		Expect(rows(listed.stdout)).To(And(HaveLen(1), HaveKey(two.Name)))
		Expect(listed.stderr).To(Equal("Error from server (NotFound): namespaces \"missing\" not found\n"))
	}, NodeTimeout(testTimeout))

	It("watches", func(ctx context.Context) {
		first := makeNamespace(ctx, bareAdmin, "watched")
		watching := newUser(bare.Admin.Config).start("list", "-l", "test=watched", "--watch")
		Eventually(watching.stdout).WithContext(ctx).Should(gbytes.Say(`NAME +STATE .*\n` + first.Name + ` +Initialized `))
		second := makeNamespace(ctx, bareAdmin, "watched")
		Eventually(watching.stdout).WithContext(ctx).Should(gbytes.Say(second.Name + ` +Initialized `))
		bareAdmin.Deletes(ctx, first)
		Eventually(watching.stdout).WithContext(ctx).Should(gbytes.Say(first.Name + ` +Terminating `))
		Expect(strings.Count(string(watching.stdout.Contents()), "NAME")).To(Equal(1))
		interrupt(watching)
		Expect(watching.wait(ctx).code).To(Equal(130))
		missing := newUser(bare.Admin.Config).run(ctx, "list", "missing", "--watch")
		Expect(missing.stderr).To(Equal("Error from server (NotFound): namespaces \"missing\" not found\n"))
	}, NodeTimeout(testTimeout))
})
