// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/graceperiod"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/faults"
	"github.com/nslifecycle/nslifecycle/test/framework/observer"
)

// serversVariable is the environment variable with the number of API servers: 3, or 2, the default.
const serversVariable = "NSLIFECYCLE_TEST_API_SERVERS"

// membersVariable is the environment variable with the number of etcd members: 3, or 1, the default.
const membersVariable = "NSLIFECYCLE_TEST_ETCD_MEMBERS"

// startServers starts the API servers and installs the project.
func startServers(ctx context.Context) {
	GinkgoHelper()
	var options []controlplane.Option
	if os.Getenv(membersVariable) == "3" {
		var err error
		members, err = controlplane.StartEtcdMembers(ctx, GinkgoT().TempDir(), 3)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(members.Stop)
		options = append(options, controlplane.WithEtcdMembers(members),
			controlplane.WithAPIServerFlag("etcd-servers", members.All[0].URL()))
	}
	cluster = framework.Start(ctx, options...)
	cluster.Install(ctx, "default")
	a = &server{
		Server: observer.Server{Config: cluster.Admin.Config, Log: string(cluster.AuditLog)},
		admin:  cluster.Admin.Clientset(), ordinary: cluster.Ordinary.Clientset(), initializer: cluster.Initializer.Clientset(),
	}
	etcdURLs := []string{cluster.EtcdURL(), cluster.EtcdURL(), cluster.EtcdURL()}
	if members != nil {
		Expect(members.WaitUntilReady(ctx)).To(Succeed())
		for i, member := range members.All {
			etcdURLs[i] = member.URL()
		}
	}
	startEtcdProxy(etcdURLs[1])
	b, secondary = startServer(ctx, "b", "http://"+etcdOfB.Address())
	all = []*server{a, b}
	if os.Getenv(serversVariable) == "3" {
		third, _ := startServer(ctx, "c", etcdURLs[2])
		all = append(all, third)
	}
}

var (
	// resourceInKey matches the key of an object in etcd. kube-apiserver uses a connection per resource.
	resourceInKey = regexp.MustCompile(`/registry/([a-z]+)/`)
	// configMapInKey matches the key of a ConfigMap that an operation creates.
	configMapInKey = regexp.MustCompile(`/registry/configmaps/([a-z0-9-]+)/new-`)
	// sentToEtcd contains the namespaces of the ConfigMaps that b has sent to etcd.
	sentToEtcd sync.Map
)

// startEtcdProxy starts etcdOfB, which identifies connections by their resource.
func startEtcdProxy(etcd string) {
	GinkgoHelper()
	var err error
	etcdOfB, err = faults.StartTCPProxy(strings.TrimPrefix(etcd, "http://"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(etcdOfB.Stop)
	etcdOfB.Identify(func(bytes []byte) string {
		for _, found := range configMapInKey.FindAllSubmatch(bytes, -1) {
			sentToEtcd.Store(string(found[1]), true)
		}
		if found := resourceInKey.FindSubmatch(bytes); found != nil {
			return string(found[1])
		}
		return ""
	})
}

// leases are the Leases of the additional API servers. API servers with the same host name share a Lease, but the
// operator counts them by their Leases.
var leases []*coordinationv1.Lease

// startServer starts an API server in addition to the first one.
func startServer(ctx context.Context, name, etcd string) (*server, *framework.SecondAPIServer) {
	GinkgoHelper()
	log := framework.NewAuditLog()
	started := cluster.StartSecondAPIServer(ctx, log.Flag(), "--etcd-servers="+etcd)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "apiserver-" + name,
			Labels: map[string]string{graceperiod.APIServerLeaseLabel: graceperiod.APIServerLeaseValue},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("apiserver-" + name), LeaseDurationSeconds: ptr.To(int32(24 * 3600)),
			RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	}
	cluster.Admin.Creates(ctx, lease)
	leases = append(leases, lease)
	return &server{
		Server: observer.Server{Config: started.ConfigFor(cluster.Admin.Config), Log: string(log)},
		admin:  started.As(cluster.Admin).Clientset(), ordinary: started.As(cluster.Ordinary).Clientset(),
		initializer: started.As(cluster.Initializer).Clientset(),
	}, started
}

// shareLease deletes the Leases of the additional API servers until the spec ends.
func shareLease(ctx context.Context) {
	GinkgoHelper()
	for _, lease := range leases {
		cluster.Admin.Deletes(ctx, lease)
		lease.ResourceVersion = ""
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Create(ctx, lease)).To(Succeed()) })
	}
}

// path is a part of the traffic of b that specs can delay.
type path struct {
	name string
	// delay sets the latency in each direction.
	delay func(latency time.Duration)
	// needsMembers reports whether etcd must have several members.
	needsMembers bool
}

var (
	etcdPath = path{name: "its traffic with etcd", delay: func(latency time.Duration) {
		etcdOfB.LimitTo("")
		etcdOfB.SetLatency(latency)
	}}
	// Reads of other resources are linearizable, so only a delay of this traffic alone makes the watch stale.
	namespacesPath = path{name: "its watch of namespaces", delay: func(latency time.Duration) {
		etcdOfB.LimitTo("namespaces")
		etcdOfB.SetLatency(latency)
	}}
	membersPath = path{name: "the traffic of its etcd member with the others", needsMembers: true,
		delay: func(latency time.Duration) {
			if latency > 0 { // A leader that is late would delay all API servers.
				Expect(members.MoveLeader(context.Background(), members.All[0])).To(Succeed())
			}
			members.SetLatency(members.All[1], latency)
		}}
)

const noLatency time.Duration = 0

// late describes a spec in which a path is delayed.
func late(delayed path) string {
	return "while one API server is late because of a latency in " + delayed.name
}

// inOrder returns two different API servers, in a random order, or a and b if b is delayed.
func inOrder(latency time.Duration) (*server, *server) {
	if latency > 0 {
		return a, b
	}
	return inRandomOrder()
}

// pauseTraffic pauses the traffic between b and etcd for a resource until the returned function is called or the spec
// ends.
func pauseTraffic(resource string) (resume func()) {
	etcdOfB.LimitTo(resource)
	etcdOfB.Pause(true)
	resume = func() { etcdOfB.Pause(false) }
	DeferCleanup(resume)
	return resume
}

// start delays the traffic until the spec ends.
func (p path) start(latency time.Duration) {
	GinkgoHelper()
	if latency == 0 {
		return
	}
	if p.needsMembers && members == nil {
		Skip("etcd has one member: set " + membersVariable + "=3")
	}
	p.delay(latency)
	DeferCleanup(p.delay, time.Duration(0))
}
