// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// templatesCollector collects the metrics of a list of templates.
type templatesCollector []v1alpha1.NamespaceTemplate

func (templatesCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- templateNamespacesDesc
	descs <- templatePausedDesc
}

func (c templatesCollector) Collect(collected chan<- prometheus.Metric) {
	collectTemplates(c, collected)
}

func TestCollectTemplates(t *testing.T) {
	g := NewWithT(t)
	named := func(name, reason string, counts *v1alpha1.TemplateNamespaceCounts) v1alpha1.NamespaceTemplate {
		return v1alpha1.NamespaceTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: v1alpha1.NamespaceTemplateStatus{Namespaces: counts, Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionProgressing, Reason: reason},
			}},
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(templatesCollector{
		named("new", "", nil), named("ready", v1alpha1.ReasonPaused, &v1alpha1.TemplateNamespaceCounts{Updated: 5}),
		named("paused", v1alpha1.ReasonPausedAfterFailures, &v1alpha1.TemplateNamespaceCounts{
			Desired: 10, Updated: 4, Outdated: 3, Failed: 2, Conflicted: 1,
		}),
	})
	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			key := family.GetName()
			for _, label := range metric.GetLabel() {
				key += " " + label.GetValue()
			}
			got[key] = metric.GetGauge().GetValue()
		}
	}
	const counts, paused = "nslifecycle_template_namespaces", "nslifecycle_template_rollout_paused"
	g.Expect(got).To(Equal(map[string]float64{
		counts + " Updated paused": 4, counts + " Outdated paused": 3, counts + " Failed paused": 2,
		counts + " Conflicted paused": 1, paused + " Paused paused": 0,
		paused + " PausedAfterFailures paused": 1,
		counts + " Updated ready":              5, counts + " Outdated ready": 0, counts + " Failed ready": 0,
		counts + " Conflicted ready": 0, paused + " Paused ready": 1,
		paused + " PausedAfterFailures ready": 0,
	}))
}

func TestDeleteTemplate(t *testing.T) {
	g := NewWithT(t)
	AddTemplate("team")
	AddTemplate("other")
	DeleteTemplate("team")
	g.Expect(collect(templateWritesTotal)).To(Equal(len(plan.Actions())))
	g.Expect(collect(TemplateConflictsTotal)).To(Equal(1))
}
