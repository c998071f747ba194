// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// timeout is the timeout of each initializer.
const timeout = time.Minute

// decision is a decision of the operator that is not written yet.
type decision struct {
	kind decisionKind
	// uid is the UID of the Namespace that the operator has read.
	uid uint8
	// names are the initializers that are skipped, or whose timeout fails the initialization.
	names names
	// pending is the list after a skip.
	pending names
	// isEarly reports whether the operator decides before the timeout that the initializer has timed out.
	isEarly bool
}

type decisionKind uint8

const (
	decideNothing decisionKind = iota
	skipTimedOut
	skipDeregistered
	setFailure
	deleteNamespace
)

// String describes a decision in a trace.
func (d decision) String() string {
	switch d.kind {
	case skipTimedOut:
		return "skip " + d.names.String() + " after a timeout"
	case skipDeregistered:
		return "skip " + d.names.String() + " after deregistration"
	case setFailure:
		return "fail the initialization after a timeout of " + d.names.String()
	case deleteNamespace:
		return "delete the namespace"
	}
	return "do nothing"
}

// decisionKey contains everything that a decision depends on, besides the time.
type decisionKey struct {
	namespace    namespace
	registration registration
}

// addOperator adds the actions of the operator: it decides, and then writes what it has decided. Its cache
// can contain any version of the Namespace.
func (m *initializationModel) addOperator(s initState, next *transitions[initState]) {
	m.addRegistration(s, next)
	if s.decided.kind != decideNothing {
		m.addWriteOfOperator(s, next)
		return
	}
	current := s.history.current()
	for _, cached := range s.history.distinct() {
		known := s.observed
		if len(m.decide(cached, known)) == 0 {
			continue
		}
		if m.has(ruleLiveNamespace) {
			if cached.uid != current.uid {
				continue
			}
			cached = current
		}
		// The time since which an initializer is not registered is only in the memory of the operator.
		switch {
		case !m.has(ruleLiveRegistry):
		case isRegistered(s.configuration):
			known = s.configuration
		case isRegistered(known):
			known = unregistered
		}
		for _, decided := range m.decide(cached, known) {
			to := s
			to.decided = decided
			next.add("the operator decides to "+decided.String(), to, m.violationOfDecision(s, decided))
		}
	}
}

// violationOfDecision returns the invariant that a decision violates.
func (m *initializationModel) violationOfDecision(s initState, decided decision) string {
	current := s.history.current()
	switch {
	case decided.kind == skipDeregistered && s.configuration != unregisteredForDelay:
		return violationSkipEarly
	case current.uid == decided.uid && decided.names&current.finished != 0:
		return violationSkipFinished
	case decided.isEarly:
		return violationEarly
	case decided.kind == skipTimedOut && m.policy != v1alpha1.InitializerIgnore:
		return violationPolicy
	}
	return ""
}

// addWriteOfOperator adds the write of a decision. It contains the UID of the Namespace that the operator
// has read, but no resourceVersion, as in the last attempt after conflicts.
func (m *initializationModel) addWriteOfOperator(s initState, next *transitions[initState]) {
	current, decided := s.history.current(), s.decided
	s.decided = decision{}
	action := "the operator writes its decision to " + decided.String() + ", to UID " + number(decided.uid-1)
	if current.uid == 0 || current.uid != decided.uid && m.has(ruleOperatorUID) {
		next.add(action+", which the API server rejects", s, "")
		return
	}
	to, violation := s, ""
	request := current
	switch decided.kind {
	case skipTimedOut, skipDeregistered:
		request.pending = decided.pending
	case setFailure:
		request.hasFailed = true
	case deleteNamespace:
		request.isTerminating = true
		if !current.hasFailed {
			violation = violationNotFailed
		}
	}
	if decided.kind == deleteNamespace {
		to.history = s.history.add(request)
	} else {
		to, violation, _ = m.update(s, request, actor{hasVerb: true, isOperator: true, own: decided.names}, false)
	}
	if current.uid != decided.uid && to != s {
		violation = violationWrongTarget
	}
	next.add(action, to, violation)
}

