// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/faults"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// etcdMembers is the number of members of etcd. Two of them are a quorum.
const etcdMembers = 3

// etcdConnections are the connections of the API server to each member of etcd.
type etcdConnections []*faults.TCPProxy

// urls returns the value of the flag --etcd-servers.
func (e etcdConnections) urls() string {
	var urls []string
	for _, proxy := range e {
		urls = append(urls, "http://"+proxy.Address())
	}
	return strings.Join(urls, ",")
}

func (e etcdConnections) each(do func(*faults.TCPProxy)) {
	for _, proxy := range e {
		do(proxy)
	}
}

// memberFaults leave a quorum, except for the last one.
var memberFaults = slices.Concat(onMember("the leader", (*controlplane.EtcdMembers).Leader), onMember("a follower", follower),
	[]fault{{name: "etcd is down", start: func(ctx context.Context, _ *scenario) func() {
		for _, member := range members.All {
			Expect(plane.KillEtcdMember(ctx, member)).To(Succeed())
		}
		return func() { Expect(plane.RestartEtcdMembers(ctx, members, members.All...)).To(Succeed()) }
	}}})

var _ = Describe("An etcd with three members", func() {
	// Elections take several seconds.
	It("serves requests while its leader is isolated or killed", func(ctx context.Context) {
		for _, fault := range memberFaults[:2] {
			before, err := members.Leader(ctx)
			Expect(err).NotTo(HaveOccurred())
			stop := fault.start(ctx, nil)
			Eventually(func(g Gomega) {
				for _, member := range members.All {
					leader, err := members.LeaderOf(ctx, member)
					g.Expect(member == before || err == nil && leader != before).To(BeTrue())
				}
			}).WithContext(ctx).Should(Succeed())
			name := framework.Unique("quorum")
			Eventually(func() error { return admin.Create(ctx, wrappers.MakeConfigMap(metav1.NamespaceDefault, name)) }).
				WithContext(ctx).Should(Succeed())
			stop()
			Expect(members.WaitUntilReady(ctx)).To(Succeed())
		}
	}, SpecTimeout(5*time.Minute))
})

// follower returns a random follower.
func follower(m *controlplane.EtcdMembers, ctx context.Context) (*controlplane.EtcdMember, error) {
	leader, err := m.Leader(ctx)
	if err != nil {
		return nil, err
	}
	return pick(random, slices.DeleteFunc(slices.Clone(m.All), func(member *controlplane.EtcdMember) bool {
		return member == leader
	})), nil
}

// onMember returns the faults of a member of etcd, which choose finds.
func onMember(
	role string, choose func(*controlplane.EtcdMembers, context.Context) (*controlplane.EtcdMember, error),
) []fault {
	of := func(name string, start func(ctx context.Context, member *controlplane.EtcdMember) (stop func())) fault {
		return fault{name: "etcd: " + role + " " + name, start: func(ctx context.Context, _ *scenario) func() {
			var member *controlplane.EtcdMember
			Eventually(func() (err error) {
				member, err = choose(members, ctx)
				return err
			}).WithContext(ctx).Should(Succeed())
			return start(ctx, member)
		}}
	}
	return []fault{
		of("is killed", func(ctx context.Context, member *controlplane.EtcdMember) func() {
			Expect(plane.KillEtcdMember(ctx, member)).To(Succeed())
			return func() { Expect(plane.RestartEtcdMembers(ctx, members, member)).To(Succeed()) }
		}),
		of("is isolated from the other members", func(_ context.Context, member *controlplane.EtcdMember) func() {
			members.Isolate(member, true)
			return func() { members.Isolate(member, false) }
		}),
		of("loses its connections to the other members", func(_ context.Context, member *controlplane.EtcdMember) func() {
			members.Cut(member)
			return func() {}
		}),
		of("has a latency to the other members", func(_ context.Context, member *controlplane.EtcdMember) func() {
			members.SetLatency(member, upTo(500*time.Millisecond))
			return func() { members.SetLatency(member, 0) }
		}),
	}
}
