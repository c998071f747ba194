// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package orphans

import "fmt"

// Outcome is the result of deleting an orphan.
type Outcome string

// Outcomes.
const (
	OutcomeDeleted  Outcome = "deleted"
	OutcomeNotFound Outcome = "already deleted"
	OutcomeHeld     Outcome = "terminating, has finalizers"
	OutcomeSkipped  Outcome = "skipped, its namespace exists"
	OutcomeRejected Outcome = "rejected, its namespace does not exist"
)

func unreadDiscovery(err error) string { return "discovery: " + err.Error() }

func unreadNamespace(namespace string, err error) string {
	return fmt.Sprintf("failed to get namespace %q: %v", namespace, err)
}

func unreadContent(namespace string, err error) string {
	return fmt.Sprintf("namespace %q: %v", namespace, err)
}
