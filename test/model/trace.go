// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// change is a change in a recording of the real program, for a model that observes O of each state.
type change[O comparable] struct {
	// text describes the change in an error.
	text string
	// action is a part of the name of the action; empty if the recording does not contain the actor.
	action string
	after  O
	// tooEarly are parts of the names of actions for which too little time has passed before the change.
	tooEarly []string
}

// traceable is a model whose states can be compared with a recording.
type traceable[S, O comparable] interface {
	Model[S]
	// observe returns the part of a state that etcd stores.
	observe(state S) O
}

// checkTrace checks that each change is an action of the model without a violation. Between two changes,
// any actions can occur that etcd does not store, such as those of caches.
func checkTrace[S, O comparable](model traceable[S, O], changes []change[O]) error {
	states := map[S]bool{model.Initial(): true}
	for _, now := range changes {
		next, enabled := map[S]bool{}, map[string]bool{}
		for state := range reach(model, states, now.tooEarly) {
			for _, transition := range model.Next(state) {
				if transition.Violation != "" || !isStored(model, state, transition) {
					continue
				}
				enabled[transition.Action] = true
				if strings.Contains(transition.Action, now.action) && model.observe(transition.To) == now.after {
					next[transition.To] = true
				}
			}
		}
		if len(next) == 0 {
			return fmt.Errorf("the model does not allow: %s, action %q, after which etcd contains %+v; before, etcd "+
				"contains %+v, and the model allows: %s; too early for: %s", now.text, now.action, now.after,
				observed(model, states), strings.Join(slices.Sorted(maps.Keys(enabled)), "; "),
				strings.Join(now.tooEarly, "; "))
		}
		states = next
	}
	return nil
}

// reach returns all states that can be reached by actions that etcd does not store.
func reach[S, O comparable](model traceable[S, O], from map[S]bool, tooEarly []string) map[S]bool {
	reached := maps.Clone(from)
	for queue := slices.Collect(maps.Keys(from)); len(queue) > 0; {
		state := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, transition := range model.Next(state) {
			isTooEarly := slices.ContainsFunc(tooEarly, func(text string) bool {
				return strings.Contains(transition.Action, text)
			})
			isHidden := transition.Violation == "" && !isStored(model, state, transition)
			if isHidden && !isTooEarly && !reached[transition.To] {
				reached[transition.To] = true
				queue = append(queue, transition.To)
			}
		}
	}
	return reached
}

// isStored reports whether etcd stores an action. Some writes of users change nothing in the model.
func isStored[S, O comparable](model traceable[S, O], from S, transition Transition[S]) bool {
	return model.observe(from) != model.observe(transition.To) || strings.HasSuffix(transition.Action, "is stored")
}

// observed returns what etcd contains, which is the same in all states of a trace.
func observed[S, O comparable](model traceable[S, O], states map[S]bool) (contains O) {
	for state := range states {
		return model.observe(state)
	}
	return contains
}

// tooEarlyFor returns the action if less than the delay has passed between two times.
func tooEarlyFor(action string, since, until time.Time, delay time.Duration) []string {
	if until.Sub(since) < delay {
		return []string{action}
	}
	return nil
}
