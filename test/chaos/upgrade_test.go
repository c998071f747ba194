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

// upgradeFrom names the version to upgrade from, as git knows it.
const upgradeFrom = "UPGRADE_FROM"

var _ = Describe("An upgrade from another version", func() {
	It("takes over the namespaces that are on their way", func(ctx context.Context) {
		from := os.Getenv(upgradeFrom)
		if from == "" {
			Skip("there is no version to upgrade from: set " + upgradeFrom + " to a tag, or run `make test-upgrade`")
		}
		old := filepath.Join(GinkgoT().TempDir(), "old")
		git(ctx, "worktree", "add", "--detach", old, from)
		DeferCleanup(func(ctx context.Context) { git(ctx, "worktree", "remove", "--force", old) })

		By("installing the other version in a control plane of its own")
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

		By("having one namespace at each stage")
		Expect(clusterAdmin.Create(ctx, wrappers.MakeConfiguration("upgrade").Initializers(ownerInitializer).Obj())).To(Succeed())
		Eventually(func(g Gomega) {
			probe := wrappers.MakeNamespace("probe").Obj()
			g.Expect(clusterAdmin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			g.Expect(probe.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
		stages := map[string]*corev1.Namespace{}
		for _, stage := range []string{"waiting", "ready", "ending"} {
			stages[stage] = wrappers.MakeNamespace(stage).Obj()
			Expect(clusterAdmin.Create(ctx, stages[stage])).To(Succeed())
		}
		initialized := func(stage string, status corev1.ConditionStatus, reason string) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				g.Expect(clusterAdmin.Get(ctx, client.ObjectKey{Name: stage}, stages[stage])).To(Succeed())
				g.Expect(stages[stage]).To(HaveCondition(v1alpha1.ConditionInitializing, status, reason))
			}).WithContext(ctx).Should(Succeed())
		}
		for _, stage := range []string{"ready", "ending"} {
			annotate(ctx, cluster, stage)
			initialized(stage, corev1.ConditionFalse, v1alpha1.ReasonCompleted)
		}
		held := wrappers.MakeConfigMap("ending", "held")
		held.Finalizers = []string{"example.com/held"}
		Expect(clusterAdmin.Create(ctx, held)).To(Succeed())
		Expect(clusterAdmin.Delete(ctx, stages["ending"])).To(Succeed())
		initialized("waiting", corev1.ConditionTrue, v1alpha1.ReasonPending)
		before := stages["waiting"].DeepCopy()

		By("upgrading: first the objects, then the managers, as a Deployment does")
		apply(controlplane.Root())
		runManager(binary, config, "--leader-elect")
		oldManager.Terminate()
		Eventually(oldManager).WithContext(ctx).Should(gexec.Exit(0))

		By("each going on from where it was")
		Expect(clusterAdmin.Get(ctx, client.ObjectKey{Name: "waiting"}, stages["waiting"])).To(Succeed())
		Expect(stages["waiting"].Annotations).To(Equal(before.Annotations))
		user, err := cluster.User("somebody")
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.Kubectl(ctx, cluster.Admin, "create", "clusterrolebinding", "somebody", "--clusterrole=edit", "--user=somebody")
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.Kubectl(ctx, user, "--namespace=waiting", "create", "configmap", "early")
		Expect(err).To(MatchError(ContainSubstring("is being initialized")))
		annotate(ctx, cluster, "waiting")
		initialized("waiting", corev1.ConditionFalse, v1alpha1.ReasonCompleted)
		initialized("ready", corev1.ConditionFalse, v1alpha1.ReasonCompleted)
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

// annotate takes the only initializer off the list, as an administrator.
func annotate(ctx context.Context, cluster *controlplane.ControlPlane, name string) {
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
