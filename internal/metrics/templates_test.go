// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// templatesCollector collects the metrics of a list of templates.
type templatesCollector []v1alpha1.NamespaceTemplate

func (templatesCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- templateNamespacesDesc
	descs <- templatePausedDesc
}

func (c templatesCollector) Collect(collected chan<- prometheus.Metric) { collectTemplates(c, collected) }

func TestCollectTemplates(t *testing.T) {
	named := func(name, reason string, counts *v1alpha1.TemplateNamespaceCounts) v1alpha1.NamespaceTemplate {
		return v1alpha1.NamespaceTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: v1alpha1.NamespaceTemplateStatus{Namespaces: counts, Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionProgressing, Reason: reason},
			}},
		}
	}
	counts := &v1alpha1.TemplateNamespaceCounts{Selected: 10, Ready: 4, Pending: 3, Failed: 2, Conflicted: 1}
	NewWithT(t).Expect(testutil.CollectAndCompare(templatesCollector{
		named("new", "", nil), named("paused", template.ReasonPausedAfterFailures, counts),
		named("ready", template.ReasonPaused, &v1alpha1.TemplateNamespaceCounts{}),
	}, strings.NewReader(`
# HELP nslifecycle_template_namespaces `+helpTemplateNamespaces+`
# TYPE nslifecycle_template_namespaces gauge
nslifecycle_template_namespaces{state="conflicted",template="paused"} 1
nslifecycle_template_namespaces{state="failed",template="paused"} 2
nslifecycle_template_namespaces{state="pending",template="paused"} 3
nslifecycle_template_namespaces{state="ready",template="paused"} 4
nslifecycle_template_namespaces{state="conflicted",template="ready"} 0
nslifecycle_template_namespaces{state="failed",template="ready"} 0
nslifecycle_template_namespaces{state="pending",template="ready"} 0
nslifecycle_template_namespaces{state="ready",template="ready"} 0
# HELP nslifecycle_template_rollout_paused `+helpTemplatePaused+`
# TYPE nslifecycle_template_rollout_paused gauge
nslifecycle_template_rollout_paused{template="paused"} 1
nslifecycle_template_rollout_paused{template="ready"} 0
`))).To(Succeed())
}

func TestDeleteTemplate(t *testing.T) {
	g := NewWithT(t)
	AddTemplate("team")
	AddTemplate("other")
	DeleteTemplate("team")
	g.Expect(testutil.CollectAndCount(templateWritesTotal)).To(Equal(len(template.Actions())))
	g.Expect(testutil.CollectAndCount(TemplateConflictsTotal)).To(Equal(1))
}
