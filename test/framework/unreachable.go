// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/faults"
)

// UnreachableCost is what a webhook may cost a write if a firewall drops its packets, and the time for the rest of the
// request on a busy machine. It is less than the default timeout of the API server, which is 10 s.
const UnreachableCost = 6 * time.Second

// HaveShortTimeout matches webhooks that cost a write at most 2 s.
var HaveShortTimeout = HaveField("TimeoutSeconds", HaveValue(BeNumerically("<=", 2)))

// StartManagerBehind runs the manager until the spec or the container ends. The API server reaches its webhooks through
// the proxy that is returned.
func (c *Cluster) StartManagerBehind(ctx context.Context) (proxy *faults.TCPProxy, url string) {
	GinkgoHelper()
	behind, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	_, port, err := net.SplitHostPort(behind.Address)
	Expect(err).NotTo(HaveOccurred())
	proxy, err = faults.StartTCPProxy("127.0.0.1:" + port)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Stop)
	_, port, err = net.SplitHostPort(proxy.Address())
	Expect(err).NotTo(HaveOccurred())
	behind.URL = "https://localhost:" + port
	c.StartManager(ctx, func(o *manager.Options) { o.Hold = behind })
	DeferCleanup(c.StopManager)
	return proxy, behind.URL
}
