// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

const (
	// APIServerLeaseLabel is on the Leases that kube-apiservers renew in namespace kube-system
	// (KEP-1965).
	APIServerLeaseLabel = "apiserver.kubernetes.io/identity"
	// APIServerLeaseValue is its value.
	APIServerLeaseValue = "kube-apiserver"

	// shortSettlingTime is for one API server, which serves the DELETE of the namespace and every
	// CREATE, and no webhook that can delay a CREATE. What remains is that server's own watch
	// cache of namespaces, which is stale by milliseconds.
	shortSettlingTime = time.Second
	// longSettlingTime is how long upstream's namespace controller always waits.
	longSettlingTime = 5 * time.Second

	automatic = "auto"
)

// SettlingTime is the grace period between the time when the operator sees a deletion and the start
// of a pass that can confirm that the namespace is empty. By then every API server has seen the
// deletion.
type SettlingTime struct {
	// Fixed is the time; if nil, the API servers and the admission webhooks decide.
	Fixed *time.Duration
}

// ParseSettlingTime reads "auto" or a duration such as "5s".
func ParseSettlingTime(text string) (SettlingTime, error) {
	if text == automatic {
		return SettlingTime{}, nil
	}
	fixed, err := time.ParseDuration(text)
	if err != nil || fixed < 0 {
		return SettlingTime{}, fmt.Errorf("settling time %q is neither %q nor a duration such as \"5s\"", text, automatic)
	}
	return SettlingTime{Fixed: &fixed}, nil
}

// Choose returns the grace period and the reason for it. The Leases are those of the API servers;
// err is the error of reading them. listWebhooks returns the webhooks that can delay a CREATE; it
// is called only if the grace period depends on them.
func (s SettlingTime) Choose(
	leases []coordinationv1.Lease, err error, now time.Time, listWebhooks func() ([]string, error),
) (time.Duration, string) {
	if s.Fixed != nil {
		return *s.Fixed, "set by --settling-time"
	}
	if err != nil {
		return longSettlingTime, fmt.Sprintf("the Leases of the API servers could not be listed: %v", err)
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
		return longSettlingTime, "there is no current Lease of an API server in kube-system"
	case 1:
	default:
		return longSettlingTime, fmt.Sprintf("there are %d API servers: %s", len(live), strings.Join(live, ", "))
	}
	webhooks, err := listWebhooks()
	switch {
	case err != nil:
		return longSettlingTime, fmt.Sprintf("the admission webhooks could not be listed: %v", err)
	case len(webhooks) > 0:
		return longSettlingTime, fmt.Sprintf("admission webhooks can delay requests: %d, the first is %s",
			len(webhooks), slices.Min(webhooks))
	default:
		return shortSettlingTime, "there is one API server: " + live[0]
	}
}

// isLive reports whether a Lease has not expired. Without a renewal time or a duration it has not.
func isLive(lease *coordinationv1.Lease, now time.Time) bool {
	if lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return true
	}
	return now.Before(lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second))
}
