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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var (
	// plane is a control plane with the operator. bare has no controllers, so nothing deletes the
	// content of its namespaces.
	plane, bare *controlplane.ControlPlane
	manager     *controlplane.Manager
	// admin and bareAdmin are members of system:masters.
	admin, bareAdmin client.Client
	// bin is a directory with the plugin, the link for completion, and kubectl.
	bin string
)

func TestPlugin(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Plugin")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()

	cluster, empty := framework.StartControlPlane(ctx), framework.StartControlPlane(ctx)
	plane, bare = cluster.ControlPlane, empty.ControlPlane
	admin, bareAdmin = cluster.Admin, empty.Admin
	bin = buildPlugin(ctx)
	Expect(plane.Install(ctx)).To(Succeed())
	Expect(plane.AggregateClusterRoles(ctx)).To(Succeed())
	var err error
	manager, err = plane.StartManager(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(manager.Stop()).To(Succeed()) })
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
