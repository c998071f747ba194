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
			kept := Tracked([]Outcome{{Template: "a", Revision: "r", Problems: test.problems}})
			g.Expect(kept).To(Equal([]Outcome{{Template: "a", Revision: "r", Problems: test.want}}))
		})
	}
}
