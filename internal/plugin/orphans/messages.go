// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package orphans

// Outcome is the result of deleting an orphan.
type Outcome string

// Outcomes.
const (
	OutcomeDeleted     Outcome = "deleted"
	OutcomeNotFound    Outcome = "already deleted"
	OutcomeHeld        Outcome = "terminating, has finalizers"
	OutcomeTerminating Outcome = "terminating"
	// OutcomeUnknown: the deletion was accepted, but the user is not allowed to get the object.
	OutcomeUnknown  Outcome = "deletion requested"
	OutcomeSkipped  Outcome = "skipped, its namespace exists"
	OutcomeRejected Outcome = "rejected, its namespace does not exist"
)
