// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import "strconv"

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
