// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/hold"
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
		Address: address, URL: "https://localhost:" + port, Duration: 10 * time.Second,
		Limits: hold.Limits{PerUser: 5, Total: 25},
		Secret: "nslifecycle-hold-certificate", IsRotated: true, Service: "nslifecycle-hold",
	}, nil
}

// WaitForHold waits until the API server knows the given URL and the certificate of the hold webhooks.
func (c *ControlPlane) WaitForHold(ctx context.Context, url string) error {
	api, err := client.New(c.Admin, client.Options{})
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (bool, error) {
			configuration := &admissionv1.MutatingWebhookConfiguration{}
			if err := api.Get(ctx, client.ObjectKey{Name: v1alpha1.HoldConfiguration}, configuration); err != nil {
				return false, err
			}
			for _, webhook := range configuration.Webhooks {
				target := webhook.ClientConfig
				if target.URL == nil || !strings.HasPrefix(*target.URL, url) || len(target.CABundle) == 0 {
					return false, nil
				}
			}
			return true, nil
		})
}
