// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// States of the namespaces to which a template is applied.
const (
	// TemplateUpdated means that the namespace contains the objects of status.updateRevision or, if sync.mode is
	// "Once", of any revision.
	TemplateUpdated = "Updated"
	// TemplateOutdated means that the operator must still update the namespace.
	TemplateOutdated = "Outdated"
	// TemplateFailed means that an object cannot be applied.
	TemplateFailed = "Failed"
	// TemplateConflicted means that another client or template controls an object.
	TemplateConflicted = "Conflicted"
)

// The names of templates are labels: cluster administrators write them, and the inject policy limits
// their number.
var (
	templateNamespacesDesc = prometheus.NewDesc(metricsNamespace+"_template_namespaces", helpTemplateNamespaces,
		[]string{"template", "state"}, nil)
	templatePausedDesc = prometheus.NewDesc(metricsNamespace+"_template_rollout_paused", helpTemplatePaused,
		[]string{"template", "reason"}, nil)
)

// collectTemplates sends the counts in the status of the templates.
func collectTemplates(templates []v1alpha1.NamespaceTemplate, collected chan<- prometheus.Metric) {
	for i := range templates {
		name, status := templates[i].Name, templates[i].Status
		if status.Namespaces == nil {
			continue
		}
		send := func(state string, count int32) {
			collected <- prometheus.MustNewConstMetric(
				templateNamespacesDesc, prometheus.GaugeValue, float64(count), name, state)
		}
		send(TemplateUpdated, status.Namespaces.Updated)
		send(TemplateOutdated, status.Namespaces.Outdated)
		send(TemplateFailed, status.Namespaces.Failed)
		send(TemplateConflicted, status.Namespaces.Conflicted)
		progressing := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionProgressing)
		for _, reason := range []string{v1alpha1.ReasonPaused, v1alpha1.ReasonPausedAfterFailures} {
			paused := 0.0
			if progressing != nil && progressing.Reason == reason {
				paused = 1
			}
			collected <- prometheus.MustNewConstMetric(templatePausedDesc, prometheus.GaugeValue, paused, name, reason)
		}
	}
}

// AddTemplate initializes the counters of a template.
func AddTemplate(name string) {
	TemplateConflictsTotal.WithLabelValues(name)
	for _, action := range plan.Actions() {
		templateWritesTotal.WithLabelValues(name, string(action))
	}
}

// DeleteTemplate deletes the counters of a template.
func DeleteTemplate(name string) {
	TemplateConflictsTotal.DeleteLabelValues(name)
	templateWritesTotal.DeletePartialMatch(prometheus.Labels{"template": name})
}

// CountTemplateWrite counts a write of an object of a template.
func CountTemplateWrite(name string, action plan.Action) {
	templateWritesTotal.WithLabelValues(name, string(action)).Inc()
}
