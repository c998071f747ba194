// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import "github.com/nslifecycle/nslifecycle/internal/diagnosis"

// Reasons why facts could not be read.
const (
	unreadForbidden    = "%s cannot be read: permission to list them is missing"
	unreadTimeout      = "%s could not be read: no response within %s"
	unreadError        = "%s could not be read: %s"
	unreadTooManyPods  = "only some running pods were examined because there are too many"
	unreadTooManyNodes = "only %d nodes of the remaining pods were examined"
	unreadPermissions  = "the permissions of ServiceAccounts could not be checked: permission to create " +
		string(diagnosis.SourceAccessReviews) + " is missing"
	unreadDryRunForbidden = "a dry run of a %s request for %s was not possible: permission to %s them is missing"
	unreadDryRunFailed    = "a dry run of a %s request for %s failed: %s"
	unreadDryRunTimeout   = "a dry run of a %s request for %s timed out after %s"
	unreadSecondList      = "%s could not be listed a second time to detect progress: %s"
)

// Evidence of progress in the conditions of the Namespace.
const (
	evidenceCountChanged   = "the condition that counts the remaining objects changed %s ago"
	evidenceCountDecreased = "%d %s remained %s ago, and %d remain now"
)
