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

// HoldOptions returns options of webhooks that the API server reaches at a free port of this machine.
func HoldOptions() *hold.Options {
	GinkgoHelper()
	options, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	return options
}

// StartHoldingManager runs the manager with the hold webhooks, and waits until the API server knows
// their certificate. It returns the options of the webhooks.
func (c *Cluster) StartHoldingManager(ctx context.Context) *hold.Options {
	GinkgoHelper()
	Expect(c.InstallHold(ctx, "default")).To(Succeed())
	options := HoldOptions()
	c.StartManager(ctx, func(o *manager.Options) { o.Hold = options })
	Expect(c.WaitForHold(ctx, options.URL)).To(Succeed())
	return options
}
