// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/faults"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/observer"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	policyInitializer = "policy.chaos.example.com"
	ownerInitializer  = "owner.chaos.example.com"
)

var (
	cluster *framework.Cluster
	plane   *controlplane.ControlPlane
	// members are the members of etcd, and etcd is between the API server and them.
	members *controlplane.EtcdMembers
	etcd    etcdConnections
	// undisturbed is an API server without a watch cache and without proxies in front of etcd. Only the
	// observer and the administrator use it.
	undisturbed *framework.SecondAPIServer
	// random depends on the seed and the name of the spec.
	random *rand.Rand
	// authority signs the API server's certificates.
	authority *controlplane.Authority
	// admin is a member of system:masters.
	admin *framework.User
	// servesPolicies reports whether the API server serves MutatingAdmissionPolicy v1.
	servesPolicies bool
	// binary is the path of the manager binary.
	binary string
	// apiServers are directories that contain a kube-apiserver each, in the order of their versions.
	apiServers []string
)

func TestChaos(t *testing.T) {
	for _, version := range strings.Fields(os.Getenv(apiServersVariable)) {
		assets, err := controlplane.FindAssets(t.Context(), "--version="+version)
		if err != nil {
			t.Fatal(err)
		}
		apiServers = append(apiServers, assets)
	}
	if len(apiServers) > 0 {
		t.Setenv("KUBEBUILDER_ASSETS", apiServers[0])
	}
	framework.RunSuite(t, "Chaos")
}

var _ = BeforeSuite(func(ctx context.Context) {
	keys := GinkgoT().TempDir()
	var err error
	authority, err = controlplane.NewAuthority(keys)
	Expect(err).NotTo(HaveOccurred())
	members, err = controlplane.StartEtcdMembers(ctx, GinkgoT().TempDir(), etcdMembers)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(members.Stop)
	for _, member := range members.All {
		proxy, err := faults.StartTCPProxy(member.Client)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(proxy.Stop)
		etcd = append(etcd, proxy)
	}
	options := []controlplane.Option{
		controlplane.WithRestarts(authority), controlplane.WithEtcdMembers(members),
		controlplane.WithAPIServerFlag("etcd-servers", etcd.urls()),
		// Otherwise, the watches of the observer could not resume after a restart of etcd.
		controlplane.WithAPIServerFlag("etcd-compaction-interval", "0"),
	}
	cluster = framework.StartControlPlane(ctx, options...)
	Expect(members.WaitUntilReady(ctx)).To(Succeed())
	undisturbedLog := framework.NewAuditLog()
	undisturbed = cluster.StartSecondAPIServer(ctx, undisturbedLog.Flag(), "--watch-cache=false",
		"--etcd-servers="+members.URLs())
	plane, admin = cluster.ControlPlane, framework.NewUser(cluster.ControlPlane.Admin, apiextensionsv1.AddToScheme)

	servesPolicies = framework.ServesPolicies(ctx, plane.Admin)
	binary = filepath.Join(plane.Dir, "manager")
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.ManagerProgram, binary)).To(Succeed())
	cluster.Install(ctx, "default")
	cluster.AddTemplateAccount(ctx, templateAccount)
	runInitializer(ctx, initializers.PolicyManifest, initializers.PolicyAccount, policyInitializer, initializers.Policy)
	runInitializer(ctx, initializers.OwnerManifest, initializers.OwnerAccount, ownerInitializer, initializers.Owner)
	admin.Creates(ctx, wrappers.MakeConfiguration("chaos").Initializers(policyInitializer, ownerInitializer).Obj())
	cluster.StartObserver(ctx, func(o *framework.Observation) {
		o.Servers = append([]observer.Server{{Config: undisturbed.ConfigFor(plane.Admin), Log: string(undisturbedLog)}}, o.Servers...)
		o.Rules.Required = required
	})
}, NodeTimeout(15*time.Minute))

var _ = BeforeEach(func() { random = framework.NewRandom() })

// required returns what a namespace must have.
func required(labels map[string]string) observer.Requirements {
	requirements := observer.Requirements{
		Initializers: []string{policyInitializer, ownerInitializer}, Objects: []string{"resourcequotas/" + initializers.QuotaName},
	}
	if labels[provisioned] != "" {
		requirements.Initializers = append(requirements.Initializers, v1alpha1.TemplatesInitializer)
		requirements.Objects = append(requirements.Objects, "configmaps/settings", "limitranges/limits")
	}
	return requirements
}

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
