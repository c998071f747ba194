// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Invariant is the name of a promise.
type Invariant string

// The invariants.
const (
	// EarlyWrite: users without the verb "initialize" or "provision" do not write into initializing
	// namespaces, and users without "initialize" do not change their state.
	EarlyWrite Invariant = "EarlyWrite"
	// LiveObjectDeleted: the operator, with its own permissions, deletes no object in a namespace that is
	// not terminating.
	LiveObjectDeleted Invariant = "LiveObjectDeleted"
	// OrphanedObject: a namespace is removed after its content, and no object is created in it later.
	OrphanedObject Invariant = "OrphanedObject"
	// ForeignStateChanged: the operator does not change or remove labels, annotations, finalizers and
	// conditions of other controllers.
	ForeignStateChanged Invariant = "ForeignStateChanged"
	// InitializedEarly: a namespace is created with its initializers, and its initialization is completed only
	// after the removal of each of them, when the namespace contains all objects of its templates.
	InitializedEarly Invariant = "InitializedEarly"
)

// Violation describes what violated an invariant.
type Violation struct {
	Invariant Invariant
	Namespace string
	Message   string
	// Request is the violating request, nil if no log contains it.
	Request *Event
	// Time is a time after the violation.
	Time time.Time
}

// String describes the violation in one line.
func (v Violation) String() string {
	request := "unknown request"
	if v.Request != nil {
		request = v.Request.String()
	}
	return fmt.Sprintf("%s %s: namespace %q: %s (%s)",
		v.Time.UTC().Format(time.RFC3339Nano), v.Invariant, v.Namespace, v.Message, request)
}

// GomegaString makes Gomega print the description instead of all fields.
func (v Violation) GomegaString() string { return v.String() }

// Evidence contains everything that was recorded about a control plane.
type Evidence struct {
	// Events are the requests in the audit logs of all API servers.
	Events []Event
	// Changes are from watches of Namespaces and of objects. The order does not matter.
	Changes []Change
}

// Rules contains what the evidence does not show.
type Rules struct {
	// Managers contains the user names of the operator and the namespace finalizers that it removes as this user.
	Managers map[string][]corev1.FinalizerName
	// SystemNamespace contains objects of the operator, which it can delete and change.
	SystemNamespace string
	// MayWrite reports whether a user has one of the verbs on a namespace.
	MayWrite func(user authenticationv1.UserInfo, namespace string, verbs ...string) bool
	// Required returns what a Namespace with these labels must have. If it is nil, nothing is required.
	Required func(labels map[string]string) Requirements
}

// Requirements are the initializers that a Namespace must have when it is created, and the objects that
// it must contain when its initialization is completed.
type Requirements struct {
	Initializers []string
	// Objects are the watched resources and the names of the objects, such as "configmaps/settings".
	Objects []string
}

// Check returns all violations, sorted by time.
func Check(evidence Evidence, rules Rules) []Violation {
	c := &checker{Rules: rules, history: newHistory(evidence.Changes, evidence.Events)}
	c.checkEarlyWrites()
	c.checkStateOwners()
	c.checkDeletions()
	c.checkOrphans()
	c.checkForeignState()
	c.checkInitializations()
	slices.SortStableFunc(c.violations, func(a, b Violation) int { return a.Time.Compare(b.Time) })
	return c.violations
}

type checker struct {
	Rules
	*history
	violations []Violation
}

// report adds a violation by a request.
func (c *checker) report(invariant Invariant, namespace string, request *Event, message string, args ...any) {
	c.violations = append(c.violations, Violation{
		Invariant: invariant, Namespace: namespace, Message: fmt.Sprintf(message, args...),
		Request: request, Time: request.Completed.Time,
	})
}

// isManager reports whether the operator sent a request with its own permissions.
func (c *checker) isManager(e *Event) bool {
	return e != nil && e.ImpersonatedUser == nil && c.Managers[e.User.Username] != nil
}

func isInitializing(v *version) bool {
	_, ok := v.Labels[v1alpha1.LabelInitializing]
	return ok && !v.isDeleted
}

func isTerminating(v *version) bool { return v.DeletionTimestamp != nil && !v.isDeleted }

func isLive(v *version) bool { return v.DeletionTimestamp == nil && !v.isDeleted }

