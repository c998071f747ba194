// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"cmp"
	"slices"
	"time"
)

// Step is a change of a watched object.
type Step struct {
	// Revision is the revision of etcd that stored the change.
	Revision uint64 `json:"revision"`
	Resource string `json:"resource"`
	// Object is the new version or, after the removal, the last one.
	Object    Object `json:"object"`
	IsRemoval bool   `json:"isRemoval,omitempty"`
	// User is the identity that sent the request, empty if it is unknown.
	User string `json:"user,omitempty"`
	// Received is a time before the change, zero if it is unknown, and Seen a time after it.
	Received time.Time `json:"received,omitzero"`
	Seen     time.Time `json:"seen"`
}

// Steps returns all changes of watched objects that were not there when the observer started, in the order
// in which etcd stored them.
func (e Evidence) Steps() []Step {
	var steps []Step
	for _, t := range newHistory(e.Changes, e.Events).objects {
		if !t.isWatched || t.first().isListed {
			continue
		}
		for _, v := range t.versions {
			step := Step{
				Revision: v.revision, Resource: t.resource, Object: v.Object, IsRemoval: v.isDeleted, Seen: v.seen,
			}
			step.Object.ManagedFields = nil
			if v.writer != nil {
				step.User, step.Received = v.writer.Identity().Username, v.writer.Received.Time
			}
			steps = append(steps, step)
		}
	}
	slices.SortFunc(steps, func(a, b Step) int { return cmp.Compare(a.Revision, b.Revision) })
	return steps
}
