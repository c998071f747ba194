// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

var _ = Describe("delete", func() {
	It("shows the remaining objects until the namespace is deleted", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "delete")
		held := make([]*corev1.ConfigMap, 0, 3)
		for i := range 3 {
			held = append(held, makeConfigMap(ctx, admin, namespace.Name, fmt.Sprintf("held-%d", i), testFinalizer))
		}
		deleted := newUser(plane.Admin).start("delete", namespace.Name)
		Eventually(deleted.stdout).Should(gbytes.Say(`configmaps: 3 of \d remaining\n`))
		for i, remaining := range []string{"2", "1"} {
			release(ctx, admin, held[i])
			Eventually(deleted.stdout).Should(gbytes.Say(`configmaps: ` + remaining + ` of \d remaining\n`))
		}
		release(ctx, admin, held[2])
		finished := deleted.wait(ctx)
		Expect(finished.code).To(BeZero())
		Expect(finished.stdout).To(MatchRegexp(`namespace "` + namespace.Name + `" deleted after \S+\n$`))
		Expect(finished.stderr).To(BeEmpty())
		Expect(apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace))).To(BeTrue())
	}, NodeTimeout(testTimeout))

	It("prints the cause if there is no progress", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "stuck")
		held := makeConfigMap(ctx, admin, namespace.Name, "held", testFinalizer)
		DeferCleanup(func(ctx context.Context) { release(ctx, admin, held) })
		deleted := newUser(plane.Admin).run(ctx, "delete", namespace.Name, "--progress-deadline=2s", "--timeout=20s")
		Expect(deleted.stdout).To(MatchRegexp(`No progress for \d+s`))
		Expect(strings.Count(deleted.stdout, "No progress")).To(BeNumerically("<=", 2), "nine diagnoses have the same result")
		Expect(deleted.stdout).To(ContainSubstring(testFinalizer))
		Expect(deleted.stdout).To(ContainSubstring("kubectl nslifecycle explain " + namespace.Name))
		Expect(deleted.stderr).To(And(ContainSubstring("20s"), ContainSubstring(namespace.Name)))
		Expect(deleted.code).To(Equal(3))
	}, NodeTimeout(testTimeout))

	It("stops on Ctrl-C while the deletion continues, and can be run again", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "interrupted")
		held := makeConfigMap(ctx, admin, namespace.Name, "held", testFinalizer)
		adminUser := newUser(plane.Admin)
		deleted := adminUser.start("delete", namespace.Name, "--context=nslifecycle")
		Eventually(deleted.stdout).Should(gbytes.Say("configmaps: 1 of"))
		interrupt(deleted)
		finished := deleted.wait(ctx)
		Expect(finished.code).To(Equal(130))
		Expect(finished.stderr).To(And(HavePrefix("error: interrupted"),
			ContainSubstring("kubectl --context=nslifecycle wait --for=delete namespace/"+namespace.Name+" --timeout=5m")))
		Expect(get(ctx, admin, namespace.Name).DeletionTimestamp).NotTo(BeNil())

		again := adminUser.start("delete", namespace.Name)
		Eventually(again.stderr).Should(gbytes.Say(`Namespace "` + namespace.Name + `" has already been terminating`))
		release(ctx, admin, held)
		Expect(again.wait(ctx).code).To(BeZero())
	}, NodeTimeout(testTimeout))

	It("behaves like kubectl delete with --wait=false and --dry-run", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "no-wait")
		adminUser := newUser(plane.Admin)
		for strategy, suffix := range map[string]string{"client": " (dry run)", "server": " (server dry run)"} {
			tried := adminUser.run(ctx, "delete", namespace.Name, "--dry-run="+strategy)
			Expect(tried.code).To(BeZero())
			Expect(tried.stdout).To(Equal(`namespace "` + namespace.Name + `" deleted` + suffix + "\n"))
			Expect(get(ctx, admin, namespace.Name).DeletionTimestamp).To(BeNil())
		}
		deleted := adminUser.run(ctx, "delete", namespace.Name, "--wait=false")
		Expect(deleted.stdout).To(Equal(`namespace "` + namespace.Name + `" deleted` + "\n"))
		Eventually(func() string {
			return adminUser.run(ctx, "delete", namespace.Name, "--wait=false").stderr
		}).WithContext(ctx).Should(Equal(`error: namespaces "` + namespace.Name + `" not found` + "\n"))
		Expect(adminUser.run(ctx, "delete", namespace.Name, "--ignore-not-found").code).To(BeZero())
	}, NodeTimeout(testTimeout))

	It("refuses to delete system namespaces", func(ctx context.Context) {
		adminUser := newUser(bare.Admin)
		for _, name := range []string{"kube-system", "kube-public", "kube-node-lease", "default"} {
			refused := adminUser.run(ctx, "delete", name)
			Expect(refused.code).To(Equal(1))
			Expect(refused.stderr).To(ContainSubstring("system namespace"))
		}
		Expect(get(ctx, bareAdmin, "kube-public").DeletionTimestamp).To(BeNil())
	}, NodeTimeout(testTimeout))

	It("prints how to allow the deletion of a protected namespace", func(ctx context.Context) {
		_, err := plane.Kubectl(ctx, plane.Admin, "apply", "-k", filepath.Join(controlplane.Root(), "config", "protection"))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := plane.Kubectl(ctx, plane.Admin, "delete", "-k", filepath.Join(controlplane.Root(), "config", "protection"))
			Expect(err).NotTo(HaveOccurred())
		})
		namespace := makeNamespace(ctx, admin, "protected")
		_, err = plane.Kubectl(ctx, plane.Admin, "label", "namespace", namespace.Name, "nslifecycle.dev/deletion-protection=enabled")
		Expect(err).NotTo(HaveOccurred())
		adminUser := newUser(plane.Admin)
		removal := "kubectl label namespace " + namespace.Name + " nslifecycle.dev/deletion-protection-"
		Eventually(func() string {
			return adminUser.run(ctx, "delete", namespace.Name, "--dry-run=server").stderr
		}).WithContext(ctx).Should(HaveSuffix(" " + removal + "\n"))
		refused := adminUser.run(ctx, "delete", namespace.Name)
		Expect(refused.code).To(Equal(1))
		Expect(refused.stderr).To(And(HavePrefix(`error: namespace "`+namespace.Name+`" was not deleted`),
			ContainSubstring("label nslifecycle.dev/deletion-protection "), HaveSuffix(" "+removal+"\n")))
		Expect(adminUser.run(ctx, "list", "-o", "wide", "-l", "nslifecycle.dev/deletion-protection").stdout).To(MatchRegexp(`yes +<never>`))

		_, err = plane.Kubectl(ctx, plane.Admin, strings.Fields(removal)[1:]...)
		Expect(err).NotTo(HaveOccurred())
		Expect(adminUser.run(ctx, "delete", namespace.Name).code).To(BeZero())
	}, NodeTimeout(testTimeout))

	It("shows the conditions of the Namespace if its content cannot be read", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "unreadable")
		held := makeConfigMap(ctx, admin, namespace.Name, "held", testFinalizer)
		owner := newRestrictedUser(ctx, plane, "owner", rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "delete"},
		})
		deleted := owner.start("delete", namespace.Name)
		Eventually(deleted.stderr).Should(gbytes.Say("Warning: .*" + namespace.Name))
		Eventually(deleted.stdout).Should(gbytes.Say("waiting for 1 configmaps"))
		release(ctx, admin, held)
		Expect(deleted.wait(ctx).code).To(BeZero())
	}, NodeTimeout(testTimeout))
})

// interrupt sends SIGINT, as Ctrl-C does.
func interrupt(r *running) {
	GinkgoHelper()
	Expect(r.command.Process.Signal(syscall.SIGINT)).To(Succeed())
}
