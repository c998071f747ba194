// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// rolledOut returns a template whose rollout has finished.
func rolledOut() *v1alpha1.NamespaceTemplate {
	return &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "team", Generation: 2},
		Status: v1alpha1.NamespaceTemplateStatus{
			Revision: "b", CurrentRevision: "b",
			Namespaces: &v1alpha1.TemplateNamespaceCounts{Selected: 10, Ready: 10},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, ObservedGeneration: 2},
				{Type: v1alpha1.ConditionAuthorized, Status: metav1.ConditionTrue, ObservedGeneration: 2},
				{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: template.ReasonUpToDate, ObservedGeneration: 2},
			},
		},
	}
}

func TestRolloutProgress(t *testing.T) {
	const waiting = `Waiting for the rollout of NamespaceTemplate "team" to finish: `
	progressing := func(reason string, counts v1alpha1.TemplateNamespaceCounts) func(*v1alpha1.NamespaceTemplate) {
		return func(object *v1alpha1.NamespaceTemplate) {
			object.Status.CurrentRevision = "a"
			object.Status.Conditions[2].Reason = reason
			object.Status.Namespaces = &counts
		}
	}
	for name, test := range map[string]struct {
		change func(*v1alpha1.NamespaceTemplate)
		text   string
		isDone bool
		err    string
	}{
		"finished": {
			change: func(*v1alpha1.NamespaceTemplate) {},
			text:   `NamespaceTemplate "team" successfully rolled out`, isDone: true,
		},
		"not observed": {
			change: func(object *v1alpha1.NamespaceTemplate) { object.Generation++ },
			text:   `Waiting for the operator to observe the change of NamespaceTemplate "team"...`,
		},
		"never observed": {
			change: func(object *v1alpha1.NamespaceTemplate) { object.Status = v1alpha1.NamespaceTemplateStatus{} },
			text:   `Waiting for the operator to observe the change of NamespaceTemplate "team"...`,
		},
		"new namespaces get another revision": {
			change: func(object *v1alpha1.NamespaceTemplate) { object.Status.CurrentRevision = "a" },
			text:   waiting + "10 of 10 namespaces updated...",
		},
		"in progress": {
			change: progressing(template.ReasonFailing,
				v1alpha1.TemplateNamespaceCounts{Selected: 10, Ready: 4, Pending: 3, Failed: 2, Conflicted: 1}),
			text: waiting + "4 of 10 namespaces updated, 2 failed, 1 conflicted...",
		},
		"paused and unauthorized": {
			change: func(object *v1alpha1.NamespaceTemplate) {
				progressing(template.ReasonPaused, v1alpha1.TemplateNamespaceCounts{Selected: 10, Ready: 4})(object)
				object.Status.Conditions[1].Status = metav1.ConditionFalse
			},
			text: waiting + "4 of 10 namespaces updated, paused, unauthorized...",
		},
		"paused because of failures": {
			change: progressing(template.ReasonPausedAfterFailures, v1alpha1.TemplateNamespaceCounts{Selected: 10, Failed: 3}),
			err:    "cannot continue (PausedAfterFailures)",
		},
		"invalid": {
			change: func(object *v1alpha1.NamespaceTemplate) {
				object.Status.Conditions[0].Status, object.Status.Conditions[0].Reason = metav1.ConditionFalse, template.ReasonInvalid
			},
			err: "cannot continue (Invalid)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			object := rolledOut()
			test.change(object)
			text, isDone, err := rolloutProgress(object)
			if test.err != "" {
				g.Expect(err).To(And(MatchError(ContainSubstring(test.err)), HaveField("Code", ExitBlocked)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(text).To(Equal(test.text))
			g.Expect(isDone).To(Equal(test.isDone))
		})
	}
}

func TestPrintHistory(t *testing.T) {
	g := NewWithT(t)
	object := rolledOut()
	object.Status.CurrentRevision = "a"
	now := time.Now()
	var out strings.Builder
	g.Expect(printHistory(&out, object, []templates.Revision{
		{Number: 1, Name: "z", Created: metav1.NewTime(now.Add(-time.Hour))},
		{Number: 2, Name: "a", Created: metav1.NewTime(now.Add(-time.Minute))},
		{Number: 3, Name: "b", Created: metav1.NewTime(now)},
	}, now)).To(Succeed())
	g.Expect(out.String()).To(Equal(`REVISION   NAME   AGE   STATE
1          z      60m   <none>
2          a      60s   Current
3          b      0s    Latest
`))
}
