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
	// APIServerLeaseLabel is on the Leases by which kube-apiservers tell that they live, in
	// namespace kube-system (KEP-1965).
	APIServerLeaseLabel = "apiserver.kubernetes.io/identity"
	// APIServerLeaseValue is its value.
	APIServerLeaseValue = "kube-apiserver"

	// oneServerSettlingTime is for a cluster with one API server, where the deletion and
	// everything that is created go through the same process. What remains is its own
	// watch of namespaces, which is milliseconds behind.
	oneServerSettlingTime = time.Second
	// manyServersSettlingTime is what upstream's namespace controller waits always.
	manyServersSettlingTime = 5 * time.Second

	automatic = "auto"
)

// SettlingTime is how long after a deletion was seen a pass must begin to count as
// proof that a namespace is empty. By then every API server has seen the deletion, too.
type SettlingTime struct {
	// Fixed is the time; chosen by the number of API servers if nil.
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

// Choose returns the settling time and the reason for it. The Leases are those of the
// API servers; an error says that they could not be read.
func (s SettlingTime) Choose(leases []coordinationv1.Lease, err error, now time.Time) (time.Duration, string) {
	if s.Fixed != nil {
		return *s.Fixed, "set by --settling-time"
	}
	if err != nil {
		return manyServersSettlingTime, fmt.Sprintf("the identities of the API servers could not be read: %v", err)
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
		return manyServersSettlingTime, "no API server has made itself known by a Lease in kube-system"
	case 1:
		return oneServerSettlingTime, "there is one API server: " + live[0]
	default:
		return manyServersSettlingTime, fmt.Sprintf("there are %d API servers: %s", len(live), strings.Join(live, ", "))
	}
}

// isLive tells whether a Lease has not run out. In doubt it has not.
func isLive(lease *coordinationv1.Lease, now time.Time) bool {
	if lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return true
	}
	return now.Before(lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second))
}
