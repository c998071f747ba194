// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// An alert is about each reason but one, so whatever Observe finds out has to be there.
func TestTellStatus(t *testing.T) {
	reasons := []string{
		v1alpha1.ReasonEnforced, v1alpha1.ReasonEnforcementPending, v1alpha1.ReasonPolicyMismatch,
		v1alpha1.ReasonPolicyMissing, v1alpha1.ReasonRefused,
	}
	t.Cleanup(effectiveSetStatus.Reset)
	for _, reason := range reasons {
		t.Run(reason, func(t *testing.T) {
			g := NewWithT(t)
			tellStatus(reason)
			told := map[string]float64{}
			families, err := metrics.Registry.Gather()
			g.Expect(err).NotTo(HaveOccurred())
			for _, family := range families {
				if family.GetName() == "nslifecycle_effective_set_status" {
					for _, metric := range family.GetMetric() {
						told[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
					}
				}
			}
			want := map[string]float64{}
			for _, other := range reasons {
				want[other] = 0
			}
			want[reason] = 1
			g.Expect(told).To(Equal(want))
		})
	}
}
