// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/hold"
)

// now is the current time of the fake clocks.
var now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// There is an alert for each reason except Enforced, so each reason that Verify returns must be a
// value of the label.
func TestSetEffectiveSetStatus(t *testing.T) {
	reasons := []string{
		v1alpha1.ReasonEnforced, v1alpha1.ReasonAuditMode, v1alpha1.ReasonEnforcementPending,
		v1alpha1.ReasonPolicyMissing, v1alpha1.ReasonRejected,
	}
	t.Cleanup(effectiveSetStatus.Reset)
	for _, reason := range reasons {
		t.Run(reason, func(t *testing.T) {
			g := NewWithT(t)
			SetEffectiveSetStatus(reason)
			got := map[string]float64{}
			families, err := ctrlmetrics.Registry.Gather()
			g.Expect(err).NotTo(HaveOccurred())
			for _, family := range families {
				if family.GetName() == "nslifecycle_effective_set_status" {
					for _, metric := range family.GetMetric() {
						got[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
					}
				}
			}
			want := map[string]float64{}
			for _, other := range reasons {
				want[other] = 0
			}
			want[reason] = 1
			g.Expect(got).To(Equal(want))
		})
	}
}

// Label values are in CamelCase, as reasons of conditions.
func TestLabelValues(t *testing.T) {
	g := NewWithT(t)
	AddTemplate("team")
	t.Cleanup(func() { DeleteTemplate("team") })
	values := []string{TemplateUpdated, TemplateOutdated, TemplateFailed, TemplateConflicted}
	for _, reason := range finalization.TerminatingReasons() {
		values = append(values, string(reason))
	}
	families, err := ctrlmetrics.Registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	others := []string{"template", "resource", "version", "revision", "go_version"}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if strings.HasPrefix(family.GetName(), metricsNamespace+"_") && !slices.Contains(others, label.GetName()) {
					values = append(values, label.GetValue())
				}
			}
		}
	}
	g.Expect(values).To(And(ContainElement(string(hold.OutcomeTimedOut)), HaveEach(MatchRegexp(`^([A-Z][a-z]+)+$`))))
}

func TestStartTime(t *testing.T) {
	tests := map[string]struct{ seen, want time.Duration }{
		"immediately":                     {seen: 0, want: 0},
		"within the second":               {seen: 400 * time.Millisecond, want: 400 * time.Millisecond},
		"at the end of the second":        {seen: time.Second, want: time.Second},
		"after the second":                {seen: time.Hour, want: time.Second},
		"with a clock that is 1 min slow": {seen: -time.Minute, want: 0},
		"with a clock that is 1 ms slow":  {seen: -time.Millisecond, want: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(StartTime(metav1.NewTime(now), now.Add(test.seen))).To(Equal(now.Add(test.want)))
		})
	}
}

func TestSeconds(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Seconds(now, now.Add(1500*time.Millisecond))).To(Equal(1.5))
	g.Expect(Seconds(now, now.Add(-time.Second))).To(BeZero())
}
