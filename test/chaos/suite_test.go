// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/initializers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// injected is the initializers annotation that each new namespace must have.
const injected = policyInitializer + "," + ownerInitializer

const (
	policyInitializer = "policy.chaos.example.com"
	ownerInitializer  = "owner.chaos.example.com"
)

var (
	plane *controlplane.ControlPlane
	// authority signs the API server's certificates.
	authority *controlplane.Authority
	// admin is a member of system:masters.
	admin client.Client
	// binary is the path of the manager binary.
	binary string
)

func TestChaos(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Chaos")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()

	keys := GinkgoT().TempDir()
	var err error
	authority, err = controlplane.NewAuthority(keys)
	Expect(err).NotTo(HaveOccurred())
	cluster := framework.StartControlPlane(ctx, controlplane.WithRestarts(authority))
	plane, admin = cluster.ControlPlane, framework.NewClient(cluster.ControlPlane.Admin, apiextensionsv1.AddToScheme)

	binary = filepath.Join(plane.Dir, "manager")
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.ManagerProgram, binary)).To(Succeed())
	Expect(plane.Install(ctx)).To(Succeed())
	Expect(plane.AggregateClusterRoles(ctx)).To(Succeed())
	runInitializer(ctx, initializers.PolicyManifest, initializers.PolicyAccount, policyInitializer, initializers.Policy)
	runInitializer(ctx, initializers.OwnerManifest, initializers.OwnerAccount, ownerInitializer, initializers.Owner)
	Expect(admin.Create(ctx,
		wrappers.MakeConfiguration("chaos").Initializers(policyInitializer, ownerInitializer).Obj())).To(Succeed())
}, NodeTimeout(15*time.Minute))

// runInitializer runs an initializer until the suite ends.
func runInitializer(ctx context.Context, manifest, account, name string, work initializers.Work) {
	GinkgoHelper()
	_, err := plane.KubectlWithInput(ctx, plane.Admin, manifest, "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
	config, err := plane.ServiceAccountConfig(ctx, account, account)
	Expect(err).NotTo(HaveOccurred())
	running, err := initializers.Start(ctx, config, name, work)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(running.Stop)
}
