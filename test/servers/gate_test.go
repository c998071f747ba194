// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// If the cache of an API server does not contain the namespace of a CREATE, the API server waits for 50 ms and
// then reads the namespace from etcd (k8s.io/apiserver, pkg/admission/plugin/namespace/lifecycle).
const missingNamespaceWait = 50 * time.Millisecond

var _ = Describe("The gate", Serial, func() {
	DescribeTable("rejects all writes through one API server while the other creates the namespace",
		func(ctx context.Context, rounds int, delayed path, latency time.Duration) {
			delayed.start(latency)
			all := &results{}
			for range rounds {
				creator, writer := inOrder(latency)
				name, before := framework.Unique("created"), upTo(missingNamespaceWait)
				stop := writeContinuously(ctx, writer, name, all)
				time.Sleep(before)
				creator.create(ctx, makeInitialized(name))
				fill(ctx, creator.initializer, name)
				time.Sleep(upTo(missingNamespaceWait) + 4*latency)
				stop()
			}
			report("%d namespaces created and written to through different API servers: %s", rounds, all)
			Expect(all.count(string(metav1.StatusReasonForbidden), "create")).To(BeNumerically(">=", rounds))
			Expect(all.count(string(metav1.StatusReasonForbidden), "update", "delete")).To(BeNumerically(">=", rounds))
			Expect(all.count(accepted)).To(BeZero())
		},
		Entry("in a few rounds", SpecTimeout(specTimeout), 40, path{}, noLatency),
		Entry("in many rounds", Label("long"), SpecTimeout(10*specTimeout), 500, path{}, noLatency),
		// These take as long as several round trips.
		Entry(late(etcdPath), SpecTimeout(specTimeout), 5, etcdPath, 300*time.Millisecond),
		Entry(late(namespacesPath), SpecTimeout(specTimeout), 5, namespacesPath, 300*time.Millisecond),
		Entry(late(membersPath), SpecTimeout(specTimeout), 5, membersPath, 300*time.Millisecond),
	)

	DescribeTable("rejects writes only for a short time after the other API server completed the initialization",
		func(ctx context.Context, rounds int, delayed path, latency time.Duration) {
			rejected := &results{}
			var longest time.Duration
			delayed.start(latency)
			for range rounds {
				completer, writer := inOrder(latency)
				namespace := completer.create(ctx, makeInitialized(framework.Unique("completed")))
				fill(ctx, writer.initializer, namespace.Name) // The writer observes the namespace.
				completer.finish(ctx, namespace)
				completed := time.Now()
				Eventually(func() error {
					_, err := writer.ordinary.CoreV1().ConfigMaps(namespace.Name).Create(ctx,
						wrappers.MakeConfigMap(namespace.Name, "a"), metav1.CreateOptions{})
					if err != nil {
						Expect(err).To(BeForbiddenBy("gate"))
						rejected.add("create", err)
					}
					return err
				}).WithContext(ctx).WithPolling(time.Millisecond).Should(Succeed())
				longest = max(longest, time.Since(completed))
			}
			report("rejected after %d initializations, with a latency of %s: %s; first accepted write at most %s after the initialization",
				rounds, latency, rejected, longest)
		},
		Entry("in a few rounds", SpecTimeout(specTimeout), 40, path{}, noLatency),
		Entry("in many rounds", Label("long"), SpecTimeout(10*specTimeout), 500, path{}, noLatency),
		// These take as long as several round trips.
		Entry(late(etcdPath), SpecTimeout(specTimeout), 5, etcdPath, 500*time.Millisecond),
		Entry(late(namespacesPath), SpecTimeout(specTimeout), 5, namespacesPath, 500*time.Millisecond),
		Entry(late(membersPath), SpecTimeout(specTimeout), 5, membersPath, 500*time.Millisecond),
	)
})
