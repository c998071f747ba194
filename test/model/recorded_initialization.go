// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/bits"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/observer"
)

// storedInitialization is what etcd stores of a state of the initialization.
type storedInitialization struct {
	namespace    namespace
	objectIn     uint8
	isRegistered bool
}

// observe implements traceable.
func (m *initializationModel) observe(s initState) storedInitialization {
	current := s.history.current()
	current.finished = 0 // Only the invariants use it.
	return storedInitialization{current, s.objectIn, isRegistered(s.configuration)}
}

// initializationTrace maps the history of a name to actions of the model.
type initializationTrace struct {
	Recording
	model *initializationModel
	// initializers are the names in the list at creation.
	initializers []string
	timeout      time.Duration
	uids         uids
	// created contains the objects that were created.
	created map[types.UID]bool
	stored  storedInitialization
	// object is the object of an initializer in stored.objectIn.
	object types.UID
	// turn is the time since which the first initializer is first in the list.
	turn, unregistered time.Time
	changes            []change[storedInitialization]
}

// initialization returns the model of the history of a name, and its changes.
func (r Recording) initialization(name string) (*initializationModel, []change[storedInitialization]) {
	t := initializationTrace{
		Recording: r, uids: uids{}, created: map[types.UID]bool{},
		stored: storedInitialization{isRegistered: true},
		model: &initializationModel{
			servers: r.Servers, hasWrites: true, hasHold: r.HasHold, hasFailures: true, hasDeregistration: true,
		},
	}
	for i := range r.Steps {
		list := r.Steps[i].Object.Annotations[v1alpha1.AnnotationInitializers]
		if isNamespace(&r.Steps[i]) && r.Steps[i].Object.Name == name && list != "" {
			t.initializers = initialization.SplitNames(list)
		}
	}
	t.model.initializers = t.namesIn(t.initializers)
	for i := range r.Steps {
		switch step := &r.Steps[i]; {
		case isNamespace(step) && step.Object.Name == name:
			t.addNamespace(step)
		case isConfiguration(step) && t.registers(step):
			t.addConfiguration(step)
		case step.Object.Namespace == name:
			t.addObject(step)
		}
	}
	t.model.namespaces = uint8(len(t.uids))
	return t.model, t.changes
}

// namesIn returns the set of the initializers in a list.
func (t *initializationTrace) namesIn(list []string) names {
	var set names
	for i, name := range t.initializers {
		if slices.Contains(list, name) {
			set |= 1 << i
		}
	}
	return set
}

// add adds a change, and what etcd stores after it.
func (t *initializationTrace) add(step *observer.Step, action string, after storedInitialization) {
	tooEarly := slices.Concat(
		tooEarlyFor("after a timeout", t.turn, step.Seen, t.timeout),
		tooEarlyFor("the delay of deregistration ends", t.unregistered, step.Seen, initialization.DeregistrationDelay))
	t.changes = append(t.changes, change[storedInitialization]{describe(step), action, after, tooEarly})
	t.stored = after
}

// registers reports whether a configuration contains the initializers of the name.
func (t *initializationTrace) registers(step *observer.Step) bool {
	return slices.ContainsFunc(step.Object.Initializers, func(initializer v1alpha1.NamespaceInitializer) bool {
		return slices.Contains(t.initializers, initializer.Name)
	})
}

// addConfiguration adds the deletion of the configuration, and later creations.
func (t *initializationTrace) addConfiguration(step *observer.Step) {
	after := t.stored
	after.isRegistered = !step.IsRemoval
	if after.isRegistered {
		t.configure(step.Object.Initializers)
	}
	switch {
	case after == t.stored:
	case step.IsRemoval:
		t.add(step, "the user deletes the configuration", after)
		t.unregistered = step.Received
	default:
		t.add(step, "the user creates the configuration again", after)
	}
}

