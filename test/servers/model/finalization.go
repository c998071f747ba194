// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/graceperiod"
)

// Invariants of the finalization.
const (
	violationNotEmpty      = "a namespace is finalized while it contains an object"
	violationLiveObject    = "the operator deletes an object of a live namespace"
	violationForeignObject = "a pass deletes an object of another namespace of the same name"
	violationLost          = "a finalizer of another controller is lost"
	violationLate          = "an object is created after its namespace was finalized"
)

// Finalizers in spec.finalizers.
const (
	ownFinalizer   corev1.FinalizerName = "kubernetes"
	otherFinalizer corev1.FinalizerName = "example.com/other"
)

const (
	// shortDelay limits how stale the cache of the first API server is, and how long it delays a request
	// without webhooks.
	shortDelay = time.Second
	// longDelay limits the same for other API servers, and how long webhooks delay a request.
	longDelay = 5 * time.Second
)

// kinds is the number of resource types. The second type can be installed later.
const kinds = 2

// finNamespace is one version of a Namespace. All Namespaces have the same name.
type finNamespace struct {
	uid           uint8 // 0 if the Namespace does not exist
	isTerminating bool
	// own and other report whether spec.finalizers contains ownFinalizer and otherFinalizer.
	own, other bool
}

// String describes a version for a trace.
func (n finNamespace) String() string {
	if n.uid == 0 {
		return "no namespace"
	}
	text := "UID " + number(n.uid-1)
	if n.isTerminating {
		text += ", terminating"
	}
	return text
}

// object returns the Namespace as the operator reads it.
func (n finNamespace) object() *corev1.Namespace {
	object := &corev1.Namespace{}
	if n.own {
		object.Spec.Finalizers = append(object.Spec.Finalizers, ownFinalizer)
	}
	if n.other {
		object.Spec.Finalizers = append(object.Spec.Finalizers, otherFinalizer)
	}
	return object
}

// object is an object in the Namespace. All objects of one type have the same name.
type object struct {
	uid uint8 // 0 if the object does not exist
	// owner is the UID of the Namespace in which the object was created.
	owner                       uint8
	hasFinalizer, isTerminating bool
	// isFresh reports whether the watch cache of the API server does not contain the object yet.
	isFresh bool
}

// creation is a CREATE that an API server has admitted and not yet stored.
type creation struct {
	isActive, isSlow bool
	kind             uint8
	// namespace is the UID of the Namespace that the API server has evaluated.
	namespace uint8
}

// list is a cluster-wide list of one type that was requested for another namespace.
type list struct {
	isValid bool
	// isAfterDeletion and isAfterGracePeriod report whether it was requested after the operator has seen
	// the deletion of the tracked Namespace, and after the end of its grace period.
	isAfterDeletion, isAfterGracePeriod bool
	object                              object
}

// discovered is the discovery cache of the operator.
type discovered struct {
	// includes reports for each type whether it was discovered.
	includes                       [kinds]bool
	isComplete, isAfterGracePeriod bool
}

// finState is a state of the finalization.
type finState struct {
	history history
	// created and objectsCreated are the numbers of Namespaces and objects that were created.
	created, objectsCreated uint8
	isInstalled             [kinds]bool
	objects                 [kinds]object
	creation                creation
	shared                  [kinds]list
	discovered              discovered
	tracked                 tracked
}

// finalizationModel is the model of the finalization. The fields are its size.
type finalizationModel struct {
	// without is the rule that is taken out.
	without rule
	servers uint8
	// namespaces and objects are the numbers of Namespaces and objects that are created.
	namespaces, objects uint8
	// hasWebhook adds an admission webhook that delays requests.
	hasWebhook bool
	// hasSharedLists adds list requests for other namespaces.
	hasSharedLists bool
	// hasPeer adds a second controller that owns the same finalizer.
	hasPeer bool
	// hasOther adds a controller with another finalizer.
	hasOther bool
	// hasTypes adds a type that is installed later.
	hasTypes bool
	// hasFailures adds partial discovery and failed lists.
	hasFailures bool
	// hasObjectFinalizers adds a finalizer to each object.
	hasObjectFinalizers bool

	gracePeriod time.Duration
}

