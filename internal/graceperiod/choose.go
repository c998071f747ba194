// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package graceperiod

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

const (
	// APIServerLeaseLabel is the label of the Leases that kube-apiservers renew in the kube-system
	// namespace (KEP-1965).
	APIServerLeaseLabel = "apiserver.kubernetes.io/identity"
	// APIServerLeaseValue is the value of the label.
	APIServerLeaseValue = "kube-apiserver"

	// shortGracePeriod applies if there is only one API server and no webhook can delay a CREATE
	// request. This server serves the DELETE request for the namespace and every CREATE request, so
	// only its own watch cache of namespaces can be stale, and only by milliseconds.
	shortGracePeriod = time.Second
	// longGracePeriod is the time that upstream's namespace controller always waits.
	longGracePeriod = 5 * time.Second

	automatic = "Auto"

	invalidGracePeriod = "grace period %q is neither %q nor a duration such as \"5s\""
)

// The reasons for the chosen grace period, in a log message.
const (
	graceFixed          = "set by --finalization-grace-period"
	graceNoLeases       = "kube-system contains no current Lease of an API server"
	graceLeasesUnknown  = "the Leases of the API servers could not be listed: %v"
	graceManyServers    = "there are %d API servers: %s"
	graceWebhookUnknown = "the admission webhooks could not be listed: %v"
	graceWebhooks       = "admission webhooks can delay requests: %d; the first is %s"
	graceOneServer      = "there is one API server: %s"
)

// GracePeriod is the minimum time from the moment when the operator first sees a deletion to the
// start of a pass that can confirm that the namespace is empty. After this time, every API server
// has seen the deletion.
type GracePeriod struct {
	// Fixed is the grace period. If it is nil, the grace period depends on the API servers and the
	// admission webhooks.
	Fixed *time.Duration
}

// ParseGracePeriod parses "Auto" or a duration such as "5s".
func ParseGracePeriod(text string) (GracePeriod, error) {
	if text == automatic {
		return GracePeriod{}, nil
	}
	fixed, err := time.ParseDuration(text)
	if err != nil || fixed < 0 {
		return GracePeriod{}, fmt.Errorf(invalidGracePeriod, text, automatic)
	}
	return GracePeriod{Fixed: &fixed}, nil
}

// Choose returns the grace period and the reason for it. The Leases are the Leases of the API
// servers; err is the error from listing them. listWebhooks returns the webhooks that can delay a
// CREATE request. Choose calls it only if the grace period depends on them.
func (p GracePeriod) Choose(
	leases []coordinationv1.Lease, err error, now time.Time, listWebhooks func() ([]string, error),
) (time.Duration, string) {
	if p.Fixed != nil {
		return *p.Fixed, graceFixed
	}
	if err != nil {
		return longGracePeriod, fmt.Sprintf(graceLeasesUnknown, err)
	}
	var live []string
	for i := range leases {
		if isLive(&leases[i], now) {
			live = append(live, leases[i].Name)
		}
	}
	slices.Sort(live)
	switch len(live) {
	case 0:
		return longGracePeriod, graceNoLeases
	case 1:
	default:
		return longGracePeriod, fmt.Sprintf(graceManyServers, len(live), strings.Join(live, ", "))
	}
	webhooks, err := listWebhooks()
	switch {
	case err != nil:
		return longGracePeriod, fmt.Sprintf(graceWebhookUnknown, err)
	case len(webhooks) > 0:
		return longGracePeriod, fmt.Sprintf(graceWebhooks,
			len(webhooks), slices.Min(webhooks))
	default:
		return shortGracePeriod, fmt.Sprintf(graceOneServer, live[0])
	}
}

// isLive reports whether a Lease has not expired. A Lease without a renewal time or a duration never
// expires.
func isLive(lease *coordinationv1.Lease, now time.Time) bool {
	if lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return true
	}
	return now.Before(lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second))
}
