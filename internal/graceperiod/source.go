// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package graceperiod chooses the grace period between the deletion of a Namespace and the earliest
// check that it is empty. The grace period depends on the Leases of the API servers and on the
// admission webhooks.
package graceperiod

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
)

const (
	// webhooksMaxAge is the maximum age of a cached list of webhooks. It must not exceed the shortest
	// grace period of --finalization-grace-period=Auto. Otherwise, a namespace could be finalized based on a list
	// from before its deletion.
	webhooksMaxAge = time.Second
	// webhooksTimeout is the timeout of the list requests. It equals the longest grace period of
	// --finalization-grace-period=Auto.
	webhooksTimeout = 5 * time.Second
)

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,verbs=list

// Source chooses the grace period of terminating Namespaces.
type Source struct {
	// Config is the value of --finalization-grace-period.
	Config GracePeriod
	// Leases reads the Leases of the API servers from a cache.
	Leases client.Reader
	// Live reads from the API server instead of a cache.
	Live  client.Reader
	Clock clock.PassiveClock
	// ServerClock is compared with the renewal times of the Leases.
	ServerClock *servertime.Clock

	// loggedReason is the last logged reason for the chosen grace period.
	loggedReason atomic.Value
	webhooks     delayingWebhooks
}

// GracePeriod returns the grace period of a Namespace whose deletion was first seen at the given time.
func (s *Source) GracePeriod(ctx context.Context, firstSeen time.Time) time.Duration {
	now := s.Clock.Now() // This can be later than firstSeen, because the caller might have waited for requests.
	var leases coordinationv1.LeaseList
	var err error
	if s.Config.Fixed == nil {
		err = s.Leases.List(ctx, &leases, client.InNamespace(metav1.NamespaceSystem),
			client.MatchingLabels{APIServerLeaseLabel: APIServerLeaseValue})
	}
	chosen, reason := s.Config.Choose(leases.Items, err, s.ServerClock.Now(), func() ([]string, error) {
		return s.webhooks.get(ctx, s.Live, s.Clock, firstSeen, now)
	})
	metrics.SetGracePeriod(chosen)
	if s.loggedReason.Swap(reason) != reason {
		log.FromContext(ctx).WithName("grace-period").Info("Chose the grace period of terminating namespaces",
			"gracePeriod", chosen.String(), "reason", reason)
	}
	return chosen
}

// delayingWebhooks caches the last list of webhooks that can delay a request, for all Namespaces.
//
// It sends list requests instead of using an informer. The short grace period is safe only if no
// such webhook existed when the deletion was seen. A list request determines this reliably, but an
// informer can be stale for any length of time. In addition, the manager could not start if an
// informer lacked the permission to list webhooks. delayingWebhooks sends at most two requests per
// second, regardless of the number of terminating namespaces.
type delayingWebhooks struct {
	lock   sync.Mutex
	listed time.Time
	names  []string
	err    error
}

// get returns the webhooks from a list that was requested after the deletion was first seen, or at most
// webhooksMaxAge ago.
func (w *delayingWebhooks) get(
	ctx context.Context, reader client.Reader, passive clock.PassiveClock, seen, now time.Time,
) ([]string, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	oldest := now.Add(-webhooksMaxAge)
	if w.err == nil && seen.Before(oldest) {
		oldest = seen
	}
	if !w.listed.IsZero() && !w.listed.Before(oldest) {
		return w.names, w.err
	}
	w.listed = passive.Now()
	if w.names, w.err = listDelayingWebhooks(ctx, reader); w.err != nil {
		w.listed = passive.Now() // Callers that waited for the lock must not repeat the failed request.
	}
	return w.names, w.err
}

func listDelayingWebhooks(ctx context.Context, reader client.Reader) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, webhooksTimeout)
	defer cancel()
	var mutating admissionv1.MutatingWebhookConfigurationList
	if err := reader.List(ctx, &mutating); err != nil {
		return nil, fmt.Errorf("failed to list MutatingWebhookConfigurations: %w", err)
	}
	var validating admissionv1.ValidatingWebhookConfigurationList
	if err := reader.List(ctx, &validating); err != nil {
		return nil, fmt.Errorf("failed to list ValidatingWebhookConfigurations: %w", err)
	}
	return DelayingWebhooks(mutating.Items, validating.Items), nil
}
