// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/nslifecycle/nslifecycle/internal/admission/install"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
)

// TemplateWebhookReconciler sets the URL of the webhook for NamespaceTemplates, for an API server that
// cannot reach its Service.
//
// Its permissions are in config/webhook.
type TemplateWebhookReconciler struct {
	client.Client
	URL string
}

// SetupWithManager registers the reconciler.
func (r *TemplateWebhookReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(templateWebhookControllerName).
		For(&admissionregistrationv1.ValidatingWebhookConfiguration{}).
		WithOptions(controller.Options{RateLimiter: newRateLimiter(5 * time.Millisecond)}).
		Complete(untilStopped(r))
}

// Reconcile updates the ValidatingWebhookConfiguration.
func (r *TemplateWebhookReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := r.Get(ctx, request.NamespacedName, configuration); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := install.UpdateWebhooks(ctx, r.Client, configuration, func() []any {
		for i := range configuration.Webhooks {
			webhooks.SetURL(&configuration.Webhooks[i].ClientConfig, r.URL)
		}
		return []any{"url", r.URL}
	}, "Updated the URL of the webhook for templates"); err != nil {
		return retryStale(err)
	}
	return ctrl.Result{}, nil
}
