// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// ManagerLease is the default name of the Lease of this project's manager.
const ManagerLease = "nslifecycle.dev"

// finalizationLease is the name of the Lease of config/manager/finalization.
const finalizationLease = "finalization." + ManagerLease

// DescribeLease returns a description of a Lease, and whether its holder seems to be running. A leader
// renews its Lease several times within the lease duration, and a new leader acquires the Lease soon
// after it expires.
func DescribeLease(facts *diagnosis.Facts, lease *coordinationv1.Lease) (text string, isCurrent bool) {
	const durations = 4
	renewed := lease.Spec.RenewTime.Time
	limit := max(durations*time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 15))*time.Second, time.Minute)
	text = fmt.Sprintf(textLease, lease.Namespace, lease.Name, facts.Ago(renewed), diagnosis.FormatTime(renewed),
		ptr.Deref(lease.Spec.HolderIdentity, ""))
	return text, facts.Now.Sub(renewed) < limit
}

// IsControlPlaneLease reports whether a Lease belongs to a controller of Kubernetes or to the manager
// of this project.
func IsControlPlaneLease(lease *coordinationv1.Lease) bool {
	return lease.Namespace == metav1.NamespaceSystem || IsManagerLease(lease)
}

// IsManagerLease reports whether a Lease has the default name of the Lease of a manager of this project that can
// finalize namespaces.
func IsManagerLease(lease *coordinationv1.Lease) bool {
	return lease.Name == ManagerLease || lease.Name == finalizationLease
}
