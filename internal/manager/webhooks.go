// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/template/validation"
	"github.com/nslifecycle/nslifecycle/internal/webhooks"
)

// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// setupWebhooks adds the webhooks that hold writes, and the one for templates unless validator is nil, and returns
// their server. It returns nil unless the options enable them.
func setupWebhooks(
	ctx context.Context, mgr ctrl.Manager, options Options, validator *validation.Validator,
) (*webhooks.Server, error) {
	if !options.Hold.IsServed() || !options.Controllers.Runs(Initialization) {
		return nil, nil
	}
	server, err := webhooks.NewServer(ctx, mgr, options.Hold.Options, options.SystemNamespace)
	if err != nil {
		return nil, fmt.Errorf("failed to set up the server of the webhooks: %w", err)
	}
	if validator != nil {
		validator.Register(server)
	}
	if err := hold.Register(ctx, server, mgr.GetCache(), hold.Config{
		Namespaces: mgr.GetClient(), Live: mgr.GetAPIReader(), AccessReviews: mgr.GetClient(),
		Duration: options.Hold.Duration, Limits: options.Hold.Limits, Metrics: metrics.HoldRecorder{},
		Stopping: ctx.Done(),
	}); err != nil {
		return nil, fmt.Errorf("failed to set up the webhooks that hold requests: %w", err)
	}
	return server, nil
}
