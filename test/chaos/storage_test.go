// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

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
		namespaces := startTraffic(ctx, map[string]string{furnished: "yes"})
		stopChanges := s.changeContinuously(ctx)
		Eventually(namespaces.count).WithContext(ctx).Should(BeNumerically(">", 0))

		By("filling etcd")
		filler := map[string]any{"key": []byte("filler"), "value": make([]byte, 1<<20)}
		for postToEtcd(ctx, "kv/put", filler).isSuccess {
		}
		rejected := makeFurnished(framework.Unique("rejected"))
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