// addRegistration adds the deletion and creation of the configuration, and the cache of the operator. The
// cache is stale for less than the delay of deregistration.
func (m *initializationModel) addRegistration(s initState, next *transitions[initState]) {
	to := s
	switch s.configuration {
	case registered:
		if m.hasDeregistration {
			to.configuration = unregistered
			next.addExternal("the user deletes the configuration", to, "")
		}
	case unregistered, unregisteredForDelay:
		to.configuration = registeredAgain
		next.addExternal("the user creates the configuration again", to, "")
	}
	if s.configuration == unregistered && s.observed == unregistered {
		to = s
		to.configuration, to.observed = unregisteredForDelay, unregisteredForDelay
		next.add("the delay of deregistration ends", to, "")
	}
	if s.configuration != s.observed {
		to = s
		to.observed = s.configuration
		next.add("the operator observes the configuration", to, "")
	}
}

func isRegistered(r registration) bool { return r == registered || r == registeredAgain }

// decide returns the decisions of the operator for a version of the Namespace that require a live read, before
// and after the timeout of the initializer whose turn it is.
func (m *initializationModel) decide(n namespace, known registration) []decision {
	if n.uid == 0 {
		return nil
	}
	key := decisionKey{n, known}
	if decided, ok := m.decisions[key]; ok {
		return decided
	}
	object, registry := n.object(), m.registry(known)
	first := initialization.Decide(object, registry, "", start)
	object.Status.Conditions = append([]corev1.NamespaceCondition(nil), first.Conditions...)
	var result []decision
	// Conditions have timestamps in seconds, so the operator waits one second longer.
	for _, elapsed := range []time.Duration{0, timeout, timeout + time.Second} {
		decided := decisionOf(initialization.Decide(object, registry, "", start.Add(elapsed)))
		decided.uid = n.uid
		decided.isEarly = (decided.kind == skipTimedOut || decided.kind == setFailure) && elapsed <= timeout
		if decided.kind != decideNothing && m.allows(decided) && !slices.Contains(result, decided) {
			result = append(result, decided)
		}
	}
	if m.decisions == nil {
		m.decisions = map[decisionKey][]decision{}
	}
	m.decisions[key] = result
	return result
}

// allows reports whether the rule that a decision follows has not been taken out.
func (m *initializationModel) allows(decided decision) bool {
	switch decided.kind {
	case skipDeregistered:
		return m.has(ruleDeregistration)
	case deleteNamespace:
		return m.has(ruleDeleteFailed)
	}
	return m.has(ruleTimeout)
}

// decisionOf returns the part of a Decision that requires a live read.
func decisionOf(decided initialization.Decision) decision {
	switch {
	case decided.Skip != nil:
		kind := skipTimedOut
		if decided.Skip.Reason == v1alpha1.ReasonDeregistered {
			kind = skipDeregistered
		}
		return decision{
			kind: kind, names: namesOf(decided.Skip.Initializers),
			pending: namesOf(initialization.SplitNames(decided.Skip.Pending)),
		}
	case decided.Fail != nil:
		return decision{kind: setFailure, names: namesOf([]string{decided.Fail.Initializer})}
	case decided.Delete:
		return decision{kind: deleteNamespace}
	}
	return decision{}
}

// registry returns the registry of the operator.
func (m *initializationModel) registry(known registration) initialization.Registry {
	policy, seconds := m.policy, int32(timeout.Seconds())
	if !m.has(ruleFailurePolicy) {
		policy = v1alpha1.InitializerIgnore
	}
	if !m.has(ruleTimeoutSeconds) {
		seconds = 1
	}
	var configurations []v1alpha1.NamespaceInitializerConfiguration
	missing := map[string]time.Time{}
	if isRegistered(known) {
		configuration := v1alpha1.NamespaceInitializerConfiguration{}
		configuration.Name = "configuration"
		for _, name := range m.initializers.slice() {
			configuration.Initializers = append(configuration.Initializers, v1alpha1.NamespaceInitializer{
				Name: name, InitializerSettings: v1alpha1.InitializerSettings{
					TimeoutSeconds: &seconds, FailurePolicy: &policy,
				},
			})
		}
		configurations = append(configurations, configuration)
	} else if known == unregisteredForDelay || !m.has(ruleDeregistrationDelay) {
		for _, name := range m.initializers.slice() {
			missing[name] = start.Add(-initialization.DeregistrationDelay)
		}
	} else {
		for _, name := range m.initializers.slice() {
			// The delay has not ended at the time of the second decision either.
			missing[name] = start.Add(timeout)
		}
	}
	return initialization.Registry{
		Registrations: initialization.ComputeRegistrations(configurations, true), UnregisteredSince: missing,
	}
}

// join returns the text of a list.
func join(n names) string { return strings.Join(n.slice(), ",") }
