// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// counter is a model whose states are numbers. From 0, it reaches 1 or 2, and then counts to its end.
type counter struct {
	end, forbidden, stuck int
	isExternal            bool
}

func (c counter) Initial() int { return 0 }

func (c counter) IsEnd(state int) bool { return state == c.end }

func (c counter) Next(state int) []Transition[int] {
	var next transitions[int]
	add := func(action string, to int) {
		violation := ""
		if to == c.forbidden {
			violation = "forbidden"
		}
		next = append(next, Transition[int]{action, to, violation, c.isExternal})
	}
	switch state {
	case c.end, c.stuck:
	case 0:
		add("one", 1)
		add("two", 2)
	default:
		add("next", state+1)
	}
	return next
}

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		model     counter
		states    int
		violation string
		trace     string
	}{
		"no violation":          {counter{end: 4, forbidden: -1, stuck: -1}, 5, "", ""},
		"the shortest trace":    {counter{end: 4, forbidden: 3, stuck: -1}, 3, "forbidden", "two next"},
		"a state without end":   {counter{end: 1, forbidden: -1, stuck: 3}, 4, violationProgress, "two"},
		"only external actions": {counter{end: 1, forbidden: -1, stuck: 2, isExternal: true}, 3, violationProgress, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			result, err := Check(test.model)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.Violation).To(Equal(test.violation))
			g.Expect(strings.Join(result.Trace, " ")).To(Equal(test.trace))
			g.Expect(result.States).To(Equal(test.states))
		})
	}
}
