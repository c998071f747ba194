// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/webhooks"
)

// HoldOptions returns options of hold webhooks that the API server reaches at a free port of this
// machine. The limits and the duration are the defaults of the manager's flags.
func HoldOptions() (*hold.Options, error) {
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q has no port: %w", address, err)
	}
	return &hold.Options{
		Options: webhooks.Options{
			Address: address, URL: "https://localhost:" + port,
			Secret: "nslifecycle-webhook-certificate", IsRotated: true, Service: "nslifecycle-webhook",
		},
		Duration: 10 * time.Second, Limits: hold.Limits{PerUser: 5, Total: 25},
	}, nil
}

// WaitForHold waits until the webhook configurations contain the given URL and the certificate.
func (c *ControlPlane) WaitForHold(ctx context.Context, url string) error {
	api, err := client.New(c.Admin, client.Options{})
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	// A replica that is killed as the leader keeps the Lease for 15 s.
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			mutating, validating := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
			if err := errors.Join(
				api.Get(ctx, client.ObjectKey{Name: v1alpha1.HoldConfiguration}, mutating),
				api.Get(ctx, client.ObjectKey{Name: v1alpha1.TemplatesConfiguration}, validating),
			); err != nil {
				return false, err
			}
			var targets []admissionv1.WebhookClientConfig
			for _, webhook := range mutating.Webhooks {
				targets = append(targets, webhook.ClientConfig)
			}
			for _, webhook := range validating.Webhooks {
				targets = append(targets, webhook.ClientConfig)
			}
			for _, target := range targets {
				if target.URL == nil || !strings.HasPrefix(*target.URL, url) || len(target.CABundle) == 0 {
					return false, nil
				}
			}
			return true, nil
		})
}
