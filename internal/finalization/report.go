// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Remaining is what is left of one type.
type Remaining struct {
	Type ResourceType
	// Count is the number of objects.
	Count int
	// Seen is how many of them Finalizers covers; fewer than Count where there was no time
	// to list all.
	Seen int
	// Terminating is how many of those that were seen are being deleted.
	Terminating int
	// HasNew says that some of them came when the pass was already deleting.
	HasNew bool
	// Finalizers counts the objects by finalizer.
	Finalizers map[string]int
	// Until is when the last of those that are being deleted should have gone: the API
	// server adds terminationGracePeriodSeconds of a Pod to its deletionTimestamp, unless
	// the Pod has come to its end already.
	Until time.Time
	// ResourceVersion is that of the list that was counted.
	ResourceVersion string
}

// Report is what a pass has found and done.
type Report struct {
	Began time.Time
	// Inventory is what the pass went by.
	Inventory *Inventory
	// Remaining are the types with objects left, in the order of the Inventory.
	Remaining []Remaining
	// Unknown are the types that could not be listed, or not to the end: what is left of
	// them is not known.
	Unknown []schema.GroupResource
	// Errors are what went wrong, one for each type at most.
	Errors []error
	// HasMore tells that the pass has stopped for others to get their turn, or has met
	// something new: the next one should follow at once.
	HasMore bool
	// IsProof tells that the namespace is empty for good: nothing is left, nothing went
	// wrong, and all of that was found out after the namespace had settled.
	IsProof bool
	// Wait says why some types have not been deleted yet; empty if all have.
	Wait string
}

func newReport(began time.Time, ledger *Ledger, wait string) *Report {
	report := &Report{Began: began, Inventory: ledger.inventory, Wait: wait}
	for _, state := range ledger.types {
		switch {
		case state.listError != nil:
			report.Errors = append(report.Errors, state.listError)
			report.Unknown = append(report.Unknown, state.Type.GroupResource())
		case state.isUncounted:
			report.Unknown = append(report.Unknown, state.Type.GroupResource())
		case state.deleteError != nil:
			report.Errors = append(report.Errors, state.deleteError)
		}
		report.HasMore = report.HasMore || state.hasMore
		if state.Count > 0 {
			report.Remaining = append(report.Remaining, state.Remaining)
		}
	}
	report.IsProof = ledger.isProof && report.IsClean()
	return report
}

// IsClean tells whether nothing was left and nothing went wrong.
func (r *Report) IsClean() bool {
	return r.Inventory.IsComplete() && len(r.Remaining) == 0 && len(r.Unknown) == 0 &&
		len(r.Errors) == 0 && !r.HasMore
}

// Err joins everything that went wrong, discovery included.
func (r *Report) Err() error {
	return errors.Join(append([]error{r.Inventory.DiscoveryError, r.Inventory.ParseError}, r.Errors...)...)
}

// Until returns when the last of the objects that are being deleted should have gone.
func (r *Report) Until() time.Time {
	var until time.Time
	for _, remaining := range r.Remaining {
		if remaining.Until.After(until) {
			until = remaining.Until
		}
	}
	return until
}

func plural(count int, noun string) string {
	if count == 1 {
		return fmt.Sprintf("%d %s", count, noun)
	}
	return fmt.Sprintf("%d %ss", count, noun)
}

const (
	// watchedDelay is when to look again at what is watched, in case an event was missed.
	watchedDelay = 15 * time.Second
	// unwatchedDelay is when to look again at types that cannot be watched.
	unwatchedDelay = 2 * time.Second
	// newDelay is when to look again where something new has come that has to be deleted as
	// well. Not at once: a server may take its time until it says that an object goes.
	newDelay = time.Second
	// longestDelay bounds all of them.
	longestDelay = time.Minute
)

// NextLook returns how long to wait for the next pass if nothing is heard meanwhile.
func (r *Report) NextLook(settledAt, now time.Time) time.Duration {
	const atOnce = time.Millisecond
	if r.HasMore {
		return atOnce
	}
	if len(r.Remaining) == 0 {
		return max(settledAt.Sub(now), atOnce)
	}
	delay := watchedDelay
	// Pods may take until the end of their grace periods.
	if until := r.Until().Add(time.Second); until.Sub(now) > delay {
		delay = min(until.Sub(now), longestDelay)
	}
	for _, remaining := range r.Remaining {
		if !remaining.Type.CanWatch {
			delay = min(delay, unwatchedDelay)
		}
		if remaining.HasNew { // until the namespace has settled there may be still more
			delay = min(delay, max(settledAt.Sub(now), newDelay))
		}
	}
	return delay
}
