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
	// heldFor is the UID of the Namespace that the first webhook has read, and hadChanged its labels.
	heldFor    uint8
	hadChanged bool
	// isReleased reports whether the first webhook has released the write.
	isReleased bool
	// hasSeenOther reports whether the cache of the API server did not contain the Namespace yet when it
	// evaluated the selector of the second webhook.
	hasSeenOther bool
}

type writePhase uint8

const (
	writeNone writePhase = iota
	// writeHeld: the first webhook holds the write.
	writeHeld
	// writeSent: the API server evaluates the selector of the second webhook next.
	writeSent
	// writeAtGate: the API server evaluates the gate next.
	writeAtGate
	// writeAdmitted: the API server stores the object next. Only a CREATE is delayed between the two.
	writeAdmitted
)

// view returns the Namespace that an API server evaluates. If its cache does not contain the Namespace, it
// reads the Namespace from etcd.
func view(s initState, server uint8) (namespace, bool) {
	if seen := s.history.seenBy(server); seen.uid != 0 {
		return seen, false
	}
	return s.history.current(), true
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
		m.addRelease(s, next)
	case writeSent:
		m.addSecondWebhook(s, next)
	case writeAtGate:
		m.addGate(s, next)
	case writeAdmitted:
		m.addStore(s, next, s.history.current())
	}
}

// addArrival adds a new request: the API server rejects a CREATE in a terminating namespace, and evaluates
// the selector of the first webhook.
func (m *initializationModel) addArrival(s initState, next *transitions[initState], w write) {
	seen, _ := view(s, w.server)
	if seen.uid == 0 || !w.isUpdate && seen.isTerminating {
		return
	}
	action := "the user sends a CREATE to API server " + number(w.server)
	if w.isUpdate {
		action = "the user sends an UPDATE to API server " + number(w.server)
	}
	w.phase = writeSent
	if !m.hasHold || !seen.hasLabel {
		s.write = w
		next.addExternal(action, s, "")
		return
	}
	// The webhook uses a pending namespace from its cache, and reads any other from the API server.
	action += ", which calls the first webhook"
	for _, cached := range s.history.distinct() {
		if cached.isPending() {
			w.phase, w.heldFor, w.hadChanged = writeHeld, cached.uid, cached.hasChanged
			s.write = w
			next.addExternal(action, s, "")
		}
	}
	if current := s.history.current(); !current.isPending() {
		w.phase, w.heldFor, w.hadChanged = writeSent, current.uid, current.hasChanged
		s.write = w
		m.addAnswer(s, next, action, current)
	}
}

// addRelease adds the end of the hold. A write that is held for too long is answered with the state at
// that time.
func (m *initializationModel) addRelease(s initState, next *transitions[initState]) {
	if m.has(ruleReleaseLive) {
		m.addAnswer(s, next, "the first webhook reads the namespace from the API server", s.history.current())
		return
	}
	for _, cached := range s.history.distinct() {
		m.addAnswer(s, next, "the first webhook finds the namespace in its cache", cached)
	}
}

// addAnswer adds the answer of the first webhook, which has read the given version of the Namespace.
func (m *initializationModel) addAnswer(s initState, next *transitions[initState], action string, after namespace) {
	isOther := after.uid != s.write.heldFor && m.has(ruleReleaseSameUID) ||
		after.hasChanged != s.write.hadChanged && m.has(ruleReleaseSameLabels)
	cleansUp := after.uid != 0 && after.isTerminating && s.write.isUpdate
	if after.uid == 0 || after.isTerminating && !cleansUp || after.hasLabel && !cleansUp || isOther && !cleansUp {
		s.write = write{}
		next.add(action+" and rejects the write, or asks the client to send it again", s, "")
		return
	}
	s.write.phase = writeSent
	violation := ""
	if !cleansUp {
		s.write.isReleased = true
		current := s.history.current()
		if current.uid == s.write.heldFor && current.hasChanged != s.write.hadChanged {
			violation = violationSelectors
		}
	}
	next.add(action+" and releases the write", s, violation)
}

// addSecondWebhook adds the evaluation of the selector of the second webhook, which never releases a write
// to an initializing or initialized namespace.
func (m *initializationModel) addSecondWebhook(s initState, next *transitions[initState]) {
	seen, isLive := view(s, s.write.server)
	cleansUp := s.write.isUpdate && s.history.current().isTerminating
	if m.hasHold && seen.hasLabel && !cleansUp && m.has(ruleSecondWebhook) {
		s.write = write{}
		next.add("the second webhook asks the client to send the write again", s, "")
		return
	}
	s.write.phase, s.write.hasSeenOther = writeAtGate, isLive || seen.uid != s.write.heldFor
	action := "the API server does not call the second webhook"
	switch {
	case !m.hasHold:
		action = "the API server calls no webhook"
	case seen.hasLabel && cleansUp:
		action = "the second webhook admits the write, because the namespace is terminating"
	}
	next.add(action, s, "")
}

// addGate adds the evaluation of the gate. The admission of an UPDATE is repeated if the object has changed,
// so it is stored in the same step.
func (m *initializationModel) addGate(s initState, next *transitions[initState]) {
	seen, _ := view(s, s.write.server)
	isOpen := !seen.hasLabel || seen.isTerminating && !m.has(ruleGateTerminating)
	switch {
	case seen.uid == 0 || !isOpen && m.has(ruleGate):
		violation := ""
		current := s.history.current()
		if s.write.isReleased && seen.uid == s.write.heldFor && seen.uid == current.uid && !current.isTerminating {
			violation = violationHeldRejected
			if s.write.hasSeenOther {
				violation = m.limit(limitLateCache)
			}
		}
		s.write = write{}
		next.add("the gate rejects the write", s, violation)
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
	case w.isReleased && w.heldFor != current.uid:
		violation = violationOther
	}
	action := "the CREATE is stored"
	if w.isUpdate {
		action = "the UPDATE is stored"
	}
	next.add(action, s, violation)
}
