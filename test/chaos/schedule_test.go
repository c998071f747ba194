// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/test/framework/faults"
)

const (
	// durationVariable is the environment variable with the duration of the random faults, such as 10m.
	durationVariable = "CHAOS_DURATION"
	defaultDuration  = 2 * time.Minute
	// maxFault is the maximum duration of a fault.
	maxFault = 8 * time.Second
	// leaseExpiry is a time after which another manager has become the leader.
	leaseExpiry = 20 * time.Second
)

// fault disrupts a scenario until the returned function is called.
type fault struct {
	name  string
	start func(ctx context.Context, s *scenario) (stop func())
	// atLeast is the minimum duration.
	atLeast time.Duration
}

// groups contain all faults. Two faults of the same group never occur at the same time. Faults stop in the order
// of the groups, so that processes start without faults in the network.
var groups = [][]fault{etcdFaults, memberFaults, connectionFaults, requestFaults, processFaults, apiFaults}

var etcdFaults = []fault{
	{name: "latency of etcd", start: func(context.Context, *scenario) func() {
		latency := upTo(500 * time.Millisecond)
		etcd.each(func(proxy *faults.TCPProxy) { proxy.SetLatency(latency) })
		return func() { etcd.each(func(proxy *faults.TCPProxy) { proxy.SetLatency(0) }) }
	}},
	{name: "connections to etcd are cut", start: func(context.Context, *scenario) func() {
		etcd.each((*faults.TCPProxy).Cut)
		return func() {}
	}},
	{name: "connections to etcd are half-open", start: func(context.Context, *scenario) func() {
		etcd.each(func(proxy *faults.TCPProxy) { proxy.Drop(true) })
		return func() { etcd.each(func(proxy *faults.TCPProxy) { proxy.Drop(false) }) }
	}},
	{name: "connections to etcd are refused", start: func(context.Context, *scenario) func() {
		etcd.each(func(proxy *faults.TCPProxy) { proxy.Refuse(true) })
		etcd.each((*faults.TCPProxy).Cut)
		return func() { etcd.each(func(proxy *faults.TCPProxy) { proxy.Refuse(false) }) }
	}},
}

var connectionFaults = []fault{
	{name: "latency of the API server", start: func(_ context.Context, s *scenario) func() {
		s.connections.SetLatency(upTo(500 * time.Millisecond))
		return func() { s.connections.SetLatency(0) }
	}},
	{name: "connections of managers are cut", start: func(_ context.Context, s *scenario) func() {
		s.connections.Cut()
		return func() {}
	}},
	{name: "connections of managers are half-open", start: func(_ context.Context, s *scenario) func() {
		s.connections.Drop(true)
		return func() { s.connections.Drop(false) }
	}},
}

var requestFaults = []fault{
	onRequests("requests are throttled", anyRequest, faults.Fail(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, time.Second)),
	onRequests("requests get 500", anyRequest, faults.Fail(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0)),
	onRequests("requests get 503", anyRequest, faults.Fail(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, 0)),
	onRequests("requests are delayed", anyRequest, faults.Delay(2*time.Second)),
	onRequests("writes get 504 after their execution", (*faults.Request).IsWrite,
		faults.LoseResponse(faults.Fail(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, 0))),
	onRequests("responses to writes are lost", (*faults.Request).IsWrite, faults.LoseResponse(faults.Abort(func() {}))),
	onRequests("watches expire", func(r *faults.Request) bool { return r.Verb == "watch" },
		faults.Fail(http.StatusGone, metav1.StatusReasonExpired, 0)),
}