// checkEarlyWrites checks EarlyWrite for objects. Users can delete the content of a terminating
// namespace, and update objects that are being deleted.
func (c *checker) checkEarlyWrites() {
	for _, e := range c.writes {
		if isForNamespaces(e) {
			continue
		}
		for _, namespace := range c.namespaces[e.ObjectRef.Namespace] {
			cleansUp := isDeletion(e) || e.Verb != "create" && e.ResponseObject.DeletionTimestamp != nil
			for _, p := range namespace.periods(isInitializing) {
				if !p.contains(e) || cleansUp && isTerminating(namespace.during(e)) || c.MayWrite(e.Identity(),
					namespace.name, v1alpha1.VerbInitialize, v1alpha1.VerbProvision) {
					continue
				}
				c.report(EarlyWrite, namespace.name, e,
					"a user without the verb wrote while the namespace, UID %s, was initializing", namespace.first().UID)
			}
		}
	}
}

// during returns the last version of a Namespace that is older than a write.
func (t *timeline) during(e *Event) *version {
	last := t.first()
	for _, v := range t.versions {
		if e.revision > 0 && v.revision <= e.revision || e.revision == 0 && !v.seen.After(e.Completed.Time) {
			last = v
		}
	}
	return last
}

// stateKeys are the annotations that only holders of the verb "initialize" can change.
var stateKeys = []string{
	v1alpha1.AnnotationPendingInitializers, v1alpha1.AnnotationInitializationResult, v1alpha1.AnnotationInitializers,
	v1alpha1.AnnotationRequestedBy, v1alpha1.AnnotationSelectedTemplates, v1alpha1.AnnotationTurnStartedAt,
}

// checkStateOwners checks EarlyWrite for the state of the initialization.
func (c *checker) checkStateOwners() {
	c.eachUpdate(func(t *timeline, before, after *version) {
		if t.resource != namespacesResource || !isInitializing(before) || after.writer == nil || after.isDeleted {
			return
		}
		changed := slices.DeleteFunc(slices.Clone(stateKeys), func(key string) bool {
			return before.Annotations[key] == after.Annotations[key]
		})
		if !isInitializing(after) {
			changed = append(changed, v1alpha1.LabelInitializing)
		}
		if len(changed) > 0 && !c.MayWrite(after.writer.Identity(), t.name, v1alpha1.VerbInitialize) {
			c.report(EarlyWrite, t.name, after.writer, "a user without the verb %q changed %s",
				v1alpha1.VerbInitialize, strings.Join(changed, ", "))
		}
	})
}

// eachUpdate calls a function for each version of each object and its predecessor.
func (c *checker) eachUpdate(do func(t *timeline, before, after *version)) {
	for _, t := range c.objects {
		for i := 1; i < len(t.versions); i++ {
			do(t, t.versions[i-1], t.versions[i])
		}
	}
}

// checkDeletions checks LiveObjectDeleted.
func (c *checker) checkDeletions() {
	for _, e := range c.writes {
		namespace := e.ObjectRef.Namespace
		if !isDeletion(e) || !c.isManager(e) || isForNamespaces(e) || namespace == c.SystemNamespace {
			continue
		}
		for _, t := range c.namespaces[namespace] {
			for _, p := range t.periods(isLive) {
				if p.contains(e) {
					c.report(LiveObjectDeleted, namespace, e,
						"the operator deleted %s %q, but the namespace, UID %s, was not terminating", e.ObjectRef.Resource,
						e.ObjectRef.Name, t.first().UID)
				}
			}
		}
	}
}

// checkOrphans checks OrphanedObject for watched types.
func (c *checker) checkOrphans() {
	for _, object := range c.objects {
		if object.namespace == "" || !object.isWatched {
			continue
		}
		created, removed := object.first(), object.removal()
		var last *timeline
		for _, namespace := range c.namespaces[object.namespace] {
			if namespace.first().isListed || namespace.first().revision < created.revision {
				last = namespace
			}
		}
		if last == nil && !created.isListed {
			c.reportVersion(OrphanedObject, object.namespace, created,
				"%s %q was created, but the namespace did not exist", object.resource, object.name)
		}
		// An object that the watch listed can belong to any namespace, even to one removed earlier.
		if last == nil || last.removal() == nil || created.isListed && last.removal().seen.Before(created.seen) {
			continue
		}
		switch removal := last.removal(); {
		case removed != nil && removed.revision < removal.revision:
		case created.revision < removal.revision:
			c.reportVersion(OrphanedObject, object.namespace, removal,
				"the namespace, UID %s, was removed while %s %q existed (created by %v)", last.first().UID,
				object.resource, object.name, created.writer)
		default:
			c.reportVersion(OrphanedObject, object.namespace, created,
				"%s %q was created after the namespace, UID %s, had been removed", object.resource, object.name, last.first().UID)
		}
	}
}

