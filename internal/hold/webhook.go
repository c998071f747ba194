// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
)

// The paths of the webhooks in config/webhook and config/authorization.
const (
	path          = "/hold"
	probePath     = "/probe"
	authorizePath = "/authorize"
)

// Register registers the webhooks at a server. They serve on every replica, whichever is the leader.
func Register(ctx context.Context, server *webhooks.Server, informers cache.Informers, config Config) error {
	holder := &Holder{config: config, slots: slots{limits: config.Limits}, budgets: budgets{size: config.Duration}}
	if err := holder.changes.watch(ctx, informers); err != nil {
		return err
	}
	if err := holder.watchEnforcement(ctx, informers); err != nil {
		return err
	}
	server.Register(webhooks.Webhook{Path: path, Handle: holder.Handle})
	server.Register(webhooks.Webhook{Path: probePath, Handle: admit})
	server.RegisterAuthorizer(webhooks.Authorizer{Path: authorizePath, Handle: holder.Authorize})
	return nil
}

// admit answers dry runs of the operator.
func admit(context.Context, *webhooks.Request) (*admissionv1.AdmissionResponse, error) {
	return &admissionv1.AdmissionResponse{Allowed: true}, nil
}

// Handle implements webhooks.Webhook. If the Namespace cannot be read, the gate decides.
func (h *Holder) Handle(ctx context.Context, request *webhooks.Request) (*admissionv1.AdmissionResponse, error) {
	namespace, err := h.get(ctx, request.Namespace)
	if err != nil {
		return nil, fmt.Errorf("failed to get Namespace %q: %w", request.Namespace, err)
	}
	decision := decide(request.Operation, namespace)
	if decision != decideAllow && h.isAudited.Load() {
		h.config.Metrics.Answered(OutcomeAllowed)
		return &admissionv1.AdmissionResponse{Allowed: true}, nil // The gate adds the warning.
	}
	switch decision {
	case decideHold:
		return h.hold(ctx, request, namespace)
	case decideFail:
		h.config.Metrics.Answered(OutcomeFailed)
		return failed(namespace), nil
	case decideAllow:
		h.config.Metrics.Answered(OutcomeAllowed)
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	}
	h.config.Metrics.Answered(OutcomeResend)
	return tryAgain(request.Namespace, resendDelay, resendMessage(request.Namespace)), nil
}

func (h *Holder) hold(
	ctx context.Context, request *webhooks.Request, before *corev1.Namespace,
) (*admissionv1.AdmissionResponse, error) {
	user, start, limit := request.Username, time.Now(), h.config.Duration
	isController := isLikelyController(user, before)
	if isController {
		limit = h.budgets.remaining(user, start)
	}
	if limit == 0 {
		h.config.Metrics.Answered(OutcomeOverBudget)
		return reject(before.Name, pendingMessage(before)), nil
	}
	if !h.slots.acquire(user) {
		h.config.Metrics.Answered(OutcomeOverLimit)
		if isController {
			return reject(before.Name, overLimitMessage(before)), nil
		}
		return tryAgain(before.Name, retryAfter(before, start), overLimitMessage(before)), nil
	}
	defer h.slots.release(user)
	request.Serving()
	done := h.config.Metrics.Held()
	after, err := h.wait(ctx, before.Name, limit, func(now *corev1.Namespace) bool { return hasEnded(before, now) })
	if isController {
		now := time.Now()
		waited := now.Sub(start)
		if hasEnded(before, after) {
			waited += resendDelay // The client waits for Retry-After, too.
		}
		h.budgets.spend(user, waited, now)
	}
	if err == nil && errors.Is(ctx.Err(), context.Canceled) {
		err = ctx.Err()
	}
	if err != nil {
		done(OutcomeCanceled)
		return nil, fmt.Errorf("failed to wait for Namespace %q: %w", before.Name, err)
	}
	outcome, response := answer(before, after, isController)
	done(outcome)
	return response, nil
}

// answer returns the response to a write that was held.
func answer(before, after *corev1.Namespace, isController bool) (Outcome, *admissionv1.AdmissionResponse) {
	switch {
	case !hasEnded(before, after) && isController:
		return OutcomeTimedOut, reject(before.Name, pendingMessage(after))
	case !hasEnded(before, after):
		return OutcomeTimedOut, tryAgain(before.Name, resendDelay, pendingMessage(after))
	case after != nil && after.UID == before.UID && decide(admissionv1.Create, after) == decideFail:
		return OutcomeFailed, failed(after)
	}
	return OutcomeResend, tryAgain(before.Name, resendDelay, resendMessage(before.Name))
}
