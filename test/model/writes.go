// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

// write is a request of a user without the verb for an object in the Namespace.
type write struct {
	phase  writePhase
	server uint8
	// isUpdate distinguishes an UPDATE from a CREATE. The UPDATE is of the object in Namespace objectIn.
	isUpdate bool
	objectIn uint8
	// wasHeld reports whether the write was held, after policies were evaluated for it.
	wasHeld bool
}

type writePhase uint8

const (
	writeNone writePhase = iota
	// writeHeld: the webhook holds the write.
	writeHeld
	// writeAtGate: the API server evaluates the gate next.
	writeAtGate
	// writeAdmitted: the API server stores the object next. Only a CREATE is delayed between the two.
	writeAdmitted
)

// view returns the Namespace that an API server evaluates. If its cache does not contain the Namespace, it
// reads the Namespace from etcd.
func view(s initState, server uint8) namespace {
	if seen := s.history.seenBy(server); seen.uid != 0 {
		return seen
	}
	return s.history.current()
}

// addWrites adds the next step of the user's request, or new requests.
func (m *initializationModel) addWrites(s initState, next *transitions[initState]) {
	switch s.write.phase {
	case writeNone:
		for server := range m.servers {
			m.addArrival(s, next, write{server: server})
			if s.objectIn != 0 {
				m.addArrival(s, next, write{server: server, isUpdate: true, objectIn: s.objectIn})
			}
		}
	case writeHeld:
		m.addEndOfHold(s, next)
	case writeAtGate:
		m.addGate(s, next)
	case writeAdmitted:
		m.addStore(s, next, s.history.current())
	}
}

// addArrival adds a new request: the API server rejects a CREATE in a terminating namespace, and evaluates
// policies and the selector of the webhook.
func (m *initializationModel) addArrival(s initState, next *transitions[initState], w write) {
	seen := view(s, w.server)
	if seen.uid == 0 || !w.isUpdate && seen.isTerminating {
		return
	}
	action := "the user sends a CREATE to API server " + number(w.server)
	if w.isUpdate {
		action = "the user sends an UPDATE to API server " + number(w.server)
	}
	if !m.hasHold || !seen.hasLabel {
		w.phase = writeAtGate
		s.write = w
		next.addExternal(action, s, "")
		return
	}
	// In all other states, the webhook rejects the write, or asks the client to send it again.
	action += ", which calls the webhook"
	for _, cached := range s.history.distinct() {
		switch {
		case cached.isPending():
			w.phase = writeHeld
		case cached.isTerminating && cached.hasLabel && w.isUpdate:
			w.phase = writeAtGate
		default:
			continue
		}
		s.write = w
		next.addExternal(action, s, "")
	}
}

// addEndOfHold adds the response to a held write, at any time.
func (m *initializationModel) addEndOfHold(s initState, next *transitions[initState]) {
	if m.has(ruleSendAgain) {
		s.write = write{}
		next.add("the webhook asks the client to send the write again", s, "")
		return
	}
	s.write.phase, s.write.wasHeld = writeAtGate, true
	next.add("the webhook admits the write", s, "")
}

// addGate adds the evaluation of the gate. The admission of an UPDATE is repeated if the object has changed,
// so it is stored in the same step.
func (m *initializationModel) addGate(s initState, next *transitions[initState]) {
	seen := view(s, s.write.server)
	isOpen := !seen.hasLabel || seen.isTerminating && !m.has(ruleGateTerminating)
	switch {
	case seen.uid == 0 || !isOpen && m.has(ruleGate):
		s.write = write{}
		next.add("the gate rejects the write", s, "")
	case s.write.isUpdate:
		m.addStore(s, next, seen)
	default:
		s.write.phase = writeAdmitted
		next.add("the gate admits the write", s, "")
	}
}

// addStore adds the write to etcd. seen is the Namespace that the gate has evaluated for an UPDATE.
func (m *initializationModel) addStore(s initState, next *transitions[initState], seen namespace) {
	current, w := s.history.current(), s.write
	s.write = write{}
	violation := ""
	switch {
	case w.isUpdate && s.objectIn != w.objectIn:
		next.add("the UPDATE fails, because the object was deleted", s, "")
		return
	case current.uid == 0:
		violation = violationOrphan
	case current.hasLabel && w.isUpdate && seen.uid != current.uid:
		violation = m.limit(limitOldNamespace)
	case current.hasLabel:
		violation = violationStored
	case w.wasHeld:
		violation = violationHeld
	}
	action := "the CREATE is stored"
	if w.isUpdate {
		action = "the UPDATE is stored"
	}
	next.add(action, s, violation)
}