// reportVersion adds a violation by a version, whose writer can be unknown.
func (c *checker) reportVersion(invariant Invariant, namespace string, v *version, message string, args ...any) {
	c.violations = append(c.violations, Violation{
		Invariant: invariant, Namespace: namespace, Message: fmt.Sprintf(message, args...), Request: v.writer, Time: v.seen,
	})
}

// checkInitializations checks InitializedEarly. A request of an initializer removes only its own name. The operator
// completes templates.nslifecycle.dev, and skips initializers if it records this in their conditions.
func (c *checker) checkInitializations() {
	for _, t := range c.objects {
		first := t.first()
		pending := first.Annotations[v1alpha1.AnnotationPendingInitializers]
		all := first.Annotations[v1alpha1.AnnotationInitializers]
		if t.resource == namespacesResource && first.writer != nil && first.writer.Verb == "create" && pending != all {
			c.report(InitializedEarly, t.name, first.writer,
				"the namespace was created with %q pending instead of %q", pending, all)
		}
		if c.Required != nil && t.resource == namespacesResource && !first.isListed {
			c.checkRequirements(t, c.Required(first.Labels))
		}
	}
	c.eachUpdate(func(t *timeline, before, after *version) {
		if t.resource != namespacesResource || !isInitializing(before) || !isLive(after) || after.writer == nil {
			return
		}
		if problem := openingProblem(before, after, c.isManager(after.writer)); problem != "" {
			c.report(InitializedEarly, t.name, after.writer, "%s", problem)
		}
	})
}

// checkRequirements checks InitializedEarly for a Namespace with requirements.
func (c *checker) checkRequirements(t *timeline, required Requirements) {
	first := t.first()
	all := namesIn(first.Annotations[v1alpha1.AnnotationInitializers])
	for _, name := range required.Initializers {
		if !slices.Contains(all, name) {
			c.reportVersion(InitializedEarly, t.name, first, "the namespace was created without the initializer %q", name)
		}
	}
	for i := 1; i < len(t.versions); i++ {
		before, after := t.versions[i-1], t.versions[i]
		if !isInitializing(before) || isInitializing(after) || !isLive(after) {
			continue
		}
		for _, object := range required.Objects {
			if !c.existed(t.name, object, after.revision) {
				c.reportVersion(InitializedEarly, t.name, after, "the initialization was completed while %s did not exist", object)
			}
		}
	}
}

// existed reports whether an object, such as "configmaps/settings", existed at a revision.
func (c *checker) existed(namespace, object string, revision uint64) bool {
	return slices.ContainsFunc(c.objects, func(t *timeline) bool {
		return t.namespace == namespace && t.resource+"/"+t.name == object && t.first().revision < revision &&
			(t.removal() == nil || t.removal().revision > revision)
	})
}

// openingProblem returns what is wrong about the names that a version has removed from the pending list.
func openingProblem(before, after *version, isByManager bool) string {
	pending := pendingOf(after)
	if len(pending) > 0 && !isInitializing(after) {
		return fmt.Sprintf("the initialization was completed while %s was pending", strings.Join(pending, ", "))
	}
	removed := slices.DeleteFunc(pendingOf(before), func(name string) bool { return slices.Contains(pending, name) })
	if !isByManager {
		if len(removed) > 1 {
			return "one request removed several initializers: " + strings.Join(removed, ", ")
		}
		return ""
	}
	removed = slices.DeleteFunc(removed, func(name string) bool {
		return name == v1alpha1.TemplatesInitializer || isSkipRecorded(after, name)
	})
	if len(removed) > 0 {
		return fmt.Sprintf("the operator removed %s without a condition that records this", strings.Join(removed, ", "))
	}
	return ""
}

func pendingOf(v *version) []string {
	return namesIn(v.Annotations[v1alpha1.AnnotationPendingInitializers])
}

func namesIn(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func isSkipRecorded(v *version, name string) bool {
	for _, condition := range v.conditions() {
		if string(condition.Type) == name+v1alpha1.ConditionInitializedSuffix {
			return condition.Reason == v1alpha1.ReasonTimedOut || condition.Reason == v1alpha1.ReasonDeregistered
		}
	}
	return false
}
