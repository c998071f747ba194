// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"

	"k8s.io/client-go/discovery"

	"github.com/nslifecycle/nslifecycle/internal/admission/install"
	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	"github.com/nslifecycle/nslifecycle/internal/admission/verify"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/controller"
)

// addAdmission adds the reconciler that makes API servers enforce the set of initializers.
func addAdmission(_ context.Context, s *shared) error {
	s.cached = append(s.cached, &internalv1alpha1.NamespaceInitializerSet{})
	s.cached = append(s.cached, policies.Objects()...)
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(s.GetConfig())
	if err != nil {
		return fmt.Errorf("failed to create a discovery client: %w", err)
	}
	return (&controller.AdmissionReconciler{
		Client: s.GetClient(),
		Installer: &install.Installer{
			Client: s.GetClient(), Live: s.GetAPIReader(), Discovery: discoveryClient, ServerClock: s.ServerClock,
			URL: s.Hold.URL,
		},
		Verifier: &verify.Verifier{Namespaces: s.GetClient()},
		Clock:    s.Clock, Webhooks: s.Hold.Options, SystemNamespace: s.SystemNamespace,
	}).SetupWithManager(s)
}
