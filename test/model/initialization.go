// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Invariants of the initialization.
const (
	violationNoList       = "a namespace is created without its list"
	violationOpenPending  = "a namespace opens while its list is not empty"
	violationOpenFailed   = "a failed namespace opens"
	violationOpenEarly    = "a namespace opens before its initializers have completed or were skipped"
	violationReopened     = "an initialized namespace becomes initializing again"
	violationRestored     = "a removed initializer is pending again"
	violationOrder        = "an initializer completes before an earlier one"
	violationResult       = "an initialized namespace has a failure result"
	violationStored       = "a user without the verb writes to an initializing namespace"
	violationOrphan       = "a write is stored after its namespace was removed"
	violationHeld         = "a write is stored for which policies were evaluated before it was held"
	violationWrongTarget  = "the operator changes a namespace that it has not read"
	violationNotFailed    = "the operator deletes a namespace whose initialization has not failed"
	violationSkipFinished = "the operator skips or fails an initializer that has completed"
	violationPolicy       = "the operator skips an initializer with failurePolicy Fail"
	violationEarly        = "the operator decides before the timeout that an initializer has timed out"
	violationSkipEarly    = "the operator skips an initializer that was not unregistered for the delay"
)

// Limits in docs/design.md, which are no violations.
const (
	limitOldNamespace = "the gate evaluates the old namespace for an UPDATE in a namespace that was created again"
)

// names is a set of initializers. The lowest bit is the first one in the list.
type names uint8

const (
	firstInitializer names = 1 << iota
	secondInitializer
	thirdInitializer
)

// ordinals are the first labels of the names of the initializers.
var ordinals = []string{"first", "second", "third"}

// each returns the initializers of a set in the order of the list.
func (n names) each() []names {
	var result []names
	for i := range ordinals {
		if one := names(1 << i); n&one != 0 {
			result = append(result, one)
		}
	}
	return result
}

// slice returns the names as in a pending list.
func (n names) slice() []string {
	var result []string
	for i, ordinal := range ordinals {
		if n&(1<<i) != 0 {
			result = append(result, ordinal+".example.com")
		}
	}
	return result
}

// String returns the short names for a trace.
func (n names) String() string {
	if n == 0 {
		return "none"
	}
	return strings.ReplaceAll(strings.Join(n.slice(), " and "), ".example.com", "")
}

// namesOf returns the set of the given names.
func namesOf(list []string) names {
	var result names
	for i, ordinal := range ordinals {
		if slices.Contains(list, ordinal+".example.com") {
			result |= 1 << i
		}
	}
	return result
}

// namespace is one version of a Namespace. All Namespaces have the same name.
type namespace struct {
	uid uint8 // 0 if the Namespace does not exist
	// initializers is the list at creation, pending the current list.
	initializers, pending              names
	hasLabel, hasFailed, isTerminating bool
	// finished are the initializers that have removed themselves or were skipped. No actor reads it.
	finished names
}

// isPending reports whether the hold webhooks let a write wait.
func (n namespace) isPending() bool {
	return n.uid != 0 && n.hasLabel && !n.hasFailed && !n.isTerminating
}

// String describes a version for a trace.
func (n namespace) String() string {
	if n.uid == 0 {
		return "no namespace"
	}
	text := "UID " + number(n.uid-1)
	if n.hasLabel {
		text += ", pending " + n.pending.String()
	}
	if n.hasFailed {
		text += ", failed"
	}
	if n.isTerminating {
		text += ", terminating"
	}
	return text
}

