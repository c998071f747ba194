// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/internal/admission/install"
	"github.com/nslifecycle/nslifecycle/internal/admission/verify"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/hold"
)

const (
	// webhookProbeInterval is the time between two probes of the webhooks, and webhookProbeRetry the time after the first
	// that failed. It doubles up to the interval.
	webhookProbeInterval = 10 * time.Second
	webhookProbeRetry    = time.Second
)

// HoldReconciler configures the webhooks that hold writes: it selects the writes by the
// waitingSubjects of the effective set, and sets the URL of the webhooks, if there is one. While API servers
// get no response from them, for example because a firewall drops packets, they select no writes: each
// would wait for the timeoutSeconds of the webhooks before the gate policy rejects it.
//
// Its permissions are in config/webhook.
type HoldReconciler struct {
	client.Client
	// URL is the address of the webhooks for an API server that cannot reach their Service; empty
	// otherwise.
	URL string

	// retryDelay is the time between the last two probes if they failed, and retryAt the time of the next one. Reconciles
	// before that time do not increase the delay.
	retryDelay time.Duration
	retryAt    time.Time
}

// SetupWithManager registers the reconciler.
func (r *HoldReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(holdControllerName).
		For(&admissionregistrationv1.MutatingWebhookConfiguration{}).
		Watches(&internalv1alpha1.NamespaceInitializerSet{}, handler.EnqueueRequestsFromMapFunc(
			func(context.Context, client.Object) []reconcile.Request {
				return []reconcile.Request{requestFor(internalv1alpha1.HoldConfiguration)}
			}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{RateLimiter: newRateLimiter(5 * time.Millisecond)}).
		Complete(untilStopped(r))
}

// Reconcile updates the MutatingWebhookConfiguration.
func (r *HoldReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := r.Get(ctx, request.NamespacedName, configuration); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	set := &internalv1alpha1.NamespaceInitializerSet{}
	name := internalv1alpha1.EffectiveSetName
	if err := r.Get(ctx, client.ObjectKey{Name: name}, set); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("failed to get NamespaceInitializerSet %q: %w", name, err)
	}
	isHolding, delay, err := r.probe(ctx, configuration)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := install.UpdateWebhooks(ctx, r.Client, configuration, func() []any {
		hold.Configure(configuration, r.URL, isHolding, set.WaitingSubjects)
		return []any{"waitingSubjects", len(set.WaitingSubjects), "isHolding", isHolding}
	}, "Updated the webhooks that hold writes"); err != nil {
		return retryStale(err)
	}
	return ctrl.Result{RequeueAfter: delay}, nil
}

// probe reports whether the webhooks are to hold writes, and returns the time until the next probe.
func (r *HoldReconciler) probe(
	ctx context.Context, configuration *admissionregistrationv1.MutatingWebhookConfiguration,
) (isHolding bool, delay time.Duration, err error) {
	state := verify.WebhooksTimeOut
	for attempt := 0; attempt < 2 && state == verify.WebhooksTimeOut; attempt++ { // One can be lost.
		if state, err = verify.ProbeWebhook(ctx, r.Client, hold.ProbeWebhook); err != nil {
			return false, 0, err
		}
	}
	if state == verify.WebhooksFail { // The configuration is not complete yet, or no replica is running.
		if now := time.Now(); !now.Before(r.retryAt) {
			r.retryDelay = min(max(2*r.retryDelay, webhookProbeRetry), webhookProbeInterval)
			r.retryAt = now.Add(r.retryDelay)
		}
		return hold.IsHolding(configuration), r.retryDelay, nil
	}
	r.retryDelay = 0
	return state == verify.WebhooksAnswer, webhookProbeInterval, nil
}
