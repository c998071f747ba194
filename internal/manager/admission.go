// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
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

// addAdmission adds the reconciler that makes API servers enforce the set of initializers.
func addAdmission(_ context.Context, s *shared) error {
	s.cached = append(s.cached, &internalv1alpha1.NamespaceInitializerSet{})
	s.cached = append(s.cached, policyverifier.Objects()...)
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(s.GetConfig())
	if err != nil {
		return fmt.Errorf("failed to create a discovery client: %w", err)
	}
	s.installer = &mutation.Installer{
		Client: s.GetClient(), Live: s.GetAPIReader(), Discovery: discoveryClient, Clock: s.ServerClock,
	}
	s.installer.StartWebhooks = sync.OnceValue(func() error {
		return setupWebhookConfigurations(s, s.Options, s.installer.Webhooks != nil)
	})
	return (&controller.AdmissionReconciler{
		Client: s.GetClient(),
		Policies: &policyverifier.Verifier{
			Client: s.GetClient(), Live: s.GetAPIReader(), Clock: s.ServerClock, Mutation: s.installer,
		},
		Mutation: s.installer, Clock: s.Clock,
	}).SetupWithManager(s)
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
