// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
)

// A cloud controller can run outside the cluster, so it can be running without any evidence.
func TestCloudOwnersAreUnknown(t *testing.T) {
	for _, finalizer := range []string{
		owners.FinalizerLoadBalancer, "networking.gke.io/l4-netlb-v2",
		"service.eks.amazonaws.com/resources",
	} {
		found := Diagnose(makeTerminating(withContent(contentOf(services, makeDeleted("web", finalizer)))))
		if len(found.Findings) != 1 || found.Findings[0].OwnerState != diagnosis.OwnerUnknown {
			t.Errorf("%s: got %+v", finalizer, found.Findings)
		}
	}
}
