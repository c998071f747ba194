// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/faults"
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

const (
	// freeSpace is the size by which the database of etcd can grow, in bytes.
	freeSpace = 16 << 20
	// alarmDuration is the time without successful writes. It exceeds the lease of the leader.
	alarmDuration = leaseExpiry
	quotaFlag     = "quota-backend-bytes"
)

var _ = Describe("An etcd that has no space", func() {
	It("delays initializations and finalizations until its alarm is deactivated", func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) { restartEtcd(ctx, 0) })
		s := startScenario(ctx, 2, "--leader-elect")
		s.keep(ctx)
		size, err := strconv.Atoi(postToEtcd(ctx, "maintenance/status", map[string]any{}).DBSize)
		Expect(err).NotTo(HaveOccurred())
		restartEtcd(ctx, size+freeSpace)
		DeferCleanup(func(ctx context.Context) {
			if CurrentSpecReport().Failed() {
				compactEtcd(ctx) // The managers cannot stop otherwise. After a success, it could expire the observer's watches.
			}
		})
		namespaces := startTraffic(ctx, map[string]string{provisioned: "yes"})
		stopChanges := s.changeContinuously(ctx)
		Eventually(namespaces.count).WithContext(ctx).Should(BeNumerically(">", 0))

		By("filling etcd")
		filler := map[string]any{"key": []byte("filler"), "value": make([]byte, 1<<20)}
		for postToEtcd(ctx, "kv/put", filler).isSuccess {
		}
		rejected := makeProvisioned(framework.Unique("rejected"))
		for range 2 {
			Eventually(func() error { return admin.Create(ctx, rejected.DeepCopy()) }).WithContext(ctx).
				Should(MatchError(ContainSubstring("space exceeded")))
			time.Sleep(alarmDuration / 2)
		}

		By("compacting etcd")
		compactEtcd(ctx)
		s.expectEndState(ctx, namespaces, stopChanges, time.Now())
	}, SpecTimeout(10*time.Minute))
})

// compactEtcd deletes the filler, releases the space and deactivates the alarm.
func compactEtcd(ctx context.Context) {
	GinkgoHelper()
	header := postToEtcd(ctx, "kv/deleterange", map[string]any{"key": []byte("filler")}).Header
	for _, request := range []struct {
		path   string
		fields map[string]any
	}{
		{"kv/compaction", map[string]any{"revision": header.Revision, "physical": true}},
		{"maintenance/defragment", map[string]any{}},
		{"maintenance/alarm", map[string]any{"action": "DEACTIVATE", "alarm": "NOSPACE", "memberID": header.MemberID}},
	} {
		Expect(postToEtcd(ctx, request.path, request.fields).isSuccess).To(BeTrue(), request.path)
	}
}

// restartEtcd restarts etcd with a quota; 0 is the default of etcd.
func restartEtcd(ctx context.Context, quota int) {
	GinkgoHelper()
	Expect(plane.KillEtcd(ctx)).To(Succeed())
	Expect(plane.StartEtcd(controlplane.WithEtcdFlag(quotaFlag, fmt.Sprint(quota)))).To(Succeed())
}

// etcdResponse is a response of etcd.
type etcdResponse struct {
	isSuccess bool

	DBSize string
	Header struct {
		Revision string
		MemberID string `json:"member_id"`
	}
}

// postToEtcd sends a request to the JSON gateway of etcd.
func postToEtcd(ctx context.Context, path string, fields map[string]any) (result etcdResponse) {
	GinkgoHelper()
	body, err := json.Marshal(fields)
	Expect(err).NotTo(HaveOccurred())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, plane.EtcdURL()+"/v3/"+path, bytes.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	result.isSuccess = response.StatusCode == http.StatusOK
	Expect(json.NewDecoder(response.Body).Decode(&result)).To(Succeed())
	return result
}

// customType is a CRD. The kept namespaces contain custom resources while it exists.
const customType = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.temporary.example.com}
spec:
  group: temporary.example.com
  names: {plural: things, kind: Thing}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

// unavailableAPI is an aggregated API without a server. While it exists, discovery is incomplete.
const unavailableAPI = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.unavailable.example.com}
spec:
  group: unavailable.example.com
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {namespace: default, name: unavailable}
`

// addTemporary creates an object, and custom resources if it is a CRD, until the returned function is called.
func (s *scenario) addTemporary(ctx context.Context, manifest string) (remove func()) {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(manifest), &object.Object)).To(Succeed())
	adding, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		until(adding, func() bool {
			err := s.admin.Create(adding, object.DeepCopy())
			return err == nil || apierrors.IsAlreadyExists(err)
		})
		if manifest == customType {
			for _, namespace := range s.kept {
				until(adding, func() bool { return s.admin.Create(adding, makeThing(namespace.Name)) == nil })
			}
		}
	}()
	return func() {
		GinkgoHelper()
		cancel()
		<-done
		Eventually(func() error { return s.admin.Delete(ctx, object.DeepCopy()) }).WithContext(ctx).
			Should(Or(Succeed(), Satisfy(apierrors.IsNotFound)))
		Eventually(func() error { return s.admin.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopy()) }).
			WithContext(ctx).Should(Satisfy(apierrors.IsNotFound))
	}
}

func makeThing(namespace string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "temporary.example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"namespace": namespace, "name": "thing"},
	}}
}
