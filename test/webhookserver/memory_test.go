// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// lifecycles is the number of namespaces that are initialized, filled and deleted during an attack.
const lifecycles = 2

var _ = DescribeTable("The manager works within its memory limit during an attack",
	func(ctx context.Context, attack attack) {
		resetPeakMemory()
		attacks, stop := context.WithCancel(ctx)
		report := make(chan string)
		go func() { report <- attack(attacks) }()
		start := time.Now()
		for range lifecycles {
			expectLifecycle(ctx)
		}
		duration := time.Since(start)
		stop()
		sent := <-report
		Expect(process).NotTo(gexec.Exit())
		peak := peakMemory()
		AddReportEntry(fmt.Sprintf("peak memory %d MiB, %d life cycles in %s, during %s", peak, lifecycles, duration, sent))
		Expect(peak).To(BeNumerically("<", memoryLimit()))
	},
	Entry("without an attack", attack(func(ctx context.Context) string { <-ctx.Done(); return "nothing" })),
	Entry("objects of a template", bodies("/templates", review(list("objects", "{}")))),
	Entry("parameters of a template", bodies("/templates", review(list("parameters", "{}")))),
	Entry("variables of a template", bodies("/templates", review(list("variables", "{}")))),
	Entry("a template that takes long to compile", bodies("/templates", review(costlyTemplate()))),
	Entry("a large object of a held write", bodies("/hold", review(list("objects", "{}")))),
	Entry("a YAML alias bomb in a held write", bodies("/hold", aliasBomb())),
	Entry("a YAML alias bomb in a template", bodies("/templates", aliasBomb())),
	Entry("nested JSON in a held write", bodies("/hold", review(strings.Repeat(`[`, 7<<20)))),
	Entry("nested JSON in a template", bodies("/templates", review(strings.Repeat(`{"a":`, 1<<20)))),
	Entry("nested JSON before the request", bodies("/hold", strings.Repeat(`{"a":`, 1<<20))),
	Entry("labels of a new namespace", bodies("/inject/1", review(`{"metadata":{"labels":`+members(6<<20)+`}}`))),
	Entry("annotations of an update", bodies("/restore", reviewOf(`{"metadata":{"annotations":`+members(6<<20)+`}}`,
		`{"metadata":{"annotations":`+members(6<<20)+`}}`))),
	Entry("a YAML alias bomb in a new namespace", bodies("/inject/1", aliasBomb())),
	Entry("nested JSON in an update", bodies("/complete", review(strings.Repeat(`{"a":`, 1<<20)))),
	Entry("creations that wait for a set", bodies("/inject/1000000", review("{}"))),
	Entry("80 unfinished held writes", unfinished("/hold", 80)),
	Entry("80 unfinished templates", unfinished("/templates", 80)),
	Entry("1,000 unfinished held writes", unfinished("/hold", 1000)),
	Entry("1,000 unfinished templates", unfinished("/templates", 1000)),
	Entry("1,000 slow headers", slowHeaders(1000)),
	Entry("1,000 silent connections", silence(1000)),
	Entry("1,000 large headers for the webhooks", largeHeaders(&address, 1000)),
	Entry("1,000 large headers for the metrics", largeHeaders(&metricsAddress, 1000)),
	Entry("1,000 large headers for the probes", largeProbeHeaders(1000)),
	Entry("10,000 requests per second for unknown namespaces", attack(unknownNamespaces)),
	Entry("10,000 requests per second that are not TLS", attack(garbage)),
)

// expectLifecycle expects that a namespace is initialized, that a write is held until then, and that the namespace
// is finalized.
func expectLifecycle(ctx context.Context) {
	GinkgoHelper()
	namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("attacked"))
	Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "web"))).To(Succeed())
	Expect(cluster.Admin.Delete(ctx, namespace)).To(Succeed())
	framework.ExpectDeleted(ctx, cluster.Admin, namespace)
}
