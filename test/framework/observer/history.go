// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Change is an object that a watch returned.
type Change struct {
	// Resource is the plural name, such as "configmaps".
	Resource string
	Object   Object
	// IsListed reports whether the object existed when the watch started.
	IsListed bool
	// IsDeleted reports whether the object was removed.
	IsDeleted bool
	// Seen is the time when the watch returned the object.
	Seen time.Time
}

// version is a version of an object.
type version struct {
	Object
	revision            uint64
	isListed, isDeleted bool
	// writer is the request that stored the version, nil if it is unknown.
	writer *Event
	// seen is a time after the version was stored.
	seen time.Time
}

// timeline contains the known versions of one object, in the order of their revisions.
type timeline struct {
	// resource is the plural name, with the group if the object is not watched.
	resource, namespace, name string
	// isWatched reports whether the versions are complete.
	isWatched bool
	versions  []*version
	// next is the first version of the next Namespace with this name, or nil. Without a watch, only this shows
	// that a Namespace was removed.
	next *version
}

func (t *timeline) first() *version { return t.versions[0] }

// removal returns the version in which the object was removed, or nil.
func (t *timeline) removal() *version {
	if last := t.versions[len(t.versions)-1]; last.isDeleted {
		return last
	}
	return nil
}

// period is a range of versions of a Namespace.
type period struct {
	from *version
	// to is the first version after the period, nil if the period has not ended.
	to *version
}

// periods returns the longest periods in which a condition is true for each version.
func (t *timeline) periods(matches func(*version) bool) []period {
	var periods []period
	isInPeriod := false
	for _, v := range t.versions {
		switch isMatch := matches(v); {
		case isMatch && !isInPeriod:
			periods = append(periods, period{from: v})
			isInPeriod = true
		case !isMatch && isInPeriod:
			periods[len(periods)-1].to = v
			isInPeriod = false
		}
	}
	if isInPeriod {
		periods[len(periods)-1].to = t.next
	}
	return periods
}

// contains reports whether a write was stored during the period. Without a revision, the whole request
// must be in the period.
func (p period) contains(e *Event) bool {
	if e.revision > 0 {
		return p.from.revision <= e.revision && (p.to == nil || e.revision < p.to.revision)
	}
	return !e.Received.Time.Before(p.from.seen) &&
		(p.to == nil || p.to.writer != nil && e.Completed.Time.Before(p.to.writer.Received.Time))
}

// history is the evidence, grouped by object.
type history struct {
	// writes are the successful writes in the order of their responses, without those that changed
	// nothing.
	writes []*Event
	// objects are sorted by their first revision.
	objects []*timeline
	// namespaces contains the timelines of Namespaces by name.
	namespaces map[string][]*timeline
}

func newHistory(changes []Change, events []Event) *history {
	byUID := map[types.UID]*timeline{}
	for i := range changes {
		change := &changes[i]
		t := timelineOf(byUID, change.Resource, &change.Object)
		t.isWatched = true
		v := t.at(revisionOf(&change.Object), change.Object, change.Seen)
		v.isListed = v.isListed || change.IsListed
		v.isDeleted = v.isDeleted || change.IsDeleted
	}
	h := &history{namespaces: map[string][]*timeline{}}
	for _, e := range sorted(events) {
		if !isWrite(e) {
			continue
		}
		attribute(byUID, e)
		if !e.isNoOp {
			h.writes = append(h.writes, e)
		}
	}
	h.objects = slices.SortedFunc(maps.Values(byUID), func(a, b *timeline) int {
		return cmp.Or(cmp.Compare(a.first().revision, b.first().revision), cmp.Compare(a.name, b.name))
	})
	for _, t := range h.objects {
		if t.resource == namespacesResource {
			if earlier := h.namespaces[t.name]; len(earlier) > 0 {
				earlier[len(earlier)-1].next = t.first()
			}
			h.namespaces[t.name] = append(h.namespaces[t.name], t)
		}
	}
	return h
}

func sorted(events []Event) []*Event {
	pointers := make([]*Event, len(events))
	for i := range events {
		pointers[i] = &events[i]
	}
	slices.SortStableFunc(pointers, compareEvents)
	return pointers
}

func timelineOf(byUID map[types.UID]*timeline, resource string, object *Object) *timeline {
	t, ok := byUID[object.UID]
	if !ok {
		t = &timeline{resource: resource, namespace: object.Namespace, name: object.Name}
		byUID[object.UID] = t
	}
	return t
}

// at returns the version with a revision, and adds it if it does not exist.
func (t *timeline) at(revision uint64, object Object, seen time.Time) *version {
	i, ok := slices.BinarySearchFunc(t.versions, revision, func(v *version, revision uint64) int {
		return cmp.Compare(v.revision, revision)
	})
	if !ok {
		t.versions = slices.Insert(t.versions, i, &version{Object: object, revision: revision, seen: seen})
	}
	v := t.versions[i]
	if seen.Before(v.seen) {
		v.seen = seen
	}
	return v
}

// attribute records a request as the writer of the version in its response. A request that changes
// nothing returns the version of an earlier write, so only the first response with a version is from
// its writer.
func attribute(byUID map[types.UID]*timeline, e *Event) {
	response := &e.ResponseObject
	if uid := deletedUID(response); uid != "" {
		if t, ok := byUID[uid]; ok && t.removal() != nil && t.removal().writer == nil {
			t.removal().writer, e.revision = e, t.removal().revision
		}
		return
	}
	// A token or an eviction is no version of the object in the request.
	if response.UID == "" || revisionOf(response) == 0 || e.Verb == "deletecollection" {
		return
	}
	resource := schema.GroupResource{Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource}
	t := timelineOf(byUID, resource.String(), response)
	e.revision = revisionOf(response)
	v := t.at(e.revision, *response, e.Completed.Time)
	if removal := t.removal(); removal != nil && removal.writer == nil && removesLastFinalizer(e) {
		e.revision, v = removal.revision, removal
	}
	// The response to the writer can be missing in the logs.
	isOlder := v.seen.Before(e.Received.Time)
	if e.isNoOp = v.isListed || v.writer != nil || isOlder; e.isNoOp {
		return
	}
	v.writer = e
	// The last version in a watch is the one before the removal. The response is newer, except if it
	// contains only metadata.
	if v.isDeleted && response.Kind == v.Kind {
		v.Object = *response
	}
}

// removesLastFinalizer reports whether an update removed the object. The response then contains the
// object in the request, with the revision of the previous version.
func removesLastFinalizer(e *Event) bool {
	response := &e.ResponseObject
	return (e.Verb == "update" || e.Verb == "patch") && response.DeletionTimestamp != nil &&
		len(response.Finalizers) == 0 && len(response.namespaceFinalizers()) == 0
}
