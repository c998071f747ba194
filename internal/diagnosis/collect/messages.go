// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// Reasons why facts could not be read.
const (
	unreadTooManyPods  = "not all running pods were examined: there are too many"
	unreadTooManyNodes = "no more than %d of the nodes of the remaining pods were examined"
	unreadPermissions  = "whether ServiceAccounts have the necessary permissions is unknown: permission to create " +
		string(diagnosis.SourceAccessReviews) + " is missing"
	unreadDryRunForbidden = "whether the API server would accept a %s of %s is unknown: permission to %s them is missing"
	unreadDryRunFailed    = "whether the API server would accept a %s of %s is unknown: %s"
	unreadDryRunTimeout   = "a dry run of a %s of %s was not answered within %s"
	unreadSecondList      = "whether the number of %s decreases is unknown: the second list failed: %s"
)

func unreadForbidden(source diagnosis.Source, where string) string {
	return fmt.Sprintf("%s%s cannot be read: permission to list them is missing", source, where)
}

func unreadTimeout(source diagnosis.Source, where string) string {
	return fmt.Sprintf("%s%s could not be read: no response within %s", source, where, responseTimeout)
}

func unreadError(source diagnosis.Source, where string, err error) string {
	return fmt.Sprintf("%s%s could not be read: %s", source, where, diagnosis.OneLine(err.Error()))
}

// Evidence of progress in the conditions of the Namespace.
const evidenceCountChanged = "the condition that counts the remaining objects changed %s ago"

func evidenceCountDecreased(ago string, before int, resource string, after int) string {
	return fmt.Sprintf("%s ago %d objects of %s remained, and now %d", ago, before, resource, after)
}

// Sources of reported errors.
func sourceCondition(conditionType string) string { return "condition " + conditionType }

func sourceEvent(reason string) string { return "Event " + reason }

func secondListFailed(of resourcetypes.Type, err error) diagnosis.Unread {
	return diagnosis.Unread{
		Source: diagnosis.SourceContent, Why: fmt.Sprintf(unreadSecondList, of, diagnosis.OneLine(err.Error())),
	}
}
