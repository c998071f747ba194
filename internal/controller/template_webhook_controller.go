// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/internal/nswrite"
	"github.com/nslifecycle/nslifecycle/internal/webhooks"
)

// TemplateWebhookReconciler sets the URL of the webhook for NamespaceTemplates, for an API server that
// cannot reach its Service.
//
// Its permissions are in config/hold.
type TemplateWebhookReconciler struct {
	client.Client
	URL string
}

// SetupWithManager registers the reconciler.
func (r *TemplateWebhookReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(templateWebhookControllerName).
		For(&admissionregistrationv1.ValidatingWebhookConfiguration{}).
		Complete(r)
}

// Reconcile updates the ValidatingWebhookConfiguration.
func (r *TemplateWebhookReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := r.Get(ctx, request.NamespacedName, configuration); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	current := configuration.DeepCopy()
	for i := range configuration.Webhooks {
		webhooks.SetURL(&configuration.Webhooks[i].ClientConfig, r.URL)
	}
	if apiequality.Semantic.DeepEqual(current, configuration) {
		return ctrl.Result{}, nil
	}
	switch err := r.Update(ctx, configuration, client.FieldOwner(nswrite.FieldOwner)); {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("failed to update ValidatingWebhookConfiguration %q: %w", configuration.Name, err)
	}
	log.FromContext(ctx).Info("Updated the URL of the webhook for templates", "url", r.URL)
	return ctrl.Result{}, nil
}
