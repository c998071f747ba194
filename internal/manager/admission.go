// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"sync"

	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/controller"
	"github.com/nslifecycle/nslifecycle/internal/mutation"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
	"github.com/nslifecycle/nslifecycle/internal/webhooks"
)

// newInstaller returns what makes API servers run the mutating policies.
func newInstaller(mgr ctrl.Manager, options Options) (*mutation.Installer, error) {
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(mgr.GetConfig())
	if err != nil {
		return nil, fmt.Errorf("failed to create a discovery client: %w", err)
	}
	installer := &mutation.Installer{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Discovery: discoveryClient, Clock: options.ServerClock,
	}
	installer.StartWebhooks = sync.OnceValue(func() error {
		return setupWebhookConfigurations(mgr, options, installer.Webhooks != nil)
	})
	return installer, nil
}

func setupAdmission(mgr ctrl.Manager, options Options, installer *mutation.Installer) error {
	if err := (&controller.AdmissionReconciler{
		Client: mgr.GetClient(),
		Policies: &policyverifier.Verifier{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: options.ServerClock, Mutation: installer,
		},
		Mutation: installer,
		Clock:    options.Clock,
	}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("failed to set up the admission reconciler: %w", err)
	}
	return nil
}

// setupWebhookConfigurations adds the controllers that set the address and the certificate of the webhooks, and what
// the hold webhooks select. It is called when the manager runs: not every installation has webhooks.
func setupWebhookConfigurations(mgr ctrl.Manager, options Options, isInjecting bool) error {
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
	mutating := []string{internalv1alpha1.HoldConfiguration}
	if isInjecting {
		mutating = append(mutating, internalv1alpha1.InjectConfiguration)
	}
	if err := webhooks.RotateCertificate(mgr, options.Hold.Options, options.SystemNamespace, mutating); err != nil {
		return fmt.Errorf("failed to set up the rotation of the certificate: %w", err)
	}
	return nil
}
