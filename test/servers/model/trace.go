// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nslifecycle/nslifecycle/test/framework/observer"
)

// change is a change in a recording of the real program.
type change struct {
	// text describes the change in an error.
	text string
	// action is a part of the name of the action; empty if the recording does not contain the actor.
	action string
	after  storedFinalization
	// tooEarly are parts of the names of actions for which too little time has passed before the change.
	tooEarly []string
}

// checkTrace checks that each change is an action of the model without a violation. Between two changes,
// any actions can occur that etcd does not store, such as those of caches.
func checkTrace(model *finalizationModel, changes []change) error {
	states := map[finState]bool{model.Initial(): true}
	for _, now := range changes {
		next, enabled := map[finState]bool{}, map[string]bool{}
		for state := range reach(model, states, now.tooEarly) {
			for _, transition := range model.Next(state) {
				if transition.Violation != "" || !isStored(model, state, transition) {
					continue
				}
				enabled[transition.Action] = true
				if strings.Contains(transition.Action, now.action) && model.observe(transition.To) == now.after {
					next[transition.To] = true
				}
			}
		}
		if len(next) == 0 {
			return fmt.Errorf("the model does not allow: %s, action %q, after which etcd contains %+v; before, etcd "+
				"contains %+v, and the model allows: %s; too early for: %s", now.text, now.action, now.after,
				observed(model, states), strings.Join(slices.Sorted(maps.Keys(enabled)), "; "),
				strings.Join(now.tooEarly, "; "))
		}
		states = next
	}
	return nil
}

// reach returns all states that can be reached by actions that etcd does not store.
func reach(model *finalizationModel, from map[finState]bool, tooEarly []string) map[finState]bool {
	reached := maps.Clone(from)
	for queue := slices.Collect(maps.Keys(from)); len(queue) > 0; {
		state := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, transition := range model.Next(state) {
			isTooEarly := slices.ContainsFunc(tooEarly, func(text string) bool {
				return strings.Contains(transition.Action, text)
			})
			isHidden := transition.Violation == "" && !isStored(model, state, transition)
			if isHidden && !isTooEarly && !reached[transition.To] {
				reached[transition.To] = true
				queue = append(queue, transition.To)
			}
		}
	}
	return reached
}

// isStored reports whether etcd stores an action. Some writes of users change nothing in the model.
func isStored(model *finalizationModel, from finState, transition Transition[finState]) bool {
	return model.observe(from) != model.observe(transition.To) || strings.HasSuffix(transition.Action, "is stored")
}

// observed returns what etcd contains, which is the same in all states of a trace.
func observed(model *finalizationModel, states map[finState]bool) (contains storedFinalization) {
	for state := range states {
		return model.observe(state)
	}
	return contains
}

// tooEarlyFor returns the action if less than the delay has passed between two times.
func tooEarlyFor(action string, since, until time.Time, delay time.Duration) []string {
	if until.Sub(since) < delay {
		return []string{action}
	}
	return nil
}

// storedFinalization is what etcd stores of a state of the finalization.
type storedFinalization struct {
	namespace finNamespace
	object    object
}

// observe returns the part of a state that etcd stores.
func (m *finalizationModel) observe(s finState) storedFinalization {
	return storedFinalization{s.history.current(), s.objects[0]}
}

// finalizationTrace maps the history of a name to actions of the model, with the objects of one key.
type finalizationTrace struct {
	Recording
	model  *finalizationModel
	stored storedFinalization
	// namespaces and objects number the UIDs.
	namespaces, objects uids
	// gracePeriod is that of the model, and deleted the time when the deletion of the Namespace was requested.
	gracePeriod time.Duration
	deleted     time.Time
	changes     []change
}

