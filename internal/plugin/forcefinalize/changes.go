// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import "slices"

// computeChanges returns the differences between a plan and the current state. It compares only the
// objects that the removal affects: the Namespace, the targets and the orphans.
func computeChanges(plan *Plan, current *clusterState) []string {
	if current.namespace.UID != plan.UID {
		return []string{changeRecreated(current.namespace.CreationTimestamp)}
	}
	var changes []string
	// The conditions of the Namespace change during its deletion. These changes do not affect the
	// removal of a finalizer from other objects.
	if plan.Removal.Finalizer == "" && current.namespace.ResourceVersion != plan.ResourceVersion {
		changes = append(changes, changeNamespaceModified)
	}
	present := map[string]*RemainingObject{}
	for i := range current.objects {
		present[current.objects[i].identity()] = &current.objects[i]
	}
	planned := slices.Concat(plan.Targets, plan.Orphans)
	isPlanned := map[string]bool{}
	for i := range planned {
		isPlanned[planned[i].identity()] = true
		switch object := present[planned[i].identity()]; {
		case object == nil:
			changes = append(changes, changeDeleted(&planned[i]))
		case object.ResourceVersion != planned[i].ResourceVersion && !isEvent(object):
			changes = append(changes, changeModified(object))
		}
	}
	if !plan.endsContentDeletion() {
		return changes
	}
	// Without the user's consent, the removal must not orphan new objects or objects that are no
	// longer readable.
	for i := range current.objects {
		if !isPlanned[current.objects[i].identity()] {
			changes = append(changes, changeCreated(&current.objects[i]))
		}
	}
	for _, unread := range current.unread {
		if !slices.Contains(plan.Unread, unread) {
			changes = append(changes, changeUnreadable(unread))
		}
	}
	return changes
}

// isEvent reports whether an object is an Event. Events are updated frequently, and their changes
// do not affect a removal.
func isEvent(object *RemainingObject) bool {
	return object.Resource == "events" || object.Resource == "events.events.k8s.io"
}
