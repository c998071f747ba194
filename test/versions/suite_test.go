// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	operator "github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// window is the number of namespaces for which the suite measures the time until the injection.
var window = flag.Int("window", 0,
	"number of namespaces to create to measure the time until the operator injects the list; 0 skips the measurement")

const (
	ordinaryUser    = "alice@corp.example.com"
	initializerUser = "initializer@corp.example.com"
	preExistingName = "pre-existing"
)

// The directories in config that the suite installs.
const (
	configDefault = "default"
	configCompat  = "compat"
)

var (
	cluster *framework.Cluster
	plane   *controlplane.ControlPlane
	manager *controlplane.Manager
	// byOperator reports whether the operator, not the API server, injects pending lists.
	byOperator bool

	// admin is a member of system:masters. ordinary has all permissions except the verbs of this
	// project, and initializer additionally has the initialize verb.
	admin, ordinary, initializer client.Client
	initializerConfig            *rest.Config
	// bin is the directory that contains the plugin.
	bin string
)

func TestVersions(t *testing.T) {
	if os.Getenv("NSLIFECYCLE_TEST_VERSIONS") == "" {
		t.Skip("NSLIFECYCLE_TEST_VERSIONS is not set: run `make test-versions`")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "Versions")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()

	cluster = framework.StartControlPlane(ctx)
	plane, admin = cluster.ControlPlane, cluster.Admin
	discoverer, err := discovery.NewDiscoveryClientForConfig(plane.Admin)
	Expect(err).NotTo(HaveOccurred())
	version, err := discoverer.ServerVersion()
	Expect(err).NotTo(HaveOccurred())

	Expect(admin.Create(ctx, wrappers.MakeNamespace(preExistingName).Obj())).To(Succeed())
	// Derive byOperator from the version, independently of the tested code.
	minor, err := strconv.Atoi(strings.TrimSuffix(version.Minor, "+"))
	Expect(err).NotTo(HaveOccurred())
	byOperator = minor < 36
	Expect(plane.InstallFrom(ctx, fitting())).To(Succeed())
	AddReportEntry("API server "+version.GitVersion+" with config/"+fitting(), ReportEntryVisibilityAlways)
	Expect(plane.AggregateClusterRoles(ctx)).To(Succeed())

	ordinary = framework.NewClient(newUser(ctx, ordinaryUser))
	initializerConfig = newUser(ctx, initializerUser, "initialize")
	initializer = framework.NewClient(initializerConfig)
	bin = buildPlugin(ctx)
	startManager(ctx)

	By("waiting until the policies are enforced and the manager has processed the existing namespaces")
	Eventually(func(g Gomega) {
		forged := wrappers.MakeNamespace("forged").Obj()
		addList(forged)
		err := admin.Create(ctx, forged, client.DryRunAll)
		if byOperator {
			g.Expect(err).To(BeDeniedBy("guard"))
		} else {
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(forged.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		}
		g.Expect(get(g, ctx, preExistingName)).To(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonNotRequired))
	}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
})

var _ = AfterSuite(func() {
	stopManager()
})

// fitting returns the directory in config to install on this API server.
func fitting() string {
	if byOperator {
		return configCompat
	}
	return configDefault
}

func startManager(ctx context.Context, changes ...func(*operator.Options)) {
	GinkgoHelper()
	var err error
	manager, err = plane.StartManager(ctx, changes...)
	Expect(err).NotTo(HaveOccurred())
	Expect(manager.Server.LacksMutatingPolicies).To(Equal(byOperator))
}

func stopManager() {
	GinkgoHelper()
	if manager != nil {
		Expect(manager.Stop()).To(Succeed())
		manager = nil
	}
}

// newUser creates a user who has all permissions except the verbs of this project, plus the given
// verbs.
func newUser(ctx context.Context, name string, verbs ...string) *rest.Config {
	GinkgoHelper()
	verbs = append(verbs, "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
	return cluster.AddUser(ctx, name, verbs).Config
}

// buildPlugin builds the plugin and returns its directory.
func buildPlugin(ctx context.Context) string {
	GinkgoHelper()
	dir, err := os.MkdirTemp(plane.Dir, "bin-")
	Expect(err).NotTo(HaveOccurred())
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.PluginProgram, filepath.Join(dir, "kubectl-nslifecycle"))).
		To(Succeed())
	return dir
}
