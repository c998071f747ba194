// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Paths of the webhooks in config/hold.
const (
	holdPath   = "/hold"
	resendPath = "/resend"
)

// responseTime is reserved for the response to reach the API server before its timeout.
const responseTime = time.Second

// Register registers both webhooks at a server. They serve on every replica, whichever is the leader.
func Register(ctx context.Context, server webhook.Server, informers cache.Informers, config Config) error {
	holder := &Holder{config: config, slots: slots{limits: config.Limits}}
	if err := holder.changes.watch(ctx, informers); err != nil {
		return err
	}
	server.Register(holdPath, &admission.Webhook{
		Handler:         handler{Holder: holder},
		WithContextFunc: withTimeout,
	})
	server.Register(resendPath, &admission.Webhook{
		Handler:         handler{Holder: holder, isSecond: true},
		WithContextFunc: withTimeout,
	})
	return nil
}

// handler serves one of the two webhooks.
type handler struct {
	*Holder
	// isSecond is true for the webhook that is called only by an API server whose informer is stale,
	// or if the first one was not available.
	isSecond bool
}

// Handle implements admission.Handler. If the Namespace cannot be read, the gate decides.
func (h handler) Handle(ctx context.Context, request admission.Request) admission.Response {
	before, err := h.find(ctx, request.Namespace)
	if err != nil {
		log.FromContext(ctx).Error(err, messageNotRead, "namespace", request.Namespace)
		return admission.Allowed("")
	}
	if before == nil || phaseOf(before) != phasePending {
		outcome, response := h.decide(&request.AdmissionRequest, before, before)
		h.config.Metrics.Answered(outcome)
		return response
	}
	if !h.slots.acquire(request.UserInfo.Username) {
		h.config.Metrics.Answered(OutcomeOverLimit)
		return tryAgain(before.Name, retryAfter(before, time.Now()), overLimitMessage(before))
	}
	defer h.slots.release(request.UserInfo.Username)
	outcome, response := OutcomeCanceled, admission.Response{}
	done := h.config.Metrics.Held()
	defer func() { done(outcome) }()

	h.waitFor(ctx, before)
	if ctx.Err() != nil {
		return response
	}
	// The API server has checked that the Namespace is not terminating before it called the webhook,
	// and does not check it again. The watch may lag behind its deletion.
	after, err := get(ctx, h.config.Live, before.Name)
	if err != nil {
		log.FromContext(ctx).Info(messageNotRead, "namespace", request.Namespace, "error", err.Error())
		after = before
	}
	outcome, response = h.decide(&request.AdmissionRequest, before, after)
	return response
}

// decide returns the response to a write. The Namespace is nil if it does not exist.
func (h handler) decide(
	request *admissionv1.AdmissionRequest, before, after *corev1.Namespace,
) (Outcome, admission.Response) {
	if after == nil {
		return OutcomeFailed, notFound(request.Namespace)
	}
	switch phaseOf(after) {
	case phaseWritable:
		if h.isSecond || mustResend(request, before, after) {
			return OutcomeResend, tryAgain(after.Name, resendDelay, resendMessage(after.Name))
		}
		return OutcomeReleased, admission.Allowed("")
	case phaseFailed:
		return OutcomeFailed, failed(after)
	case phaseTerminating:
		if request.Operation == admissionv1.Create {
			return OutcomeFailed, terminating(request, after)
		}
		// The gate admits deletions, and updates of objects that are being deleted.
		return OutcomeReleased, admission.Allowed("")
	}
	return OutcomeTimedOut, tryAgain(after.Name, resendDelay, pendingMessage(after))
}

type timeoutKey struct{}

// withTimeout adds the timeout of the API server to the context.
func withTimeout(ctx context.Context, request *http.Request) context.Context {
	timeout, err := time.ParseDuration(request.URL.Query().Get("timeout"))
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, timeoutKey{}, timeout)
}

// waitFor waits for a Namespace, but not so long that the API server times out: it would then ignore
// the webhook, and the gate would reject the write.
func (h *Holder) waitFor(ctx context.Context, namespace *corev1.Namespace) {
	duration := h.config.Duration
	if timeout, ok := ctx.Value(timeoutKey{}).(time.Duration); ok {
		duration = min(duration, timeout-responseTime)
	}
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	h.wait(ctx, namespace)
}