// configure sets the failure policy and the shortest timeout of the initializers.
func (t *initializationTrace) configure(initializers []v1alpha1.NamespaceInitializer) {
	t.model.policy, t.model.without = v1alpha1.InitializerFail, ruleTimeout
	for _, initializer := range initializers {
		if initializer.TimeoutSeconds == nil {
			continue
		}
		timeout := time.Duration(*initializer.TimeoutSeconds) * time.Second
		if t.model.without == "" {
			timeout = min(timeout, t.timeout)
		}
		t.model.without, t.timeout = "", timeout
		if initializer.FailurePolicy != nil {
			t.model.policy = *initializer.FailurePolicy
		}
	}
}

// addNamespace adds a version of the Namespace that differs in the model.
func (t *initializationTrace) addNamespace(step *observer.Step) {
	before, after := t.stored.namespace, t.stored
	after.namespace = t.parse(step)
	action := ""
	switch {
	case after == t.stored && !step.IsRemoval:
		return
	case step.IsRemoval:
		action, after.objectIn, t.object = "the namespace is finalized and removed", 0, ""
	case before.uid == 0:
		action = "the user creates the namespace"
	case step.User == "":
	case after.namespace.hasFailed && !before.hasFailed && step.User == t.Operator:
		action = "the operator writes its decision to fail the initialization"
	case after.namespace.hasFailed && !before.hasFailed:
		action = "sets a failure result"
	case after.namespace.pending != before.pending:
		action = t.removalAction(step, before.pending&^after.namespace.pending)
	case after.namespace.isTerminating && step.User == t.Operator:
		action = "the operator writes its decision to delete the namespace"
	case after.namespace.isTerminating:
		action = "the user deletes the namespace"
	}
	t.add(step, action, after)
	if before.uid == 0 || after.namespace.pending != before.pending {
		t.turn = step.Received
	}
}

// parse returns the version of the Namespace in a step.
func (t *initializationTrace) parse(step *observer.Step) namespace {
	uid := t.uids.number(step.Object.UID)
	if step.IsRemoval {
		return namespace{}
	}
	_, hasLabel := step.Object.Labels[v1alpha1.LabelInitializing]
	_, hasFailed := step.Object.Annotations[v1alpha1.AnnotationInitializationResult]
	listIn := func(key string) names {
		return t.namesIn(initialization.SplitNames(step.Object.Annotations[key]))
	}
	return namespace{
		uid: uid, hasLabel: hasLabel, hasFailed: hasFailed, isTerminating: step.Object.DeletionTimestamp != nil,
		initializers: listIn(v1alpha1.AnnotationInitializers), pending: listIn(v1alpha1.AnnotationPendingInitializers),
	}
}

// removalAction returns the action that removes initializers from the pending list.
func (t *initializationTrace) removalAction(step *observer.Step, removed names) string {
	if step.User != t.Operator || removed == 0 {
		return "initializer " + removed.String() + " completes"
	}
	name := t.initializers[bits.TrailingZeros8(uint8(removed))]
	condition := nscondition.Find(namespaceIn(step),
		corev1.NamespaceConditionType(name+v1alpha1.ConditionInitializedSuffix))
	kind := skipTimedOut
	if condition != nil && condition.Reason == v1alpha1.ReasonDeregistered {
		kind = skipDeregistered
	}
	return "the operator writes its decision to " + decision{kind: kind, names: removed}.String()
}

// addObject adds writes of users to objects. The model contains one object of an initializer, and does not
// contain deletions.
func (t *initializationTrace) addObject(step *observer.Step) {
	after := t.stored
	isNew := !t.created[step.Object.UID]
	t.created[step.Object.UID] = true
	switch isOrdinary := step.User == t.Ordinary; {
	case step.IsRemoval:
	case isNew && isOrdinary:
		t.add(step, "the CREATE is stored", after)
	case isOrdinary && step.Object.UID == t.object:
		t.add(step, "the UPDATE is stored", after)
	case isNew && t.object == "" && step.User != t.Operator && after.namespace.hasLabel && !after.namespace.isTerminating:
		after.objectIn, t.object = after.namespace.uid, step.Object.UID
		t.add(step, "an initializer creates an object", after)
	}
}
