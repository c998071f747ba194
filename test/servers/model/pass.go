// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
)

// tracked is what the operator remembers of a terminating Namespace between and during passes.
type tracked struct {
	uid uint8 // 0 if the operator tracks no Namespace
	// isAfterGracePeriod reports whether the grace period has ended, and startedAfter whether it had ended
	// when the pass started.
	isAfterGracePeriod, startedAfter bool
	phase                            passPhase
	// kind is the type that is listed or deleted next.
	kind  uint8
	known [kinds]knowledge
	// listed are the objects that the pass deletes.
	listed [kinds]object
	// base is the version of the Namespace whose finalizers the operator writes.
	base finNamespace
}

type passPhase uint8

const (
	passIdle passPhase = iota
	passLists
	passConfirms
	passDeletes
	passReleases
)

// knowledge is what the operator knows about the objects of a type.
type knowledge uint8

const (
	unknown knowledge = iota
	remaining
	// empty means that a list requested before the end of the grace period was empty.
	empty
	confirmedEmpty
)

// addPass adds the steps of the operator.
func (m *finalizationModel) addPass(s finState, next *transitions[finState]) {
	if s.tracked.uid != 0 {
		if to := s; !s.tracked.isAfterGracePeriod && m.isSettled(s, s.tracked.uid, m.gracePeriod) {
			to.tracked.isAfterGracePeriod = true
			next.add("the grace period ends for UID "+number(s.tracked.uid-1), to, "")
		}
		to := s
		to.tracked = tracked{}
		next.addExternal("the operator restarts", to, "")
	}
	if m.hasSharedLists {
		for kind := range s.shared {
			if !s.isInstalled[kind] {
				continue
			}
			to := s
			to.shared[kind] = list{true, s.tracked.uid != 0, s.tracked.isAfterGracePeriod, s.objects[kind]}
			next.addExternal("the operator lists type "+number(uint8(kind))+" for another namespace", to, "")
		}
	}
	switch s.tracked.phase {
	case passIdle:
		m.addStart(s, next)
	case passLists:
		m.addLists(s, next)
	case passConfirms:
		m.addConfirmation(s, next)
	case passDeletes:
		m.addDeletion(s, next)
	case passReleases:
		m.addRelease(s, next)
	}
}

// mayDelete reports whether the operator deletes the content of a Namespace.
func (m *finalizationModel) mayDelete(n finNamespace) bool {
	return n.uid != 0 && (n.isTerminating || !m.has(ruleTerminating)) &&
		finalization.HasFinalizer(n.object(), ownFinalizer)
}

// addStart adds the start of a pass. The cache of the operator can contain any version of the Namespace.
func (m *finalizationModel) addStart(s finState, next *transitions[finState]) {
	for _, cached := range s.history.distinct() {
		current := s.history.current()
		isReplaced := !m.has(ruleConfirmAfterList) && current.uid != cached.uid
		if !m.mayDelete(cached) || isReplaced {
			continue
		}
		to := s
		if s.tracked.uid != cached.uid {
			to.tracked = tracked{uid: cached.uid}
			// A rule that is taken out: the time of the deletion is remembered by name.
			to.tracked.isAfterGracePeriod = s.tracked.isAfterGracePeriod && !m.has(ruleGracePeriodByUID)
			to.discovered.isAfterGracePeriod = false
			for kind := range to.shared {
				to.shared[kind].isAfterDeletion, to.shared[kind].isAfterGracePeriod = false, false
			}
		}
		to.tracked.startedAfter, to.tracked.phase, to.tracked.kind = to.tracked.isAfterGracePeriod, passLists, 0
		action := "the operator starts a pass over UID " + number(cached.uid-1)
		if to.tracked.startedAfter {
			action += " after the grace period"
		}
		isOld := to.tracked.startedAfter && !to.discovered.isAfterGracePeriod && m.has(ruleDiscoveryAfterGracePeriod)
		if to.discovered.isComplete && !isOld {
			m.addPassStep(to, next, action)
			continue
		}
		if m.hasFailures && s.isInstalled[1] {
			partial := to
			partial.discovered = discovered{includes: [kinds]bool{true, false}, isComplete: !m.has(ruleDiscoveryComplete)}
			partial.discovered.isAfterGracePeriod = partial.tracked.startedAfter
			m.addPassStep(partial, next, action+", and discovers only type 1")
		}
		to.discovered = discovered{to.isInstalled, true, to.tracked.startedAfter}
		m.addPassStep(to, next, action+" with discovery")
	}
}

// addPassStep adds a step of a pass, and moves to the next type or phase.
func (m *finalizationModel) addPassStep(s finState, next *transitions[finState], action string) {
	t := &s.tracked
	for ; t.phase == passLists && t.kind < kinds; t.kind++ {
		if s.discovered.includes[t.kind] && t.known[t.kind] != confirmedEmpty && !m.isKnownEmpty(t.known[t.kind]) {
			next.add(action, s, "")
			return
		}
	}
	if t.phase == passLists {
		t.phase, t.kind = passDeletes, 0
		isConfirmed := !m.has(ruleConfirm) || !m.has(ruleConfirmAfterList)
		if slices.ContainsFunc(t.listed[:], needsDeletion) && !isConfirmed {
			t.phase = passConfirms
		}
	}
	for ; t.phase == passDeletes && t.kind < kinds; t.kind++ {
		if needsDeletion(t.listed[t.kind]) {
			next.add(action, s, "")
			return
		}
	}
	if t.phase == passDeletes {
		m.addEnd(s, next, action)
		return
	}
	next.add(action, s, "")
}

func needsDeletion(o object) bool { return o.uid != 0 && !o.isTerminating }

