// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// StartHoldingManager installs the hold webhooks, and continues as RestartHoldingManager.
func (c *Cluster) StartHoldingManager(ctx context.Context) *hold.Options {
	GinkgoHelper()
	Expect(c.InstallHold(ctx, "default")).To(Succeed())
	return c.RestartHoldingManager(ctx)
}

// RestartHoldingManager runs the manager with the installed hold webhooks at a free port of this
// machine, and waits until the API server knows their certificate. It returns the options of the webhooks.
func (c *Cluster) RestartHoldingManager(ctx context.Context) *hold.Options {
	GinkgoHelper()
	options, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	c.StartManager(ctx, func(o *manager.Options) { o.Hold = options })
	Expect(c.WaitForHold(ctx, options.URL)).To(Succeed())
	return options
}
