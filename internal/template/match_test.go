// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

var matchStart = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

// matchTemplate returns a template for the Namespaces with the label corp.example.com/kind=platform whose environment is
// neither set to test nor unset.
func matchTemplate() *v1alpha1.NamespaceTemplate {
	return &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "baseline", CreationTimestamp: matchStart},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Scope: v1alpha1.ScopeNewNamespaces,
			NamespaceSelector: &v1alpha1.NamespaceSelector{
				MatchLabels: map[string]v1alpha1.LabelValue{"corp.example.com/kind": "platform"},
				MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{
					{Key: "environment", Operator: metav1.LabelSelectorOpExists},
					{Key: "environment", Operator: metav1.LabelSelectorOpNotIn, Values: []v1alpha1.LabelValue{"test"}},
					{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"gold", "silver"}},
					{Key: "exempt", Operator: metav1.LabelSelectorOpDoesNotExist},
				},
			},
		},
	}
}

func requiring(key string, value v1alpha1.LabelValue) v1alpha1.NamespaceTemplate {
	return v1alpha1.NamespaceTemplate{Spec: v1alpha1.NamespaceTemplateSpec{
		NamespaceSelector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{key: value}},
	}}
}

func TestComputeMatch(t *testing.T) {
	matching := func(change ...string) map[string]string {
		labels := map[string]string{"corp.example.com/kind": "platform", "environment": "live", "tier": "silver"}
		for i := 0; i < len(change); i += 2 {
			if labels[change[i]] = change[i+1]; change[i+1] == "-" {
				delete(labels, change[i])
			}
		}
		return labels
	}
	for name, test := range map[string]struct {
		labels map[string]string
		// change changes the template, and prepare the Namespace, which was created with the template.
		change  func(*v1alpha1.NamespaceTemplate)
		prepare func(*corev1.Namespace)
		others  []v1alpha1.NamespaceTemplate
		want    MatchResult
		reason  string
	}{
		"selected by labels": {labels: matching(), want: MatchSelected},
		"selected by name":   {labels: map[string]string{v1alpha1.LabelTemplate: "baseline"}, want: MatchSelected},
		"deleted template": {
			labels: matching(), change: func(t *v1alpha1.NamespaceTemplate) { t.DeletionTimestamp = &matchStart },
			want: MatchNotSelected, reason: "the template is being deleted",
		},
		"older namespace": {
			labels: matching(), prepare: func(n *corev1.Namespace) {
				n.Annotations, n.CreationTimestamp = nil, metav1.NewTime(matchStart.Add(-time.Hour))
			},
			want: MatchNotApplied, reason: "the namespace is older than the template, and spec.scope is not AllNamespaces",
		},
		"labels after the creation": {
			labels: matching(), prepare: func(n *corev1.Namespace) { n.Annotations = nil },
			want:   MatchNotApplied,
			reason: "the template did not select the namespace when the namespace was created, and spec.scope is not AllNamespaces",
		},
		"labels during the initialization": {
			labels: matching(), change: func(t *v1alpha1.NamespaceTemplate) { t.Spec.Scope = v1alpha1.ScopeAllNamespaces },
			prepare: func(n *corev1.Namespace) {
				n.Labels[v1alpha1.LabelInitializing] = "true"
				n.Annotations = map[string]string{
					v1alpha1.AnnotationInitializers:        v1alpha1.TemplatesInitializer,
					v1alpha1.AnnotationPendingInitializers: v1alpha1.TemplatesInitializer,
					v1alpha1.AnnotationSelectedTemplates:   "other",
				}
			},
			want: MatchNotApplied,
			reason: "the template did not select the namespace when the namespace was created; " +
				"the template is applied after the initialization",
		},
		"initialized without the template": {
			labels: matching(), prepare: func(n *corev1.Namespace) { delete(n.Annotations, v1alpha1.AnnotationAppliedTemplates) },
			want: MatchNotApplied, reason: "the namespace was initialized without the template, and spec.scope is not AllNamespaces",
		},
		"typing error in a key": {
			labels: matching("corp.example.com/kind", "-", "corp.example.com/kinds", "platform"), want: MatchNearlySelected,
			reason: "label corp.example.com/kinds: the template requires the key corp.example.com/kind",
		},
		"typing error in the key of Exists": {
			labels: matching("environment", "-", "environnment", "live"), want: MatchNearlySelected,
			reason: "label environnment: the template requires the key environment",
		},
		"typing error in a key whose value does not match either": {
			labels: matching("environment", "-", "environnment", "test"), want: MatchNotSelected,
			reason: "the template requires label environment",
		},
		"typing error in the key of the label with the name": {
			labels: map[string]string{"nslifecycle.dev/templates": "baseline"}, want: MatchNearlySelected,
			reason: "label nslifecycle.dev/templates: the template requires the key nslifecycle.dev/template",
		},
		"label with the name of another template": {
			labels: map[string]string{v1alpha1.LabelTemplate: "baselines"}, want: MatchNotSelected,
			reason: `the template requires label corp.example.com/kind=platform; the template requires label environment; ` +
				`the template requires label tier in (gold, silver)`,
		},
		"typing error in a value": {
			labels: matching("tier", "sliver"), want: MatchNearlySelected,
			reason: `label tier has the value "sliver": the template requires "silver"`,
		},
		"value that another template requires": {
			labels: matching("tier", "sliver"), others: []v1alpha1.NamespaceTemplate{requiring("tier", "sliver")}, want: MatchNotSelected,
			reason: `the template requires label tier in (gold, silver), and the value is "sliver"`,
		},
		"another value that another template requires": {
			labels: matching("tier", "sliver"), others: []v1alpha1.NamespaceTemplate{requiring("tier", "bronze")}, want: MatchNearlySelected,
			reason: `label tier has the value "sliver": the template requires "silver"`,
		},
		"key that another template requires": {
			labels: matching("environment", "-", "environments", "live"),
			others: []v1alpha1.NamespaceTemplate{requiring("environments", "test")}, want: MatchNotSelected,
			reason: "the template requires label environment",
		},
		"two typing errors": {
			labels: matching("tier", "sliver", "corp.example.com/kind", "plattform"), want: MatchNotSelected,
			reason: `the template requires label corp.example.com/kind=platform, and the value is "plattform"; ` +
				`the template requires label tier in (gold, silver), and the value is "sliver"`,
		},
		"labels that must not exist": {
			labels: matching("environment", "test", "exempt", ""), want: MatchNotSelected,
			reason: "the template requires label environment not in (test); the template requires no label exempt",
		},
		"no labels": {
			labels: map[string]string{"exempt": ""}, want: MatchNotSelected,
			reason: "the template requires label corp.example.com/kind=platform; the template requires label environment; " +
				"the template requires no label exempt; not met: 1 more requirement",
		},
		"no selector": {
			labels: matching(), change: func(t *v1alpha1.NamespaceTemplate) { t.Spec.NamespaceSelector = nil },
			want: MatchNotSelected,
			reason: "the template has no namespaceSelector, and the namespace has no label " +
				"nslifecycle.dev/template=baseline",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			template := matchTemplate()
			if test.change != nil {
				test.change(template)
			}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "shop", Labels: test.labels, CreationTimestamp: metav1.NewTime(matchStart.Add(time.Hour)),
				Annotations: map[string]string{
					v1alpha1.AnnotationSelectedTemplates: "baseline",
					v1alpha1.AnnotationAppliedTemplates:  Record{"baseline": {Revision: "a"}}.String(),
				},
			}}
			if test.prepare != nil {
				test.prepare(namespace)
			}
			state, err := ParseRecord(namespace)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(ComputeMatch(template, namespace, state, test.others)).To(Equal(Match{test.want, test.reason}))
		})
	}
}