func (m *finalizationModel) has(r rule) bool { return m.without != r }

// Initial implements Model.
func (m *finalizationModel) Initial() finState {
	m.gracePeriod = m.chooseGracePeriod()
	s := finState{}
	s.isInstalled[0], s.discovered.includes[0], s.discovered.isComplete = true, true, true
	return s
}

// IsEnd implements Model: no Namespace is terminating.
func (m *finalizationModel) IsEnd(s finState) bool { return !s.history.current().isTerminating }

// Next implements Model.
func (m *finalizationModel) Next(s finState) []Transition[finState] {
	var next transitions[finState]
	for server := range m.servers {
		to := s
		if to.history = s.history.refresh(server); to != s {
			next.add("API server "+number(server)+" observes "+to.history.seenBy(server).String(), to, "")
		}
	}
	m.addNamespace(s, &next)
	m.addObjects(s, &next)
	m.addControllers(s, &next)
	m.addPass(s, &next)
	return next
}

// addNamespace adds the actions of users and of other controllers on the Namespace.
func (m *finalizationModel) addNamespace(s finState, next *transitions[finState]) {
	current, to := s.history.current(), s
	switch {
	case current.uid == 0 && s.created < m.namespaces:
		to.created++
		to.history = s.history.add(finNamespace{uid: to.created, own: true})
		next.addExternal("the user creates the namespace: "+to.history.current().String(), to, "")
		if m.hasOther {
			to.history = s.history.add(finNamespace{uid: to.created, own: true, other: true})
			next.addExternal("the user creates the namespace with the finalizer of another controller", to, "")
		}
	case current.uid != 0 && !current.isTerminating:
		deleted := current
		deleted.isTerminating = true
		to.history = s.history.add(deleted)
		next.addExternal("the user deletes the namespace", to, "")
	}
	if m.hasOther && current.own && !current.other {
		changed := current
		changed.other = true
		to = s
		to.history = s.history.add(changed)
		next.addExternal("another controller adds its finalizer to the namespace", to, "")
	}
	if current.other && current.isTerminating {
		changed := current
		changed.other = false
		to, violation := s.finalize(changed)
		next.add("another controller removes its finalizer from the namespace", to, violation)
	}
}

// finalize stores the Namespace after the removal of a finalizer. The API server removes the Namespace with
// its last finalizer.
func (s finState) finalize(changed finNamespace) (finState, string) {
	violation := ""
	if !changed.own && s.hasObjects(changed.uid) {
		violation = violationNotEmpty
	}
	if !changed.own && !changed.other {
		changed = finNamespace{}
	}
	s.history = s.history.add(changed)
	return s, violation
}

func (s finState) hasObjects(namespace uint8) bool {
	return slices.ContainsFunc(s.objects[:], func(o object) bool { return o.uid != 0 && o.owner == namespace })
}

// addObjects adds the creation of objects by users.
func (m *finalizationModel) addObjects(s finState, next *transitions[finState]) {
	if s.creation.isActive {
		m.addStored(s, next)
	} else if s.objectsCreated < m.objects {
		for server := range m.servers {
			m.addCreation(s, next, server)
		}
	}
	for kind := range s.objects {
		to := s
		if s.objects[kind].isFresh {
			to.objects[kind].isFresh = false
			next.add("the watch cache observes "+nameOf(kind), to, "")
		}
	}
	if m.hasTypes && !s.isInstalled[1] {
		s.isInstalled[1] = true
		next.addExternal("the user installs type 2", s, "")
	}
}