var processFaults = []fault{
	{name: "a manager is killed", start: func(_ context.Context, s *scenario) func() {
		s.managers.random().Kill()
		return func() {}
	}},
	{name: "the leader is paused until it is no longer the leader", atLeast: leaseExpiry,
		start: func(_ context.Context, s *scenario) func() {
			leader := s.managers.currentLeader()
			if leader == nil {
				return func() {}
			}
			leader.Signal(syscall.SIGSTOP)
			return func() { leader.Signal(syscall.SIGCONT) }
		}},
	{name: "the API server is down", start: func(ctx context.Context, _ *scenario) func() {
		Expect(plane.KillAPIServer(ctx)).To(Succeed())
		return func() { Eventually(plane.StartAPIServer).WithContext(ctx).Should(Succeed()) }
	}},
}

var apiFaults = []fault{
	{name: "a CRD comes and goes", start: func(ctx context.Context, s *scenario) func() { return s.addTemporary(ctx, customType) }},
	{name: "an aggregated API is unavailable", start: func(ctx context.Context, s *scenario) func() {
		return s.addTemporary(ctx, unavailableAPI)
	}},
}

func anyRequest(*faults.Request) bool { return true }

// onRequests returns a fault for one of three requests that match, and closes all watches.
func onRequests(name string, matches func(*faults.Request) bool, do faults.Fault) fault {
	return fault{name: name, start: func(_ context.Context, s *scenario) func() {
		var count atomic.Uint32
		s.requests.Set(func(r *faults.Request) faults.Fault {
			if !matches(r) || count.Add(1)%3 != 0 {
				return nil
			}
			s.disturbed.Add(1)
			return do
		})
		s.requests.CloseWatches()
		return func() { s.requests.Set(nil) }
	}}
}

func upTo(most time.Duration) time.Duration { return time.Duration(random.Int64N(int64(most))) }

// duration returns the value of the environment variable.
func duration() time.Duration {
	if value, err := time.ParseDuration(os.Getenv(durationVariable)); err == nil {
		return value
	}
	return defaultDuration
}

var _ = Describe("Random faults", func() {
	It("do not prevent namespaces from reaching their end state", func(ctx context.Context) {
		s := startScenario(ctx, 2, "--leader-elect")
		s.keep(ctx)
		namespaces := startTraffic(ctx, map[string]string{provisioned: "yes"})
		stopChanges := s.changeContinuously(ctx)

		counts := map[string]int{}
		for end := time.Now().Add(duration()); time.Now().Before(end); {
			s.disrupt(ctx, counts)
			time.Sleep(upTo(2 * time.Second))
		}
		s.expectEndState(ctx, namespaces, stopChanges, time.Now())
		var lines []string
		for name, count := range counts {
			lines = append(lines, fmt.Sprintf("%s: %d", name, count))
		}
		slices.Sort(lines)
		AddReportEntry("faults", strings.Join(lines, "\n"), ReportEntryVisibilityAlways)
	}, SpecTimeout(duration()+15*time.Minute))
})

// disrupt starts one to three faults of different groups, and stops them after a random time.
func (s *scenario) disrupt(ctx context.Context, counts map[string]int) {
	GinkgoHelper()
	chosen := random.Perm(len(groups))[:1+random.IntN(3)]
	slices.Sort(chosen)
	hold := upTo(maxFault)
	var stops []func()
	var names []string
	for _, group := range chosen {
		fault := pick(random, groups[group])
		names = append(names, fault.name)
		counts[fault.name]++
		hold = max(hold, fault.atLeast)
		stops = append(stops, fault.start(ctx, s))
	}
	By(fmt.Sprintf("%s for %.1f s", strings.Join(names, ", "), hold.Seconds()))
	select {
	case <-ctx.Done():
	case <-time.After(hold):
	}
	for _, stop := range stops {
		stop()
	}
}

func pick[T any](from *rand.Rand, values []T) T { return values[from.IntN(len(values))] }

// changeContinuously changes the template until the returned function is called.
func (s *scenario) changeContinuously(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			until(ctx, func() bool { return s.changeTemplate(ctx) == nil })
			select {
			case <-ctx.Done():
			case <-time.After(templateInterval):
			}
		}
	}()
	return func() {
		cancel()
		<-stopped
	}
}