func TestIsTypo(t *testing.T) {
	for wanted, texts := range map[string]map[string]bool{
		"team": {
			"teem": true, "tema": true, "teams": true, "tam": false, "Team": true, "term": true, "beam": true, "tribe": false,
			"meat": false, "team1": false, "team": false, "": false,
		},
		"env":          {"enf": false, "envs": false},
		"platform":     {"platfomr": true, "plattform": true, "plaform": true, "platforms-": true, "pltfrom": false, "plainform": true, "plainforms": false},
		"internal":     {"external": false, "internl": true, "interanl": true, "nternal": true, "intrenla": true},
		"privileged":   {"unprivileged": false, "privilegd": true},
		"net-internal": {"net-external": false, "net-intrenal": true},
		"team-a":       {"team-b": false, "team_a": true, "teama": true, "taem-a": true},
		"pod-security": {"podsecurity": true, "pod.security": true, "pod-securty": true, "pad-security": false},
		"eu-west-1":    {"eu-west-2": false, "us-west-1": false, "eu-east-1": false},
		"corp.example.com/kind": {
			"corp.example.com/kinds": true, "corp.exmaple.com/kind": true, "corp.example.org/kind": false, "kind": false,
		},
	} {
		for text, want := range texts {
			if got := isTypo(text, wanted); got != want {
				t.Errorf("isTypo(%q, %q) = %v", text, wanted, got)
			}
		}
	}
}