// isKnownEmpty reports whether a list confirms that a type is empty although it was requested before the end of
// the grace period, which a rule forbids.
func (m *finalizationModel) isKnownEmpty(known knowledge) bool {
	return known == empty && !m.has(ruleFullPass)
}

// addLists adds the list of one type: a new request, or the list for another namespace.
func (m *finalizationModel) addLists(s finState, next *transitions[finState]) {
	kind := s.tracked.kind
	name := "type " + number(kind)
	current := s.objects[kind]
	m.addListed(s, next, "the operator lists "+name, current)
	if current.isFresh {
		m.addListed(s, next, "the operator lists "+name+" from a stale watch cache", object{})
	}
	if shared := s.shared[kind]; shared.isValid && m.isUsable(s.tracked, shared) {
		m.addListed(s, next, "the operator uses the shared list of "+name, shared.object)
	}
	if m.hasFailures {
		to := s
		to.tracked.known[kind] = unknown
		if !m.has(ruleListErrors) {
			to.tracked.known[kind] = knownAfter(s.tracked)
		}
		to.tracked.kind++
		m.addPassStep(to, next, "the list of "+name+" fails")
	}
}

// isUsable reports whether a pass can use a list for another namespace.
func (m *finalizationModel) isUsable(t tracked, shared list) bool {
	if t.startedAfter && m.has(ruleListsAfterGracePeriod) {
		return shared.isAfterGracePeriod
	}
	return shared.isAfterDeletion || !m.has(ruleListsAfterDeletion)
}

// addListed adds the result of a list.
func (m *finalizationModel) addListed(s finState, next *transitions[finState], action string, result object) {
	t := &s.tracked
	t.known[t.kind] = remaining
	if result.uid == 0 || result.isTerminating && !m.has(ruleCountTerminating) {
		t.known[t.kind] = knownAfter(*t)
	} else {
		t.listed[t.kind] = result
		action += ", which contains an object"
	}
	t.kind++
	m.addPassStep(s, next, action)
}

// knownAfter returns what an empty list shows.
func knownAfter(t tracked) knowledge {
	if t.startedAfter {
		return confirmedEmpty
	}
	return empty
}

// addConfirmation adds the read of the Namespace before the first deletion.
func (m *finalizationModel) addConfirmation(s finState, next *transitions[finState]) {
	if current := s.history.current(); current.uid != s.tracked.uid || !m.mayDelete(current) {
		s.tracked = tracked{}
		next.add("the operator reads the namespace, which was replaced, and stops", s, "")
		return
	}
	s.tracked.phase, s.tracked.kind = passDeletes, 0
	m.addPassStep(s, next, "the operator reads the namespace, which is the same")
}

// addDeletion adds the deletion of one object. The API server rejects it if the UID differs.
func (m *finalizationModel) addDeletion(s finState, next *transitions[finState]) {
	kind := int(s.tracked.kind)
	target, found, current := s.tracked.listed[kind], s.objects[kind], s.history.current()
	action := "the operator deletes " + nameOf(kind)
	violation := ""
	if found.uid != 0 && (found.uid == target.uid || !m.has(ruleObjectUID)) {
		if found.owner == current.uid && !current.isTerminating {
			violation = violationLiveObject
		}
		s.deleteObject(kind)
	} else {
		action += ", which no longer exists"
	}
	if violation == "" && target.owner != s.tracked.uid {
		violation = violationForeignObject
	}
	if violation != "" {
		next.add(action, s, violation)
		return
	}
	s.tracked.kind++
	m.addPassStep(s, next, action)
}

// addEnd adds the end of a pass. If the Namespace is confirmed empty, the operator removes its finalizer from
// any version that it has read.
func (m *finalizationModel) addEnd(s finState, next *transitions[finState], action string) {
	isEmpty := s.tracked.startedAfter && s.discovered.isComplete
	for kind, known := range s.tracked.known {
		isEmpty = isEmpty && (!s.discovered.includes[kind] || known == confirmedEmpty || m.isKnownEmpty(known))
	}
	s.tracked.listed, s.tracked.kind, s.tracked.startedAfter = [kinds]object{}, 0, false
	s.tracked.phase = passIdle
	if !isEmpty {
		next.add(action, s, "")
		return
	}
	s.tracked.phase = passReleases
	action += " and confirms that the namespace is empty"
	isReplaced := true
	for _, read := range s.history.distinct() {
		if read.uid == s.tracked.uid && m.mayDelete(read) {
			isReplaced = false
			s.tracked.base = read
			next.add(action, s, "")
		}
	}
	if isReplaced { // The Namespace was removed so long ago that no other client knows it.
		s.tracked = tracked{}
		next.add(action+", which was removed", s, "")
	}
}

// addRelease adds the PUT that removes the finalizer. After a conflict, the operator reads the Namespace
// again.
func (m *finalizationModel) addRelease(s finState, next *transitions[finState]) {
	current, base := s.history.current(), s.tracked.base
	isConflict := current.uid != base.uid || current != base && m.has(ruleResourceVersion)
	switch {
	case isConflict && current.uid == base.uid && m.mayDelete(current):
		s.tracked.base = current
		next.add("the operator reads the namespace again after a conflict", s, "")
		return
	case isConflict:
		s.tracked = tracked{}
		next.add("the operator stops after a conflict", s, "")
		return
	}
	changed := current
	changed.own, changed.other = false, false
	if m.has(ruleOwnFinalizer) {
		others := finalization.OtherFinalizers(base.object(), ownFinalizer)
		changed.other = slices.Contains(others, otherFinalizer)
	}
	s.tracked = tracked{}
	to, violation := s.finalize(changed)
	if current.other && !changed.other {
		violation = violationLost
	}
	next.add("the operator removes the namespace finalizer", to, violation)
}
