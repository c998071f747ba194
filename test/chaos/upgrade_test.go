// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	. "github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// upgradeFrom is the environment variable that contains the Git revision to upgrade from.
const upgradeFrom = "UPGRADE_FROM"

var _ = Describe("An upgrade from another version", func() {
	It("preserves the initialization and finalization of existing namespaces", func(ctx context.Context) {
		from := os.Getenv(upgradeFrom)
		if from == "" {
			Skip("no version to upgrade from: set " + upgradeFrom + " to a tag, or run `make test-upgrade`")
		}
		old := filepath.Join(GinkgoT().TempDir(), "old")
		git(ctx, "worktree", "add", "--detach", old, from)
		DeferCleanup(func(ctx context.Context) { git(ctx, "worktree", "remove", "--force", old) })

		By("installing the other version in a dedicated control plane")
		cluster, err := controlplane.Start(ctx)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(cluster.Stop()).To(Succeed()) })
		clusterAdmin, err := controlplane.NewClient(cluster.Admin)
		Expect(err).NotTo(HaveOccurred())
		apply := func(root string) {
			GinkgoHelper()
			_, err := cluster.Kubectl(ctx, cluster.Admin, "apply", "-k", filepath.Join(root, "config", "default"))
			Expect(err).NotTo(HaveOccurred())
		}
		apply(old)
		Expect(cluster.AggregateClusterRoles(ctx)).To(Succeed())
		oldBinary := filepath.Join(cluster.Dir, "old-manager")
		Expect(controlplane.Build(ctx, old, controlplane.ManagerProgram, oldBinary)).To(Succeed())
		config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		oldManager := runManager(oldBinary, config, "--leader-elect")

		By("creating one namespace at each stage")
		Expect(clusterAdmin.Create(ctx, wrappers.MakeConfiguration("upgrade").Initializers(ownerInitializer).Obj())).To(Succeed())
		Eventually(func(g Gomega) {
			probe := wrappers.MakeNamespace("probe").Obj()
			g.Expect(clusterAdmin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			g.Expect(probe.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
		stages := map[string]*corev1.Namespace{}
		for _, stage := range []string{"waiting", "ready", "terminating"} {
			stages[stage] = wrappers.MakeNamespace(stage).Obj()
			Expect(clusterAdmin.Create(ctx, stages[stage])).To(Succeed())
		}
		expectInitializing := func(stage string, status corev1.ConditionStatus, reason string) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				g.Expect(clusterAdmin.Get(ctx, client.ObjectKey{Name: stage}, stages[stage])).To(Succeed())
				g.Expect(stages[stage]).To(HaveCondition(v1alpha1.ConditionInitializing, status, reason))
			}).WithContext(ctx).Should(Succeed())
		}
		for _, stage := range []string{"ready", "terminating"} {
			emptyPendingList(ctx, cluster, stage)
			expectInitializing(stage, corev1.ConditionFalse, v1alpha1.ReasonCompleted)
		}
		held := wrappers.MakeConfigMap("terminating", "held")
		held.Finalizers = []string{"example.com/held"}
		Expect(clusterAdmin.Create(ctx, held)).To(Succeed())
		Expect(clusterAdmin.Delete(ctx, stages["terminating"])).To(Succeed())
		expectInitializing("waiting", corev1.ConditionTrue, v1alpha1.ReasonPending)
		before := stages["waiting"].DeepCopy()

		By("upgrading the objects and then replacing the manager, as a Deployment does")
		apply(controlplane.Root())
		runManager(binary, config, controlplane.WithoutAdmission, "--leader-elect")
		_, err = cluster.StartAdmission(ctx)
		Expect(err).NotTo(HaveOccurred())
		oldManager.Terminate()
		Eventually(oldManager).WithContext(ctx).Should(gexec.Exit(0))

		By("checking that each namespace continues from its stage")
		Expect(clusterAdmin.Get(ctx, client.ObjectKey{Name: "waiting"}, stages["waiting"])).To(Succeed())
		Expect(stages["waiting"].Annotations).To(Equal(before.Annotations))
		user, err := cluster.User("developer")
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.Kubectl(ctx, cluster.Admin, "create", "clusterrolebinding", "developer", "--clusterrole=edit", "--user=developer")
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.Kubectl(ctx, user, "--namespace=waiting", "create", "configmap", "early")
		Expect(err).To(MatchError(ContainSubstring("is being initialized")))
		emptyPendingList(ctx, cluster, "waiting")
		expectInitializing("waiting", corev1.ConditionFalse, v1alpha1.ReasonCompleted)
		expectInitializing("ready", corev1.ConditionFalse, v1alpha1.ReasonCompleted)
		Expect(clusterAdmin.Get(ctx, client.ObjectKeyFromObject(held), held)).To(Succeed())
		held.Finalizers = nil
		Expect(clusterAdmin.Update(ctx, held)).To(Succeed())
		for _, stage := range []string{"waiting", "ready"} {
			Expect(clusterAdmin.Delete(ctx, stages[stage])).To(Succeed())
		}
		for stage := range stages {
			Eventually(func() bool {
				return apierrors.IsNotFound(clusterAdmin.Get(ctx, client.ObjectKey{Name: stage}, &corev1.Namespace{}))
			}).WithContext(ctx).Should(BeTrue(), stage)
		}
	}, SpecTimeout(10*time.Minute))
})

// emptyPendingList empties the pending list of a namespace as an administrator.
func emptyPendingList(ctx context.Context, cluster *controlplane.ControlPlane, name string) {
	GinkgoHelper()
	_, err := cluster.Kubectl(ctx, cluster.Admin, "annotate", "--overwrite", "namespace", name, v1alpha1.AnnotationPendingInitializers+"=")
	Expect(err).NotTo(HaveOccurred())
}

func git(ctx context.Context, arguments ...string) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "git", arguments...)
	command.Dir = controlplane.Root()
	output, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
}
