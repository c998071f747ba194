// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package graceperiod computes the grace period between the deletion of a Namespace and the earliest
// check that it is empty, from the Leases of the API servers and the admission webhooks.
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

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
)

const (
	// webhooksMaxAge is the maximum age of a cached list of webhooks before the shortest grace
	// period of --settling-time=auto has expired.
	webhooksMaxAge = time.Second
	// webhooksTimeout is the timeout of the list requests. It is the longest grace period of
	// --settling-time=auto.
	webhooksTimeout = 5 * time.Second
)

// Source computes the grace period of terminating Namespaces. It is a
// [finalization.GracePeriodSource].
type Source struct {
	// Config is the value of --settling-time.
	Config finalization.GracePeriod
	// Leases reads the Leases of the API servers, from a cache.
	Leases client.Reader
	// Live reads from the API server instead of a cache.
	Live  client.Reader
	Clock clock.PassiveClock

	// loggedReason is the reason that was logged last. It determines the grace period.
	loggedReason atomic.Value
	webhooks     delayingWebhooks
}

// GracePeriod returns the grace period of a Namespace whose deletion was first seen at the given time.
func (s *Source) GracePeriod(ctx context.Context, firstSeen time.Time) time.Duration {
	now := s.Clock.Now() // The caller may have waited for a request since firstSeen.
	var leases coordinationv1.LeaseList
	var err error
	if s.Config.Fixed == nil {
		err = s.Leases.List(ctx, &leases, client.InNamespace(metav1.NamespaceSystem),
			client.MatchingLabels{finalization.APIServerLeaseLabel: finalization.APIServerLeaseValue})
	}
	chosen, reason := s.Config.Choose(leases.Items, err, now, func() ([]string, error) {
		return s.webhooks.get(ctx, s.Live, s.Clock, firstSeen, now)
	})
	metrics.SetSettlingTime(chosen)
	if s.loggedReason.Swap(reason) != reason {
		log.FromContext(ctx).WithName("settling-time").Info("Chose the grace period of terminating namespaces",
			"settlingTime", chosen.String(), "reason", reason)
	}
	return chosen
}

// delayingWebhooks is the last list of webhooks that can delay a request, shared by all Namespaces.
//
// It sends list requests and is not an informer. A namespace is finalized only if a list requested
// after its deletion was seen has no such webhook, whereas nothing limits how stale an informer is;
// and an informer without permission to list would keep the manager from starting. There are at
// most two requests a second, independent of the number of terminating namespaces.
type delayingWebhooks struct {
	lock   sync.Mutex
	listed time.Time
	names  []string
	err    error
}

// get returns the webhooks from a list that was requested after seen, the time when a deletion was
// first seen, or at most webhooksMaxAge ago.
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
		w.listed = passive.Now() // Callers that have waited for the lock do not repeat the requests.
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
	return finalization.DelayingWebhooks(mutating.Items, validating.Items), nil
}
