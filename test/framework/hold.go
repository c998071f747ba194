// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/manager"
)

// HoldOptions returns options of webhooks that the API server reaches at a free port of this machine.
func HoldOptions() *hold.Options {
	GinkgoHelper()
	address := FreeAddress()
	_, port, err := net.SplitHostPort(address)
	Expect(err).NotTo(HaveOccurred())
	return &hold.Options{
		Address: address, URL: "https://localhost:" + port, Duration: 10 * time.Second,
		Limits: hold.Limits{PerUser: 5, Total: 25},
		Secret: "nslifecycle-hold-certificate", IsRotated: true, Service: "nslifecycle-hold",
	}
}

// StartHoldingManager runs the manager with the hold webhooks, and waits until the API server knows
// their certificate. It returns the options of the webhooks.
func (c *Cluster) StartHoldingManager(ctx context.Context, changes ...func(*hold.Options)) *hold.Options {
	GinkgoHelper()
	Expect(c.InstallHold(ctx)).To(Succeed())
	options := HoldOptions()
	for _, change := range changes {
		change(options)
	}
	c.StartManager(ctx, func(o *manager.Options) { o.Hold = options })
	Eventually(func(g Gomega) {
		var configuration admissionregistrationv1.MutatingWebhookConfiguration
		g.Expect(c.Admin.Get(ctx, client.ObjectKey{Name: v1alpha1.HoldConfiguration}, &configuration)).To(Succeed())
		for i := range configuration.Webhooks {
			g.Expect(configuration.Webhooks[i].ClientConfig.URL).To(HaveValue(HavePrefix(options.URL)))
			g.Expect(configuration.Webhooks[i].ClientConfig.CABundle).NotTo(BeEmpty())
		}
	}).WithContext(ctx).Should(Succeed())
	return options
}
