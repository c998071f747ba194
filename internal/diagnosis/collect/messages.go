// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import "github.com/nslifecycle/nslifecycle/internal/diagnosis"

// Reasons why facts could not be read.
const (
	unreadForbidden    = "%s cannot be read: permission to list them is missing"
	unreadTimeout      = "%s could not be read: no response within %s"
	unreadError        = "%s could not be read: %s"
	unreadTooManyPods  = "not all running pods were examined: there are too many"
	unreadTooManyNodes = "no more than %d of the nodes of the remaining pods were examined"
	unreadPermissions  = "whether ServiceAccounts have the necessary permissions is unknown: permission to create " +
		string(diagnosis.SourceAccessReviews) + " is missing"
	unreadDryRunForbidden = "whether the API server would accept a %s of %s is unknown: permission to %s them is missing"
	unreadDryRunFailed    = "whether the API server would accept a %s of %s is unknown: %s"
	unreadDryRunTimeout   = "a dry run of a %s of %s was not answered within %s"
	unreadSecondList      = "whether the number of %s decreases is unknown: the second list failed: %s"
)

// Evidence of progress in the conditions of the Namespace.
const (
	evidenceCountChanged   = "the condition that counts the remaining objects changed %s ago"
	evidenceCountDecreased = "%d %s remained %s ago, and %d remain now"
)
