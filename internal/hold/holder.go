// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Config configures the webhook.
type Config struct {
	// Namespaces reads from the informer cache.
	Namespaces client.Reader
	// Live reads from the API server.
	Live client.Reader
	// AccessReviews creates SubjectAccessReviews.
	AccessReviews Creator
	// Duration is the maximum time that a write waits, and the size of the budget of a likely controller.
	Duration time.Duration
	Limits   Limits
	Metrics  Recorder
	// Stopping is closed when the manager stops. Held writes are then sent again to another replica.
	Stopping <-chan struct{}
}

// Creator creates objects.
type Creator interface {
	Create(context.Context, client.Object, ...client.CreateOption) error
}

// Recorder records the writes that the webhook receives.
type Recorder interface {
	// Held records that a write waits from now on. Call the result with the outcome.
	Held() (done func(Outcome))
	// Answered records a write that did not wait.
	Answered(Outcome)
}

// Outcome is what happened to a write.
type Outcome string

// The outcomes.
const (
	// OutcomeResend: the initialization ended, and the client was asked to send the write again.
	OutcomeResend Outcome = "Resend"
	// OutcomeTimedOut: the initialization did not complete in time.
	OutcomeTimedOut Outcome = "TimedOut"
	// OutcomeFailed: the initialization failed.
	OutcomeFailed Outcome = "Failed"
	// OutcomeAllowed: the gate decides, because the Namespace is terminating or the gate is in audit mode.
	OutcomeAllowed Outcome = "Allowed"
	// OutcomeOverLimit: the write was rejected because of the limits.
	OutcomeOverLimit Outcome = "OverLimit"
	// OutcomeOverBudget: the write was rejected at once, because earlier writes of this ServiceAccount, which has not
	// created the Namespace, have waited as long as they may.
	OutcomeOverBudget Outcome = "OverBudget"
	// OutcomeCanceled: the API server canceled the webhook call, for example because the client
	// canceled its request.
	OutcomeCanceled Outcome = "Canceled"
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeResend, OutcomeTimedOut, OutcomeFailed, OutcomeAllowed, OutcomeOverLimit, OutcomeOverBudget,
		OutcomeCanceled,
	}
}

// Holder holds writes, and requests that RBAC does not allow yet.
type Holder struct {
	config  Config
	changes changes
	slots   slots
	budgets budgets
	// isAudited reports whether the gate is in audit mode.
	isAudited atomic.Bool
}

// wait returns when the initialization of a Namespace has ended according to the function, when the time limit has
// expired, when the context is done, and when the manager stops. It returns the Namespace that it has read last, which
// can be nil.
func (h *Holder) wait(
	ctx context.Context, name string, duration time.Duration, hasEnded func(now *corev1.Namespace) bool,
) (*corev1.Namespace, error) {
	limit := time.NewTimer(duration)
	defer limit.Stop()
	for {
		changed := h.changes.next(name)
		now, err := h.get(ctx, name)
		if err != nil || hasEnded(now) {
			return now, err
		}
		select {
		case <-changed:
			continue
		case <-limit.C:
		case <-h.config.Stopping:
		case <-ctx.Done():
		}
		return now, nil
	}
}

// get returns a Namespace from the cache, or nil if that does not contain it.
func (h *Holder) get(ctx context.Context, name string) (*corev1.Namespace, error) {
	return getFrom(ctx, h.config.Namespaces, name)
}

func getFrom(ctx context.Context, reader client.Reader, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	err := reader.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return namespace, err
}