// object returns the Namespace as the operator reads it.
func (n namespace) object() *corev1.Namespace {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "x", UID: types.UID(strconv.Itoa(int(n.uid))), CreationTimestamp: metav1.NewTime(start),
		Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	if n.hasLabel {
		object.Labels[v1alpha1.LabelInitializing] = "true"
	}
	if n.pending != 0 {
		object.Annotations[v1alpha1.AnnotationPendingInitializers] = join(n.pending)
	}
	if n.initializers != 0 {
		object.Annotations[v1alpha1.AnnotationInitializers] = join(n.initializers)
	}
	if n.hasFailed {
		object.Annotations[v1alpha1.AnnotationInitializationResult] = `{"status":"Failure"}`
	}
	if n.isTerminating {
		object.DeletionTimestamp = &metav1.Time{Time: start}
	}
	return object
}

// start is the time of the first decision of the operator.
var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// registration is the registration of all initializers, in one configuration.
type registration uint8

const (
	registered registration = iota
	// unregistered means that the configuration was deleted less than DeregistrationDelay ago.
	unregistered
	unregisteredForDelay
	// registeredAgain is like registered, but the configuration is not deleted a second time.
	registeredAgain
)

// initState is a state of the initialization.
type initState struct {
	history history[namespace]
	// created is the number of Namespaces that were created.
	created uint8
	// isUnsynced reports whether the last API server does not yet recognize the set as a parameter.
	isUnsynced bool
	// objectIn is the UID of the Namespace that contains an object of an initializer; 0 if there is none.
	objectIn uint8
	write    write
	// configuration is the registration in etcd, and observed in the cache of the operator.
	configuration, observed registration
	decided                 decision
}

// initializationModel is the model of the initialization. The fields are its size.
type initializationModel struct {
	// without is the rule that is taken out.
	without rule
	// servers is the number of API servers, and namespaces the number of Namespaces that are created
	// one after the other.
	servers, namespaces uint8
	initializers        names
	// policy is the failure policy of the initializers if the operator runs.
	policy v1alpha1.InitializerFailurePolicy
	// hasWrites adds writes of users to objects, and hasHold the webhooks that hold them.
	hasWrites, hasHold bool
	// hasMistakes adds users and initializers that try to forge the state.
	hasMistakes bool
	// hasSubjects makes each initializer the only subject of itself.
	hasSubjects bool
	// hasFailures adds initializers that report a failure.
	hasFailures bool
	// hasDeregistration adds the deletion and creation of the configuration.
	hasDeregistration bool
	// startsUnsynced starts with an API server that does not recognize the set.
	startsUnsynced bool
	// reports is a limit that is reported as a violation.
	reports string

	decisions map[decisionKey][]decision
}

func (m *initializationModel) has(r rule) bool { return m.without != r }

// limit returns a limit if it is reported.
func (m *initializationModel) limit(text string) string {
	if m.reports != text {
		return ""
	}
	return text
}

// Initial implements Model.
func (m *initializationModel) Initial() initState { return initState{isUnsynced: m.startsUnsynced} }

// IsEnd implements Model: there is no Namespace, or it is initialized, or its finalization has started.
func (m *initializationModel) IsEnd(s initState) bool {
	current := s.history.current()
	return current.uid == 0 || current.isTerminating || !current.hasLabel
}

// Next implements Model.
func (m *initializationModel) Next(s initState) []Transition[initState] {
	var next transitions[initState]
	for server := range m.servers {
		to := s
		if to.history = s.history.refresh(server); to != s {
			next.add("API server "+number(server)+" observes "+to.history.seenBy(server).String(), to, "")
		}
	}
	if s.isUnsynced {
		to := s
		to.isUnsynced = false
		next.add("API server "+number(m.servers-1)+" recognizes the set", to, "")
	}
	m.addUser(s, &next)
	m.addInitializers(s, &next)
	if m.policy != "" {
		m.addOperator(s, &next)
	}
	if m.hasWrites {
		m.addWrites(s, &next)
	}
	return next
}

