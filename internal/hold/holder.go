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

	"github.com/nslifecycle/nslifecycle/internal/webhooks"
)

// Config configures the webhook.
type Config struct {
	// Namespaces reads from the informer cache.
	Namespaces client.Reader
	// Duration is the maximum time that a write waits.
	Duration time.Duration
	Limits   Limits
	Metrics  Recorder
	// EarlyWrites records the writes that are admitted in audit mode.
	EarlyWrites EarlyWrites
	// Stopping is closed when the manager stops. Held writes are then sent again to another replica.
	Stopping <-chan struct{}
}

// Recorder records the writes that the webhook receives.
type Recorder interface {
	// Held records that a write waits from now on. Call the result with the outcome.
	Held() (done func(Outcome))
	// Answered records a write that did not wait.
	Answered(Outcome)
}

// EarlyWrites records writes.
type EarlyWrites interface{ Record(*webhooks.Request) }

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
	// OutcomeAllowed: the Namespace is terminating, and the gate decides.
	OutcomeAllowed Outcome = "Allowed"
	// OutcomeAudited: the gate is in audit mode, and admits the write with a warning.
	OutcomeAudited Outcome = "Audited"
	// OutcomeOverLimit: the write was rejected because of the limits.
	OutcomeOverLimit Outcome = "OverLimit"
	// OutcomeCanceled: the API server canceled the webhook call, for example because the client
	// canceled its request.
	OutcomeCanceled Outcome = "Canceled"
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeResend, OutcomeTimedOut, OutcomeFailed, OutcomeAllowed, OutcomeAudited, OutcomeOverLimit, OutcomeCanceled,
	}
}

// Holder holds writes.
type Holder struct {
	config  Config
	changes changes
	slots   slots
	// isAudited reports whether the gate is in audit mode.
	isAudited atomic.Bool
}

// wait returns when the initialization of a Namespace has ended, when the time limit has expired, when the context
// is done, and when the manager stops. It returns the Namespace that it has read last, which can be nil.
func (h *Holder) wait(ctx context.Context, before *corev1.Namespace) (*corev1.Namespace, error) {
	limit := time.NewTimer(h.config.Duration)
	defer limit.Stop()
	for {
		changed := h.changes.next(before.Name)
		now, err := h.get(ctx, before.Name)
		if err != nil || hasEnded(before, now) {
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

// get returns nil if the Namespace does not exist.
func (h *Holder) get(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	err := h.config.Namespaces.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return namespace, err
}
