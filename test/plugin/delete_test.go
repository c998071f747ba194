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
	It("shows what remains until the namespace is gone", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "delete")
		held := make([]*corev1.ConfigMap, 0, 3)
		for i := range 3 {
			held = append(held, makeConfigMap(ctx, admin, namespace.Name, fmt.Sprintf("held-%d", i), testFinalizer))
		}
		deleted := newUser(plane.Admin).start("delete", namespace.Name)
		Eventually(deleted.stdout).Should(gbytes.Say(`configmaps: 3 of \d left\n`))
		for i, left := range []string{"2", "1"} {
			release(ctx, admin, held[i])
			Eventually(deleted.stdout).Should(gbytes.Say(`configmaps: ` + left + ` of \d left\n`))
		}
		release(ctx, admin, held[2])
		ended := deleted.wait(ctx)
		Expect(ended.code).To(BeZero())
		Expect(ended.stdout).To(MatchRegexp(`namespace "` + namespace.Name + `" deleted after \S+\n$`))
		Expect(ended.stderr).To(BeEmpty())
		Expect(apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace))).To(BeTrue())
	}, NodeTimeout(testTimeout))

	It("names what holds it when nothing moves", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "stuck")
		held := makeConfigMap(ctx, admin, namespace.Name, "held", testFinalizer)
		DeferCleanup(func(ctx context.Context) { release(ctx, admin, held) })
		deleted := newUser(plane.Admin).run(ctx, "delete", namespace.Name, "--progress-deadline=2s", "--timeout=12s")
		Expect(deleted.stdout).To(MatchRegexp(`Nothing has moved for \d+s`))
		Expect(deleted.stdout).To(ContainSubstring(testFinalizer))
		Expect(deleted.stdout).To(ContainSubstring("kubectl nslifecycle explain " + namespace.Name))
		Expect(deleted.stderr).To(ContainSubstring("was not gone within 12s, and its deletion goes on"))
		Expect(deleted.code).To(Equal(3))
	}, NodeTimeout(testTimeout))

	It("leaves the deletion running on Ctrl-C, and shows it again", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "interrupted")
		held := makeConfigMap(ctx, admin, namespace.Name, "held", testFinalizer)
		somebody := newUser(plane.Admin)
		deleted := somebody.start("delete", namespace.Name)
		Eventually(deleted.stdout).Should(gbytes.Say("configmaps: 1 of"))
		interrupt(deleted)
		ended := deleted.wait(ctx)
		Expect(ended.code).To(Equal(130))
		Expect(ended.stderr).To(ContainSubstring(`interrupted: the deletion of namespace "` + namespace.Name + `" goes on`))
		Expect(get(ctx, admin, namespace.Name).DeletionTimestamp).NotTo(BeNil())

		again := somebody.start("delete", namespace.Name)
		Eventually(again.stderr).Should(gbytes.Say("is being deleted already"))
		release(ctx, admin, held)
		Expect(again.wait(ctx).code).To(BeZero())
	}, NodeTimeout(testTimeout))

	It("does as kubectl does without waiting, and in a dry run", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "no-wait")
		somebody := newUser(plane.Admin)
		for strategy, suffix := range map[string]string{"client": " (dry run)", "server": " (server dry run)"} {
			tried := somebody.run(ctx, "delete", namespace.Name, "--dry-run="+strategy)
			Expect(tried.code).To(BeZero())
			Expect(tried.stdout).To(Equal(`namespace "` + namespace.Name + `" deleted` + suffix + "\n"))
			Expect(get(ctx, admin, namespace.Name).DeletionTimestamp).To(BeNil())
		}
		deleted := somebody.run(ctx, "delete", namespace.Name, "--wait=false")
		Expect(deleted.stdout).To(Equal(`namespace "` + namespace.Name + `" deleted` + "\n"))
		Eventually(func() string {
			return somebody.run(ctx, "delete", namespace.Name, "--wait=false").stderr
		}).WithContext(ctx).Should(Equal(`error: namespaces "` + namespace.Name + `" not found` + "\n"))
		Expect(somebody.run(ctx, "delete", namespace.Name, "--ignore-not-found").code).To(BeZero())
	}, NodeTimeout(testTimeout))

	It("refuses what the cluster cannot do without", func(ctx context.Context) {
		somebody := newUser(bare.Admin)
		for _, name := range []string{"kube-system", "kube-public", "kube-node-lease", "default"} {
			refused := somebody.run(ctx, "delete", name)
			Expect(refused.code).To(Equal(1))
			Expect(refused.stderr).To(ContainSubstring("belongs to the cluster itself"))
		}
		Expect(get(ctx, bareAdmin, "kube-public").DeletionTimestamp).To(BeNil())
	}, NodeTimeout(testTimeout))

	It("says how a namespace that is protected can be deleted after all", func(ctx context.Context) {
		_, err := plane.Kubectl(ctx, plane.Admin, "apply", "-k", filepath.Join(controlplane.Root(), "config", "protection"))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := plane.Kubectl(ctx, plane.Admin, "delete", "-k", filepath.Join(controlplane.Root(), "config", "protection"))
			Expect(err).NotTo(HaveOccurred())
		})
		namespace := makeNamespace(ctx, admin, "protected")
		_, err = plane.Kubectl(ctx, plane.Admin, "label", "namespace", namespace.Name, "nslifecycle.dev/deletion-protection=enabled")
		Expect(err).NotTo(HaveOccurred())
		somebody := newUser(plane.Admin)
		removal := "kubectl label namespace " + namespace.Name + " nslifecycle.dev/deletion-protection-"
		Eventually(func() string {
			return somebody.run(ctx, "delete", namespace.Name, "--dry-run=server").stderr
		}).WithContext(ctx).Should(HaveSuffix("run first: " + removal + "\n"))
		refused := somebody.run(ctx, "delete", namespace.Name)
		Expect(refused.code).To(Equal(1))
		Expect(refused.stderr).To(Equal(`error: namespace "` + namespace.Name + `" is protected from deletion by label ` +
			"nslifecycle.dev/deletion-protection, and was not deleted; if it is to go with all its content, run first: " + removal + "\n"))
		Expect(somebody.run(ctx, "list", "-o", "wide", "-l", "nslifecycle.dev/deletion-protection").stdout).To(MatchRegexp(`yes +<never>`))

		_, err = plane.Kubectl(ctx, plane.Admin, strings.Fields(removal)[1:]...)
		Expect(err).NotTo(HaveOccurred())
		Expect(somebody.run(ctx, "delete", namespace.Name).code).To(BeZero())
	}, NodeTimeout(testTimeout))

	It("goes by the conditions where the content cannot be read", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "few-rights")
		held := makeConfigMap(ctx, admin, namespace.Name, "held", testFinalizer)
		owner := newRestrictedUser(ctx, plane, "owner", rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "delete"},
		})
		deleted := owner.start("delete", namespace.Name)
		Eventually(deleted.stderr).Should(gbytes.Say("Warning: Not everything in namespace .* can be counted"))
		Eventually(deleted.stdout).Should(gbytes.Say("waits for 1 configmaps"))
		release(ctx, admin, held)
		Expect(deleted.wait(ctx).code).To(BeZero())
	}, NodeTimeout(testTimeout))
})

// interrupt is Ctrl-C.
func interrupt(r *running) {
	GinkgoHelper()
	Expect(r.command.Process.Signal(syscall.SIGINT)).To(Succeed())
}
