// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

func TestRelationBranches(t *testing.T) {
	g := NewWithT(t)
	match := func(result template.MatchResult, reason string) *template.Match {
		return &template.Match{Result: result, Reason: reason}
	}
	selected := match(template.MatchSelected, "")
	relations := []templates.Relation{
		{Template: "a", Match: match(template.MatchNotSelected, "the template requires label a")},
		{Template: "b", Match: match(template.MatchNotSelected, "the template requires label b")},
		{Template: "c", Match: match(template.MatchNotSelected, "the template requires label c")},
		{Template: "d", Match: match(template.MatchNotSelected, "the template requires label d")},
		{Template: "current", Match: selected, Revision: "1", UpdateRevision: "1"},
		{Template: "failing", Match: selected, UpdateRevision: "1", IsOutdated: true, Failures: []v1alpha1.TemplateFailure{
			{Object: "quota", Reason: v1alpha1.ReasonForbidden, Message: "no permission"},
			{Reason: v1alpha1.ReasonConflict, Message: "another client"},
		}},
		{Template: "late", Match: match(template.MatchNotApplied, "the namespace is older than the template")},
		{Template: "near", Match: match(template.MatchNearlySelected, "label knd: the template requires the key kind")},
		{Template: "outdated", Match: selected, Revision: "0", UpdateRevision: "1", IsOutdated: true, Note: "The rollout is paused."},
		{Template: "unread", Revision: "2"},
	}
	g.Expect(printer.RenderTree(relationBranches(relations))).To(Equal(
		`failing: selected, not applied yet
  Fails: object quota: Forbidden: no permission
  Conflicts: Conflict: another client
unread: recorded, revision 2
current: selected, revision 1 (current)
outdated: selected, revision 0 (outdated; the latest is 1)
  - The rollout is paused.
late: selected, but not applied
  - The namespace is older than the template.
near: nearly selected
  - Label knd: the template requires the key kind.
a: not selected
  - The template requires label a.
b: not selected
  - The template requires label b.
c: not selected
  - The template requires label c.
1 more template: not selected
`))
}
