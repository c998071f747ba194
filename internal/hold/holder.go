// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Config configures the webhooks.
type Config struct {
	// Namespaces reads from the informer cache, Live from the API server.
	Namespaces, Live client.Reader
	// Duration is the maximum time that a write waits.
	Duration time.Duration
	Limits   Limits
	Metrics  Recorder
	// Stopping is closed when the manager stops. Held writes are then sent again to another replica.
	Stopping <-chan struct{}
}

// Recorder records the writes that the webhooks receive.
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
	// OutcomeReleased: the initialization completed, and the write was allowed.
	OutcomeReleased Outcome = "released"
	// OutcomeResend: the initialization completed, and the client was asked to send the write again.
	OutcomeResend Outcome = "resend"
	// OutcomeTimedOut: the initialization did not complete in time.
	OutcomeTimedOut Outcome = "timed_out"
	// OutcomeFailed: the initialization failed, or the Namespace was deleted.
	OutcomeFailed Outcome = "failed"
	// OutcomeOverLimit: the write was rejected because of the limits.
	OutcomeOverLimit Outcome = "over_limit"
	// OutcomeCanceled: the API server canceled the webhook call, for example because the client
	// canceled its request.
	OutcomeCanceled Outcome = "canceled"
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeReleased, OutcomeResend, OutcomeTimedOut, OutcomeFailed, OutcomeOverLimit, OutcomeCanceled,
	}
}

// Holder holds writes. Both webhooks share its limits.
type Holder struct {
	config  Config
	changes changes
	slots   slots
}

// find returns the Namespace of a write, or nil if it does not exist. Only a pending initialization
// is read from the cache: the API server has called the webhook because the Namespace has the label,
// so any other state in the cache may be older than what the API server has seen.
func (h *Holder) find(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace, err := get(ctx, h.config.Namespaces, name)
	if err == nil && namespace != nil && phaseOf(namespace) == phasePending {
		return namespace, nil
	}
	return get(ctx, h.config.Live, name)
}

// wait returns when a Namespace is no longer pending or was deleted, when the context is done, and when
// the manager stops.
func (h *Holder) wait(ctx context.Context, namespace *corev1.Namespace) {
	for isCached := false; ; {
		changed := h.changes.next(namespace.Name)
		cached, err := get(ctx, h.config.Namespaces, namespace.Name)
		switch {
		case err == nil && cached != nil && cached.UID == namespace.UID:
			if phaseOf(cached) != phasePending {
				return
			}
			isCached = true
		case err == nil && isCached:
			return
		}
		select {
		case <-changed:
		case <-h.config.Stopping:
			return
		case <-ctx.Done():
			return
		}
	}
}

// get returns nil if the Namespace does not exist.
func get(ctx context.Context, reader client.Reader, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	err := reader.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return namespace, err
}
