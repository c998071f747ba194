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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
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
			for _, configuration := range webhookConfigurations()[:2] {
				if err := api.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); err != nil {
					return false, err
				}
				for _, target := range targets(configuration) {
					if target.URL == nil || !strings.HasPrefix(*target.URL, url) || len(target.CABundle) == 0 {
						return false, nil
					}
				}
			}
			return true, nil
		})
}

// SetWebhookURL gives the installed webhooks a URL, as an administrator does for a manager outside the cluster: the
// operator may then change it.
func (c *ControlPlane) SetWebhookURL(ctx context.Context, base string) error {
	return setURL(ctx, c.Admin, base)
}

func setURL(ctx context.Context, admin *rest.Config, base string) error {
	api, err := client.New(admin, client.Options{})
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	for _, configuration := range webhookConfigurations() {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			if err := api.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); err != nil {
				return err
			}
			for _, target := range targets(configuration) {
				webhooks.SetURL(target, base)
			}
			return api.Update(ctx, configuration)
		})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("failed to set the URL in %q: %w", configuration.GetName(), err)
		}
	}
	return nil
}

// webhookConfigurations returns the configurations in config/webhook, without their webhooks.
func webhookConfigurations() []client.Object {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	return []client.Object{
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: named(v1alpha1.HoldConfiguration)},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: named(v1alpha1.TemplatesConfiguration)},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: named(v1alpha1.InjectConfiguration)},
	}
}

// targets returns what the webhooks of a configuration call.
func targets(configuration client.Object) (targets []*admissionv1.WebhookClientConfig) {
	switch configuration := configuration.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			targets = append(targets, &configuration.Webhooks[i].ClientConfig)
		}
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			targets = append(targets, &configuration.Webhooks[i].ClientConfig)
		}
	}
	return targets
}
