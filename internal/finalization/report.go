// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/internal/denial"
)

const (
	// watchedDelay is the time to the next pass for types that are watched. It matters only if the
	// operator misses an event.
	watchedDelay = 15 * time.Second
	// unwatchedDelay is the time to the next pass for types that cannot be watched.
	unwatchedDelay = 2 * time.Second
	// newDelay is the time to the next pass if objects were created during the pass. It is not zero,
	// because a server may not immediately return a deleted object as terminating.
	newDelay = time.Second
	// maxDelay limits the time to the next pass.
	maxDelay = time.Minute
	// noDelay is the time to the next pass if it is already due.
	noDelay = time.Millisecond
)

// Remaining describes the remaining objects of one type.
type Remaining struct {
	Type ResourceType
	// Count is the number of objects.
	Count int
	// Listed is the number of objects that Finalizers and Terminating refer to. It is less than Count
	// if the time budget was not sufficient to list all objects.
	Listed int
	// Terminating is the number of objects with a deletionTimestamp.
	Terminating int
	// HasNew reports whether some objects were created during the pass.
	HasNew bool
	// Finalizers contains the number of objects for each finalizer.
	Finalizers map[string]int
	// DeletionDue is the latest deletionTimestamp of the objects. For a running Pod it includes
	// terminationGracePeriodSeconds.
	DeletionDue     time.Time
	ResourceVersion string // of the list
}

// deniedType is a type that the operator may not list or delete.
type deniedType struct {
	resource schema.GroupResource
	index    int
}

// Report is the result of a pass.
type Report struct {
	StartedAt time.Time
	// Resources are the discovered resource types.
	Resources *ResourceSet
	// Remaining are the types with remaining objects, in the order of Resources.
	Remaining []Remaining
	// Unknown are the types that could not be listed completely, so that their remaining objects are
	// unknown.
	Unknown []schema.GroupResource
	// Errors contains at most one error for each type.
	Errors []error
	// denied are the types of errors that a missing permission causes, with the indexes of the errors.
	denied []deniedType
	// Incomplete reports whether the pass ended before it had processed all objects. The next pass
	// is due immediately.
	Incomplete bool
	// ConfirmedEmpty reports whether the namespace is empty and will stay empty: a pass after the grace
	// period found no objects, and no request failed. Otherwise, the namespace finalizer must not be
	// removed.
	ConfirmedEmpty bool
	// WaitReason is the reason why objects of some types have not been deleted yet. It is empty if no
	// stage waits.
	WaitReason string
	// HasNews reports whether this or an earlier pass over the Namespace was not clean. If so, the
	// conditions must be written.
	HasNews bool

	gracePeriodEnd time.Time
}

func newReport(startedAt, gracePeriodEnd time.Time, content *contentState, waitReason string) *Report {
	report := &Report{
		StartedAt: startedAt, Resources: content.resources, WaitReason: waitReason, gracePeriodEnd: gracePeriodEnd,
	}
	for _, state := range content.types {
		switch {
		case state.listError != nil:
			report.addError(state, state.listError)
			report.Unknown = append(report.Unknown, state.Type.GroupResource())
		case state.isUncounted:
			report.Unknown = append(report.Unknown, state.Type.GroupResource())
		case state.deleteError != nil:
			report.addError(state, state.deleteError)
		}
		report.Incomplete = report.Incomplete || state.isIncomplete
		if state.Count > 0 {
			report.Remaining = append(report.Remaining, state.Remaining)
		}
	}
	report.ConfirmedEmpty = content.isAfterGracePeriod && report.IsClean()
	return report
}

func (r *Report) addError(state *typeState, err error) {
	if denial.IsMissingPermission(err) {
		r.denied = append(r.denied, deniedType{state.Type.GroupResource(), len(r.Errors)})
	}
	r.Errors = append(r.Errors, err)
}

// addRemedies adds what an administrator can do to the first errors that a missing permission causes.
func (r *Report) addRemedies(remedyFor func(schema.GroupResource) string) {
	for _, denied := range r.denied[:min(len(r.denied), maxNames)] {
		if remedy := remedyFor(denied.resource); remedy != "" {
			r.Errors[denied.index] = fmt.Errorf("%w; %s", r.Errors[denied.index], remedy)
		}
	}
}

// IsClean reports whether no object remained and no request failed.
func (r *Report) IsClean() bool {
	return r.Resources.IsComplete() && len(r.Remaining) == 0 && len(r.Unknown) == 0 &&
		len(r.Errors) == 0 && !r.Incomplete
}

// Err joins all errors, including errors of discovery.
func (r *Report) Err() error {
	return errors.Join(append([]error{r.Resources.DiscoveryError, r.Resources.ParseError}, r.Errors...)...)
}

// RequeueAfter returns the time to the next pass if no event requires an earlier one.
func (r *Report) RequeueAfter(now time.Time) time.Duration {
	untilGracePeriodEnd := r.gracePeriodEnd.Sub(now)
	if r.Incomplete {
		return noDelay
	}
	if len(r.Remaining) == 0 {
		return max(untilGracePeriodEnd, noDelay)
	}
	delay := watchedDelay
	for i := range r.Remaining {
		// Pods can take until the end of terminationGracePeriodSeconds to terminate.
		delay = max(delay, min(r.Remaining[i].DeletionDue.Add(time.Second).Sub(now), maxDelay))
	}
	for i := range r.Remaining {
		if !r.Remaining[i].Type.CanWatch {
			delay = min(delay, unwatchedDelay)
		}
		if r.Remaining[i].HasNew { // Until the grace period ends, more objects may be created.
			delay = min(delay, max(untilGracePeriodEnd, newDelay))
		}
	}
	return delay
}
