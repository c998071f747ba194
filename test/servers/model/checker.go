// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strconv"
	"strings"
)

// maxStates limits the states of one model, so that a model that grows by mistake fails instead of
// using all memory.
const maxStates = 2_000_000

// violationProgress means that an action is possible only with the help of a user.
const violationProgress = "no end state can be reached without a user"

// Transition is one atomic action of one actor.
type Transition[S comparable] struct {
	Action string
	To     S
	// Violation is the invariant that the action violates; empty if there is none.
	Violation string
	// IsExternal reports whether an actor performs the action that might never do so, such as a user. Progress
	// must not depend on these actions.
	IsExternal bool
}

// transitions collects the transitions from one state.
type transitions[S comparable] []Transition[S]

// add adds an action that progress can depend on.
func (t *transitions[S]) add(action string, to S, violation string) {
	*t = append(*t, Transition[S]{Action: action, To: to, Violation: violation})
}

// addExternal adds an action of an actor that might never perform it.
func (t *transitions[S]) addExternal(action string, to S, violation string) {
	*t = append(*t, Transition[S]{Action: action, To: to, Violation: violation, IsExternal: true})
}

// number returns the number of an index in traces.
func number(index uint8) string { return strconv.Itoa(int(index) + 1) }

// Model is a system whose states are compared with ==. Equal states must have equal transitions.
type Model[S comparable] interface {
	Initial() S
	Next(state S) []Transition[S]
	// IsEnd reports whether the operator has nothing left to do.
	IsEnd(state S) bool
}

// Result is the result of a search.
type Result struct {
	States, Transitions int
	// Violation is the violated invariant; empty if there is none.
	Violation string
	// Trace contains the actions that lead to the violation. No other sequence is shorter.
	Trace []string
}

// String returns the number of states and the trace.
func (r Result) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d states, %d transitions", r.States, r.Transitions)
	for i, action := range r.Trace {
		fmt.Fprintf(&text, "\n%3d. %s", i+1, action)
	}
	if r.Violation != "" {
		fmt.Fprintf(&text, "\n     => %s", r.Violation)
	}
	return text.String()
}

// search is a breadth-first search.
type search[S comparable] struct {
	states  []S
	indexes map[S]int32
	// parents and actions contain, for each state, the state that it was first reached from and how.
	parents []int32
	actions []string
	// sources and targets are the transitions that are not external.
	sources, targets []int32
	transitions      int
}

// Check visits all reachable states in order of their distance from the initial state. It stops at the
// first violation. Otherwise, it checks that from each state an end state can be reached without
// external actions.
func Check[S comparable](model Model[S]) (Result, error) {
	s := search[S]{indexes: map[S]int32{}}
	s.visit(model.Initial(), -1, "")
	for current := int32(0); int(current) < len(s.states); current++ {
		if len(s.states) > maxStates {
			return Result{}, fmt.Errorf("more than %d states", maxStates)
		}
		for _, transition := range model.Next(s.states[current]) {
			s.transitions++
			if transition.Violation != "" {
				return s.result(transition.Violation, append(s.trace(current), transition.Action)), nil
			}
			target := s.visit(transition.To, current, transition.Action)
			if !transition.IsExternal && target != current {
				s.sources, s.targets = append(s.sources, current), append(s.targets, target)
			}
		}
	}
	if stuck := s.findStuck(model); stuck >= 0 {
		return s.result(violationProgress, s.trace(stuck)), nil
	}
	return s.result("", nil), nil
}

// visit returns the index of a state, which it adds if it is new.
func (s *search[S]) visit(state S, parent int32, action string) int32 {
	if index, ok := s.indexes[state]; ok {
		return index
	}
	index := int32(len(s.states))
	s.indexes[state] = index
	s.states = append(s.states, state)
	s.parents = append(s.parents, parent)
	s.actions = append(s.actions, action)
	return index
}

func (s *search[S]) result(violation string, trace []string) Result {
	return Result{States: len(s.states), Transitions: s.transitions, Violation: violation, Trace: trace}
}

// trace returns the actions that lead to a state.
func (s *search[S]) trace(index int32) []string {
	var reversed []string
	for ; s.parents[index] >= 0; index = s.parents[index] {
		reversed = append(reversed, s.actions[index])
	}
	actions := make([]string, 0, len(reversed)+1)
	for i := len(reversed) - 1; i >= 0; i-- {
		actions = append(actions, reversed[i])
	}
	return actions
}

// findStuck returns the first state from which no end state can be reached, or -1. It searches backwards
// from all end states.
func (s *search[S]) findStuck(model Model[S]) int32 {
	// predecessors[first[i]:first[i+1]] are the predecessors of state i.
	first := make([]int32, len(s.states)+1)
	for _, target := range s.targets {
		first[target+1]++
	}
	for i := range s.states {
		first[i+1] += first[i]
	}
	predecessors := make([]int32, len(s.sources))
	next := append([]int32(nil), first...)
	for i, target := range s.targets {
		predecessors[next[target]] = s.sources[i]
		next[target]++
	}

	reached := make([]bool, len(s.states))
	var queue []int32
	add := func(index int32) {
		if !reached[index] {
			reached[index] = true
			queue = append(queue, index)
		}
	}
	for i := range s.states {
		if model.IsEnd(s.states[i]) {
			add(int32(i))
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, predecessor := range predecessors[first[queue[0]]:first[queue[0]+1]] {
			add(predecessor)
		}
	}
	for i := range reached {
		if !reached[i] {
			return int32(i)
		}
	}
	return -1
}
