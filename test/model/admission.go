// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

// actor is the user of a request that updates the Namespace.
type actor struct {
	// hasVerb reports whether the actor holds the verb "initialize".
	hasVerb, isOperator bool
	// own are the initializers that the actor can remove from the list: its own name, or those that the
	// operator skips.
	own names
}

// addUpdate adds an UPDATE of the Namespace if the admission policies admit it. With omits, the request
// contains no state.
func (m *initializationModel) addUpdate(
	s initState, next *transitions[initState], action string, request namespace, by actor, omits bool,
) {
	to, violation, ok := m.update(s, request, by, omits)
	switch {
	case !ok || to == s:
	case m.policy == "": // Without the operator, the initializers alone must complete the initialization.
		next.add(action, to, violation)
	default:
		next.addExternal(action, to, violation)
	}
}

// update evaluates the admission policies for an UPDATE of the Namespace, and stores the result.
func (m *initializationModel) update(s initState, request namespace, by actor, omits bool) (initState, string, bool) {
	old := s.history.current()
	object := m.complete(old, request, by, omits)
	if !m.guardAdmits(old, object, by) || !m.subjectsAdmit(old, object, by) {
		return s, "", false
	}
	object.finished |= old.pending & by.own &^ object.pending
	s.history = s.history.add(object)
	return s, violationOfUpdate(old, object, by), true
}

// complete models config/mutating/complete.yaml.
func (m *initializationModel) complete(old, object namespace, by actor, omits bool) namespace {
	if omits {
		object.pending, object.hasLabel, object.hasFailed = 0, false, false
		if m.has(ruleRestore) && old.pending != 0 {
			object.pending, object.hasLabel, object.hasFailed = old.pending, old.hasLabel, old.hasFailed
		}
		return object
	}
	isFinal := object.hasFailed && m.has(ruleFailureIsFinal)
	if m.has(ruleComplete) && old.pending != 0 && object.pending == 0 && by.hasVerb && !isFinal {
		object.hasLabel, object.hasFailed = false, false
	}
	return object
}

// guardAdmits models the rules of config/admission/guard.yaml about the state.
func (m *initializationModel) guardAdmits(old, object namespace, by actor) bool {
	isTouched := old.hasLabel != object.hasLabel || old.pending != object.pending || old.hasFailed != object.hasFailed
	switch {
	case isTouched && !by.hasVerb && m.has(ruleVerb):
		return false
	case object.pending&^old.pending != 0 && m.has(ruleListShrinks):
		return false
	case old.pending != 0 && object.pending == 0 && object.hasFailed && m.has(ruleFailureIsFinal):
		return false
	case isTouched && (object.pending != 0) != object.hasLabel && m.has(ruleConsistent):
		return false
	case object.hasFailed && !old.hasFailed && old.pending == 0 && m.has(ruleResultWhilePending):
		return false
	}
	return true
}

// subjectsAdmit models config/admission/initializer_subjects.yaml.
func (m *initializationModel) subjectsAdmit(old, object namespace, by actor) bool {
	removed := old.pending &^ object.pending
	switch {
	case by.isOperator || !m.hasSubjects:
		return true
	case removed&^by.own != 0 && m.has(ruleSubjects):
		return false
	}
	return !isEarly(removed, object.pending) || !m.has(ruleOrder)
}

// isEarly reports whether an initializer that is before a removed one is still pending.
func isEarly(removed, pending names) bool { return pending != 0 && removed > pending&-pending }

// violationOfUpdate returns the invariant that an update of the Namespace violates.
func violationOfUpdate(old, object namespace, by actor) string {
	opens := old.hasLabel && !object.hasLabel
	switch {
	case opens && object.pending != 0:
		return violationOpenPending
	case opens && old.hasFailed:
		return violationOpenFailed
	case opens && object.finished != object.initializers:
		return violationOpenEarly
	case !old.hasLabel && object.hasLabel:
		return violationReopened
	case object.pending&^old.pending != 0:
		return violationRestored
	case !by.isOperator && isEarly(old.pending&^object.pending, object.pending):
		return violationOrder
	case !object.hasLabel && object.hasFailed:
		return violationResult
	}
	return ""
}
