// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

var _ = Describe("explain", func() {
	var adminUser *user

	BeforeEach(func() { adminUser = newUser(bare.Admin) })

	It("reports an active namespace as healthy", func(ctx context.Context) {
		namespace := makeNamespace(ctx, bareAdmin, "active")
		explained := adminUser.run(ctx, "explain", namespace.Name)
		Expect(explained.code).To(Equal(0))
		Expect(explained.stdout).To(And(
			ContainSubstring("Namespace %s: Active for ", namespace.Name), MatchRegexp(`, healthy\n[^\n]+\n$`),
		))
		Expect(explained.stderr).To(BeEmpty())
	})

	It("reports a namespace whose deletion has just started as progressing", func(ctx context.Context) {
		namespace := makeNamespace(ctx, bareAdmin, "young")
		Expect(bareAdmin.Delete(ctx, namespace)).To(Succeed())
		explained := adminUser.run(ctx, "explain", namespace.Name)
		Expect(explained.code).To(Equal(0))
		Expect(explained.stdout).To(And(
			ContainSubstring("Terminating for "), MatchRegexp(`, progressing\n[^\n]+\n$`),
		))
	})

	It("explains why a namespace is stuck, as text and as JSON", func(ctx context.Context) {
		namespace := makeNamespace(ctx, bareAdmin, "stuck")
		held := makeConfigMap(ctx, bareAdmin, namespace.Name, "held", testFinalizer)
		DeferCleanup(release, bareAdmin, held)
		Expect(bareAdmin.Delete(ctx, held)).To(Succeed())
		Expect(bareAdmin.Delete(ctx, namespace)).To(Succeed())

		var explained result
		Eventually(func() int {
			explained = adminUser.run(ctx, "explain", namespace.Name, "--progress-deadline=1s", "--context=nslifecycle")
			return explained.code
		}).WithContext(ctx).Should(Equal(3))
		Expect(explained.stdout).To(And(
			ContainSubstring("Namespace %s: Terminating for ", namespace.Name), ContainSubstring(", blocked\n"),
			ContainSubstring("\n  Cause: FinalizerOwnerNotFound ("), ContainSubstring("Objects: configmaps/held\n"),
			ContainSubstring(testFinalizer),
			ContainSubstring("\n    kubectl nslifecycle --context=nslifecycle finalize %s --finalizer=%s\n", namespace.Name, testFinalizer),
			MatchRegexp(`\n  Lost if forced: \S+`),
		))
		Expect(explained.stderr).To(BeEmpty(), "a blocked namespace must not be reported as an error")

		explained = adminUser.run(ctx, "explain", namespace.Name, "--progress-deadline=1s", "--output=json")
		Expect(explained.code).To(Equal(3))
		var document struct {
			APIVersion, Kind string
			diagnosis.Diagnosis
		}
		Expect(json.Unmarshal([]byte(explained.stdout), &document)).To(Succeed())
		Expect(document.APIVersion).To(Equal("cli.nslifecycle.dev/v1alpha1"))
		Expect(document.Kind).To(Equal("Diagnosis"))
		Expect(document.Namespace).To(Equal(namespace.Name))
		Expect(document.UID).To(Equal(namespace.UID))
		Expect(document.Stage).To(Equal(diagnosis.StageTerminating))
		Expect(document.State).To(Equal(diagnosis.Blocked))
		Expect(document.Findings).NotTo(BeEmpty())
	})

	It("does not report progress if the content cannot be read", func(ctx context.Context) {
		namespace := makeNamespace(ctx, bareAdmin, "unreadable")
		Expect(bareAdmin.Delete(ctx, namespace)).To(Succeed())
		tenant := newRestrictedUser(ctx, bare, unique("tenant"), rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"},
		})
		explained := tenant.run(ctx, "explain", namespace.Name, "--progress-deadline=1h")
		Expect(explained.stdout).To(MatchRegexp(`^Namespace .*, unknown\n`))
		Expect(explained.stderr).To(MatchRegexp(`is incomplete: .*\bconfigmaps, .*: permission to list them is missing`))
		Expect(explained.code).To(Equal(1))
	})

	It("fails if the namespace does not exist", func(ctx context.Context) {
		Expect(adminUser.run(ctx, "explain", "missing")).To(Equal(
			result{code: 1, stderr: "error: namespace \"missing\" not found\n"}))
	})

	It("explains the current namespace, and all inactive namespaces with --all", func(ctx context.Context) {
		active := makeNamespace(ctx, bareAdmin, "context")
		terminating := makeNamespace(ctx, bareAdmin, "terminating")
		Expect(bareAdmin.Delete(ctx, terminating)).To(Succeed())
		Expect(adminUser.run(ctx, "explain", "-n", active.Name).stdout).To(
			HavePrefix("Namespace %s: Active", active.Name))
		all := adminUser.run(ctx, "explain", "--all")
		Expect(all.stdout).To(And(
			ContainSubstring("Namespace %s: Terminating", terminating.Name), Not(ContainSubstring(active.Name)),
		))
		both := adminUser.run(ctx, "explain", "--all", active.Name)
		Expect(both.code).To(Equal(1))
		Expect(both.stderr).To(And(ContainSubstring(active.Name), ContainSubstring("--all")))
	})

	It("prints the missing permission", func(ctx context.Context) {
		explained := newRestrictedUser(ctx, bare, unique("unprivileged")).run(ctx, "explain", "default")
		Expect(explained.code).To(Equal(1))
		Expect(explained.stdout).To(BeEmpty())
		Expect(explained.stderr).To(And(HavePrefix("error: "), ContainSubstring("cannot get resource \"namespaces\"")))
	})
})
