// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

var (
	// plane is a control plane with the operator. bare has no controllers, so nothing deletes the
	// content of its namespaces.
	plane, bare *framework.Cluster
	// admin and bareAdmin are members of system:masters.
	admin, bareAdmin *framework.User
	// bin is a directory with the plugin, the link for completion, and kubectl.
	bin string
)

func TestPlugin(t *testing.T) {
	framework.RunSuite(t, "Plugin")
}

var _ = BeforeSuite(func(ctx context.Context) {
	plane, bare = framework.Start(ctx), framework.StartControlPlane(ctx)
	admin, bareAdmin = plane.Admin, bare.Admin
	bin = buildPlugin(ctx)
	plane.Install(ctx, "default")
	plane.StartManager(ctx)
	Eventually(func(g Gomega) { plane.EffectiveSet(g, ctx) }).WithContext(ctx).Should(Succeed())
})

// buildPlugin builds the plugin and returns a directory for the PATH that contains it and kubectl.
func buildPlugin(ctx context.Context) string {
	GinkgoHelper()
	dir, err := os.MkdirTemp(plane.Dir, "bin-")
	Expect(err).NotTo(HaveOccurred())
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.PluginProgram, filepath.Join(dir, "kubectl-nslifecycle"))).
		To(Succeed())
	Expect(os.Symlink("kubectl-nslifecycle", filepath.Join(dir, "kubectl_complete-nslifecycle"))).To(Succeed())
	kubectl, err := exec.LookPath(plane.KubectlPath())
	Expect(err).NotTo(HaveOccurred())
	kubectl, err = filepath.Abs(kubectl)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.Symlink(kubectl, filepath.Join(dir, "kubectl"))).To(Succeed())
	return dir
}