// finalization returns the model of the history of a name and of the objects with a key, and its changes.
func (r Recording) finalization(name string, key objectKey) (*finalizationModel, []change) {
	t := finalizationTrace{
		Recording: r, model: &finalizationModel{servers: r.Servers}, namespaces: uids{}, objects: uids{},
	}
	t.gracePeriod = t.model.chooseGracePeriod()
	for i := range r.Steps {
		switch step := &r.Steps[i]; {
		case isNamespace(step) && step.Object.Name == name:
			t.addNamespace(step)
		case step.Object.Namespace == name && keyOf(step) == key:
			t.addObject(step)
		}
	}
	t.model.namespaces, t.model.objects = uint8(len(t.namespaces)), uint8(len(t.objects))
	return t.model, t.changes
}

// add adds a change, and what etcd stores after it. The removal of an unknown object is a change, too.
func (t *finalizationTrace) add(step *observer.Step, action string, after storedFinalization) {
	if after == t.stored && !step.IsRemoval {
		return
	}
	tooEarly := tooEarlyFor("the grace period ends", t.deleted, step.Seen, t.gracePeriod)
	t.changes = append(t.changes, change{describe(step), action, after, tooEarly})
	t.stored = after
	t.model.hasPeer = t.model.hasPeer || t.SecondController != "" && step.User == t.SecondController
	t.model.hasOther = t.model.hasOther || after.namespace.other
}

// addNamespace adds a version of the Namespace that differs in the model.
func (t *finalizationTrace) addNamespace(step *observer.Step) {
	before, after := t.stored.namespace, t.stored
	after.namespace = t.parse(step)
	action := ""
	switch now := after.namespace; {
	case before.uid == 0:
		action = "the user creates the namespace"
	case now.isTerminating && !before.isTerminating:
		action = "the user deletes the namespace"
	case now.own == before.own && step.User == t.Operator:
		action = "the operator changes the finalizers of other controllers"
	case now.own == before.own && now.other:
		action = "another controller adds its finalizer to the namespace"
	case now.own == before.own:
		action = "another controller removes its finalizer from the namespace"
	case !now.own && before.own:
		action = t.actor(step) + "removes the namespace finalizer"
	}
	t.add(step, action, after)
	if after.namespace.isTerminating && !before.isTerminating {
		t.deleted = step.Received
	}
}

// actor returns the actor that uses the namespace finalizer, or nothing if the user is unknown.
func (t *finalizationTrace) actor(step *observer.Step) string {
	switch step.User {
	case "":
		return ""
	case t.Operator:
		return "the operator "
	case t.SecondController:
		return "the second controller "
	}
	return "the user "
}

// parse returns the version of the Namespace in a step. Finalizers in its metadata have the same effect as those
// of other controllers in its spec.
func (t *finalizationTrace) parse(step *observer.Step) finNamespace {
	uid := t.namespaces.number(step.Object.UID)
	if step.IsRemoval {
		return finNamespace{}
	}
	result := finNamespace{
		uid: uid, isTerminating: step.Object.DeletionTimestamp != nil, other: len(step.Object.Finalizers) > 0,
	}
	finalizers := namespaceIn(step).Spec.Finalizers
	result.own = slices.Contains(finalizers, ownFinalizer)
	result.other = result.other || len(finalizers) > 1 || len(finalizers) == 1 && !result.own
	return result
}

// addObject adds a version of the object that differs in the model.
func (t *finalizationTrace) addObject(step *observer.Step) {
	before, after := t.stored.object, t.stored
	uid := t.objects.number(step.Object.UID)
	action := ""
	switch isTerminating := step.Object.DeletionTimestamp != nil; {
	case before.uid == 0 && !step.IsRemoval:
		after.object = object{uid: uid, owner: after.namespace.uid, hasFinalizer: len(step.Object.Finalizers) > 0}
		t.model.hasObjectFinalizers = t.model.hasObjectFinalizers || after.object.hasFinalizer
		action = "the object of type 1 is stored"
	case before.isTerminating && step.IsRemoval:
		after.object = object{}
		action = "the owner removes the finalizer of the object"
	case step.IsRemoval:
		after.object = object{}
		action = t.actor(step) + "deletes the object"
	case isTerminating && !before.isTerminating:
		after.object.isTerminating = true
		action = t.actor(step) + "deletes the object"
	}
	t.add(step, action, after)
}