// addCreation adds CREATE requests. An API server rejects them if its cache contains the deletion.
func (m *finalizationModel) addCreation(s finState, next *transitions[finState], server uint8) {
	seen := s.history.seenBy(server)
	if seen.uid == 0 {
		seen = s.history.current()
	}
	if seen.uid == 0 || seen.isTerminating {
		return
	}
	for kind := range s.objects {
		if s.objects[kind].uid != 0 || !s.isInstalled[kind] {
			continue
		}
		s.creation = creation{isActive: true, kind: uint8(kind), namespace: seen.uid}
		action := fmt.Sprintf("API server %s admits the creation of %s", number(server), nameOf(kind))
		next.addExternal(action, s, "")
		if m.hasWebhook {
			s.creation.isSlow = true
			next.addExternal(action+", which a webhook delays", s, "")
		}
	}
}

// addStored adds the creation of the object in etcd, where the Namespace is not checked again.
func (m *finalizationModel) addStored(s finState, next *transitions[finState]) {
	current, c := s.history.current(), s.creation
	s.creation = creation{}
	violation := ""
	if current.uid != c.namespace || current.isTerminating && !current.own {
		violation = violationLate
	}
	if s.objects[c.kind].uid == 0 {
		s.objectsCreated++
		s.objects[c.kind] = object{
			uid: s.objectsCreated, owner: current.uid, hasFinalizer: m.hasObjectFinalizers,
			isFresh: !m.has(ruleConsistentLists),
		}
	}
	next.add(nameOf(int(c.kind))+" is stored", s, violation)
}

// addControllers adds the second controller and the owner of the finalizers of objects.
func (m *finalizationModel) addControllers(s finState, next *transitions[finState]) {
	current := s.history.current()
	for kind := range s.objects {
		to := s
		if o := s.objects[kind]; o.isTerminating {
			to.objects[kind] = object{}
			next.add("the owner removes the finalizer of "+nameOf(kind), to, "")
		} else if m.hasPeer && current.isTerminating && o.uid != 0 && o.owner == current.uid {
			to.deleteObject(kind)
			next.addExternal("the second controller deletes "+nameOf(kind), to, "")
		}
	}
	if m.hasPeer && current.isTerminating && current.own &&
		!s.hasObjects(current.uid) && m.isSettled(s, current.uid, longDelay) {
		changed := current
		changed.own = false
		to, violation := s.finalize(changed)
		next.addExternal("the second controller removes the namespace finalizer", to, violation)
	}
}

func (s *finState) deleteObject(kind int) {
	if s.objects[kind].hasFinalizer {
		s.objects[kind].isTerminating = true
	} else {
		s.objects[kind] = object{}
	}
}

// isSettled reports whether the given time can have passed since the deletion of a Namespace was seen.
func (m *finalizationModel) isSettled(s finState, uid uint8, passed time.Duration) bool {
	if s.history.current().uid != uid {
		return true
	}
	for server := range m.servers {
		limit := longDelay
		if server == 0 {
			limit = shortDelay
		}
		if seen := s.history.seenBy(server); passed >= limit && (seen.uid != uid || !seen.isTerminating) {
			return false
		}
	}
	limit := shortDelay
	if s.creation.isSlow {
		limit = longDelay
	}
	return !s.creation.isActive || s.creation.namespace != uid || passed < limit
}

// chooseGracePeriod returns the grace period that the operator chooses.
func (m *finalizationModel) chooseGracePeriod() time.Duration {
	var config graceperiod.GracePeriod
	if !m.has(ruleGracePeriod) {
		config.Fixed = new(time.Duration)
	}
	leases := make([]coordinationv1.Lease, m.servers)
	if !m.has(ruleCountServers) {
		leases = leases[:1]
	}
	var webhooks []admissionv1.MutatingWebhookConfiguration
	if m.hasWebhook && m.has(ruleCountWebhooks) {
		webhooks = append(webhooks, admissionv1.MutatingWebhookConfiguration{
			Webhooks: []admissionv1.MutatingWebhook{{Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{"*"}, Resources: []string{"*"}},
			}}}},
		})
	}
	period, _ := config.Choose(leases, nil, time.Now(), func() ([]string, error) {
		return graceperiod.DelayingWebhooks(webhooks, nil), nil
	})
	return period
}

// nameOf returns the name of the object of a type in traces.
func nameOf(kind int) string { return "the object of type " + number(uint8(kind)) }