// addUser adds the actions on the Namespace of a user without the verb, and its removal.
func (m *initializationModel) addUser(s initState, next *transitions[initState]) {
	current := s.history.current()
	if current.uid == 0 {
		if s.created < m.namespaces {
			m.addCreation(s, next)
		}
		return
	}
	if !current.isTerminating {
		to := s
		changed := current
		changed.isTerminating = true
		to.history = s.history.add(changed)
		next.addExternal("the user deletes the namespace", to, "")
	} else if m.isObserved(s, current.uid) || !m.has(ruleGracePeriod) {
		to := s
		to.history, to.objectIn = s.history.add(namespace{}), 0
		next.add("the namespace is finalized and removed", to, "")
	}
	if m.hasMistakes {
		forged := current
		forged.pending, forged.hasLabel, forged.hasFailed = 0, false, false
		m.addUpdate(s, next, "the user removes the list and the label", forged, actor{}, false)
		m.addUpdate(s, next, "an administrator applies a manifest without the keys", current, actor{hasVerb: true}, true)
	}
}

// isObserved reports whether the grace period can have ended: all API servers have observed the
// deletion, and all writes that they admitted before are stored.
func (m *initializationModel) isObserved(s initState, uid uint8) bool {
	for server := range m.servers {
		if seen := s.history.seenBy(server); seen.uid != uid || !seen.isTerminating {
			return false
		}
	}
	return s.write.isUpdate || s.write.phase == writeNone || s.write.phase == writeHeld
}

// addCreation adds the creation of the Namespace through each API server.
func (m *initializationModel) addCreation(s initState, next *transitions[initState]) {
	for server := range m.servers {
		knowsSet := !s.isUnsynced || server != m.servers-1
		if !knowsSet && m.has(ruleInjectFails) {
			continue
		}
		to := s
		to.created++
		created := namespace{uid: to.created}
		violation := violationNoList
		if knowsSet && m.has(ruleInject) {
			created.initializers, created.pending, created.hasLabel = m.initializers, m.initializers, m.initializers != 0
			violation = ""
		}
		to.history = s.history.add(created)
		action := "the user creates the namespace through API server " + number(server) + ": "
		next.addExternal(action+created.String(), to, violation)
		if s.configuration != registered { // Until the operator and the API server have observed the configuration.
			to.history = s.history.add(namespace{uid: to.created})
			next.addExternal(action+"no initializers", to, "")
		}
	}
}

// addInitializers adds the actions of initializers. An initializer can have read any version of the list.
func (m *initializationModel) addInitializers(s initState, next *transitions[initState]) {
	current := s.history.current()
	if current.uid == 0 {
		return
	}
	for _, name := range m.initializers.each() {
		for _, read := range s.history.distinct() {
			isSame := read.uid == current.uid || !m.has(ruleInitializerUID)
			// Without subjects, initializers wait for their turn by convention.
			isTurn := m.hasSubjects || !isEarly(name, read.pending&^name)
			if read.uid == 0 || read.pending&name == 0 || !isSame || !isTurn {
				continue
			}
			by := actor{hasVerb: true}
			if read.uid == current.uid {
				by.own = name
			}
			request := current
			request.pending = read.pending &^ name
			action := "initializer " + name.String() + " completes, with a list that it read of " + read.pending.String()
			m.addUpdate(s, next, action, request, by, false)
		}
		if m.hasFailures && current.pending != 0 && current.pending&-current.pending == name {
			request := current
			request.hasFailed = true
			m.addUpdate(s, next, "initializer "+name.String()+" sets a failure result", request,
				actor{hasVerb: true}, false)
		}
	}
	if m.hasSubjects {
		request := current
		request.pending = 0
		m.addUpdate(s, next, "initializer second removes all names", request,
			actor{hasVerb: true, own: secondInitializer}, false)
	}
	if m.hasMistakes {
		request := current
		request.hasLabel = false
		m.addUpdate(s, next, "initializer first removes the label", request,
			actor{hasVerb: true, own: firstInitializer}, false)
	}
	if m.hasWrites && s.objectIn == 0 && current.hasLabel && !current.isTerminating {
		to := s
		to.objectIn = current.uid
		next.addExternal("an initializer creates an object", to, "")
	}
}
