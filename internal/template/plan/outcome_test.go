// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

func TestTracked(t *testing.T) {
	problems := func(count int, failure int) []template.Problem {
		var all []template.Problem
		for i := range count {
			reason := v1alpha1.ReasonConflict
			if i == failure {
				reason = v1alpha1.ReasonApplyFailed
			}
			all = append(all, template.Problem{Template: "a", Object: fmt.Sprint(i), Reason: reason})
		}
		return all
	}
	local := template.Problem{Template: "a", Object: "local", Reason: v1alpha1.ReasonFieldImmutable}
	for name, test := range map[string]struct {
		problems, want []template.Problem
	}{
		"none":                      {},
		"few":                       {problems: problems(10, 3), want: problems(10, 3)},
		"many conflicts":            {problems: problems(200, -1), want: problems(10, -1)},
		"many, a failure is first":  {problems: problems(200, 0), want: problems(10, 0)},
		"many, a failure is hidden": {problems: problems(200, 150), want: append(problems(9, -1), problems(200, 150)[150])},
		"many, a local failure is first, and another one is hidden": {
			problems: append([]template.Problem{local}, problems(200, 150)...),
			want:     append(append([]template.Problem{local}, problems(8, -1)...), problems(200, 150)[150]),
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			kept := Tracked([]TemplateOutcome{{Template: "a", Revision: "r", Problems: test.problems}})
			g.Expect(kept).To(Equal([]TemplateOutcome{{Template: "a", Revision: "r", Problems: test.want}}))
		})
	}
}

func TestSummary(t *testing.T) {
	outcome := func(revision string, problems ...template.Problem) TemplateOutcome {
		return TemplateOutcome{Template: "a", UID: "a", Generation: 2, Revision: revision, Problems: problems}
	}
	initializing := func(outcome TemplateOutcome) TemplateOutcome {
		outcome.IsInitializing = true
		return outcome
	}
	failed := template.Problem{Template: "a", Object: "config", Reason: v1alpha1.ReasonForbidden, Message: "x"}
	claimed := template.Problem{Template: "a", Reason: v1alpha1.ReasonClaimedByTemplate, Message: "y"}
	g := NewWithT(t)
	known := map[string]TemplateOutcome{}
	known["updated"] = outcome("1")
	known["outdated"] = outcome("0")
	known["initializing"] = initializing(outcome("0"))
	known["initializing-conflicted"] = initializing(outcome("0", claimed))
	known["initializing-failed"] = initializing(outcome("0", failed))
	waiting := outcome("1")
	waiting.Waiting = []template.Problem{
		{Template: "a", Object: "binding", Reason: v1alpha1.ReasonPermissionsNotGranted},
		{Template: "a", Object: "binding", Reason: v1alpha1.ReasonRoleNotFound, Message: "z"},
	}
	known["initializing-without-role"] = initializing(waiting)
	known["claimed"] = outcome("1", claimed)
	for _, reason := range []string{
		v1alpha1.ReasonObjectTerminating, v1alpha1.ReasonFieldImmutable, v1alpha1.ReasonNotRecorded, v1alpha1.ReasonInputTooLarge,
	} {
		known["local-"+reason] = outcome("1", template.Problem{Template: "a", Reason: reason})
	}
	known["both"] = outcome("1", claimed, failed)
	summary := Summarize(known, "1")
	g.Expect(summary.Counts).To(Equal(v1alpha1.TemplateNamespaceCounts{
		Desired: 10, Updated: 1, Outdated: 1, Failed: 6, Conflicted: 2,
	}))
	g.Expect(summary.Failing).To(Equal(int32(2)), "only the failures that are not local")
	g.Expect(summary.Failures).To(HaveLen(10))
	g.Expect(summary.Failures).To(ContainElement(HaveField("Reason", v1alpha1.ReasonRoleNotFound)))
	g.Expect(summary.Failures).NotTo(ContainElement(HaveField("Reason", v1alpha1.ReasonPermissionsNotGranted)))
	g.Expect(summary.Failures[:3]).To(Equal([]v1alpha1.TemplateFailure{
		{Namespace: "both", Reason: v1alpha1.ReasonClaimedByTemplate, Message: "y"},
		{Namespace: "both", Object: "config", Reason: v1alpha1.ReasonForbidden, Message: "x"},
		{Namespace: "claimed", Reason: v1alpha1.ReasonClaimedByTemplate, Message: "y"},
	}))
	for i := range 20 {
		known[fmt.Sprintf("failed-%02d", i)] = outcome("1", failed)
	}
	g.Expect(Summarize(known, "1").Failures).To(HaveLen(MaxFailures))
}

func TestChangedTemplates(t *testing.T) {
	outcome := func(change func(*TemplateOutcome)) []TemplateOutcome {
		changed := TemplateOutcome{Template: "a", UID: "a", Generation: 2, Revision: "1"}
		change(&changed)
		return []TemplateOutcome{changed}
	}
	same := outcome(func(*TemplateOutcome) {})
	for name, test := range map[string]struct {
		change func(*TemplateOutcome)
		want   []string
	}{
		"nothing":              {change: func(*TemplateOutcome) {}},
		"a canary":             {change: func(o *TemplateOutcome) { o.IsCanary = true }, want: []string{"a"}},
		"a problem":            {change: func(o *TemplateOutcome) { o.Problems = []template.Problem{{Reason: "x"}} }, want: []string{"a"}},
		"a short wait":         {change: func(o *TemplateOutcome) { o.Waiting = []template.Problem{{Reason: "x"}} }},
		"a wait for a user":    {change: func(o *TemplateOutcome) { o.Waiting = []template.Problem{{Reason: v1alpha1.ReasonRoleNotFound}} }, want: []string{"a"}},
		"another generation":   {change: func(o *TemplateOutcome) { o.Generation = 3 }, want: []string{"a"}},
		"another template too": {change: func(o *TemplateOutcome) { o.Template = "b" }, want: []string{"a", "b"}},
	} {
		NewWithT(t).Expect(ChangedTemplates(same, outcome(test.change))).To(Equal(test.want), name)
	}
}
