// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/faults"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/observer"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	// absent is an initializer of the namespaces with the label initialized; it is not running.
	absent      = "absent.test.example.com"
	initialized = "test.example.com/initialized"
	specTimeout = 5 * time.Minute
)

var BeForbiddenBy = matchers.BeForbiddenBy

// server is an API server with a client for each user.
type server struct {
	observer.Server
	admin, ordinary, initializer kubernetes.Interface
}

var (
	cluster *framework.Cluster
	// a and b are API servers. The manager and the observer use a. Specs can pause b, and delay its etcd traffic.
	a, b      *server
	secondary *framework.SecondAPIServer
	// all are a and b and, if serversVariable is 3, a third API server.
	all []*server
	// members are nil unless membersVariable is 3. Each API server then uses its own member.
	members *controlplane.EtcdMembers
	// etcdOfB is between b and etcd.
	etcdOfB *faults.TCPProxy
	// random depends on the seed and the name of the spec.
	random *rand.Rand
)

func TestServers(t *testing.T) {
	framework.RunSuite(t, "Servers")
}

// All specs are Serial, because two API servers need the whole machine. Ginkgo runs these specs in the
// first process.
var _ = BeforeSuite(func(ctx context.Context) {
	if GinkgoParallelProcess() > 1 {
		return
	}
	startServers(ctx)
	cluster.AddTemplateAccount(ctx, templateAccount)
	cluster.StartManager(ctx)
	cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("servers").Initializer(absent,
		v1alpha1.InitializerSettings{NamespaceSelector: &v1alpha1.NamespaceSelector{
			MatchLabels: map[string]v1alpha1.LabelValue{initialized: "yes"},
		}}))
	expectInjected(ctx)
	cluster.StartObserver(ctx, func(o *framework.Observation) {
		o.Servers = nil
		for _, s := range all {
			o.Servers = append(o.Servers, s.Server)
		}
		o.Resources = append(o.Resources, v1alpha1.SchemeGroupVersion.WithResource("namespaceinitializerconfigurations"))
	})
}, NodeTimeout(30*time.Minute))

// expectInjected waits until all API servers use the policies and the NamespaceInitializerSet, which they watch
// independently of each other.
func expectInjected(ctx context.Context) {
	GinkgoHelper()
	for _, s := range all {
		Eventually(func(g Gomega) {
			probe, err := s.ordinary.CoreV1().Namespaces().Create(ctx, makeInitialized("probe"),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(probe.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
	}
}

var _ = BeforeEach(func() { random = framework.NewRandom() })

// makeInitialized returns a namespace that waits for the initializer.
func makeInitialized(name string) *corev1.Namespace {
	return wrappers.MakeNamespace(name).Label(initialized, "yes").Obj()
}
