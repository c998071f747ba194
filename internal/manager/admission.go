// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"sync"

	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nslifecycle/nslifecycle/internal/controller"
	"github.com/nslifecycle/nslifecycle/internal/mutation"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
	"github.com/nslifecycle/nslifecycle/internal/webhooks"
)

func setupAdmission(mgr ctrl.Manager, options Options) error {
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("failed to create a discovery client: %w", err)
	}
	installer := &mutation.Installer{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Discovery: discoveryClient, Clock: options.ServerClock,
		URL: options.Hold.URL,
	}
	if err := (&controller.AdmissionReconciler{
		Client: mgr.GetClient(),
		Policies: &policyverifier.Verifier{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: options.ServerClock, Mutation: installer,
		},
		Mutation:      installer,
		StartWebhooks: sync.OnceValue(func() error { return setupWebhookConfigurations(mgr, options) }),
		Clock:         options.Clock,
	}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("failed to set up the admission reconciler: %w", err)
	}
	return nil
}

// setupWebhookConfigurations adds the controllers that set the address and the certificate of the webhooks, and what
// the hold webhooks select. It is called when the manager runs: not every installation has webhooks.
func setupWebhookConfigurations(mgr ctrl.Manager, options Options) error {
	hold := &controller.HoldReconciler{Client: mgr.GetClient(), URL: options.Hold.URL}
	if err := hold.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("failed to set up the hold reconciler: %w", err)
	}
	if options.Hold.URL != "" {
		templates := &controller.TemplateWebhookReconciler{Client: mgr.GetClient(), URL: options.Hold.URL}
		if err := templates.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("failed to set up the reconciler of the webhook for templates: %w", err)
		}
	}
	if err := webhooks.RotateCertificate(mgr, options.Hold.Options, options.SystemNamespace); err != nil {
		return fmt.Errorf("failed to set up the rotation of the certificate: %w", err)
	}
	return nil
}
