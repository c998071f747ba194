// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"fmt"
	"time"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// Messages of the Expiring condition.
const (
	msgNoExpiry = "the namespace has no expiry annotation"
	msgExempt   = "the namespace is never deleted, because the cluster or nslifecycle requires it"
	msgDryRun   = "the operator runs with --expiry-dry-run"

	msgExpiryChanged = "the expiry annotation was changed or removed"

	msgRefused = "; the API server refused the deletion, and the operator is retrying it: "
)

func msgInvalid(err error) string {
	return err.Error() + "; the namespace is not deleted until the annotations are valid"
}

func msgPolicyProblem(problem string) string {
	return "the namespace is not deleted when it expires: " + problem
}

func msgExpired(expires Expiry) string {
	return fmt.Sprintf("the namespace expired at %s (%s)", formatTime(expires.At), expires)
}

func msgWillNotDelete(expires Expiry, reason string) string {
	return fmt.Sprintf("the namespace expires at %s (%s), but will not be deleted: %s",
		formatTime(expires.At), expires, reason)
}

func msgNotDeleted(expires Expiry, reason string) string {
	return fmt.Sprintf("the namespace expired at %s (%s), but is not deleted: %s", formatTime(expires.At), expires, reason)
}

func msgWarning(name string, expires Expiry, warnedAt time.Time) string {
	what := fmt.Sprintf("the namespace will be deleted at %s (%s)", formatTime(expires.At), expires)
	if at := deletionTime(expires, warnedAt); !at.Equal(expires.At) {
		what = fmt.Sprintf("the namespace has expired (%s) and will be deleted at %s", expires, formatTime(at))
	}
	return fmt.Sprintf("%s; to keep it, run: %s",
		what, shell.Command("kubectl annotate namespace %s %s-", name, expires.Key))
}

// Errors of Parse.
const (
	msgBothAnnotations = "the annotations " + v1alpha1.AnnotationExpiresAt + " and " + v1alpha1.AnnotationTTL +
		" are mutually exclusive; remove one of them"
	msgNoCreationTime = "the annotation " + v1alpha1.AnnotationTTL + " is relative to the creation of the namespace, " +
		"but the creation time is unknown"
)

func msgInvalidTime(value string) string {
	return fmt.Sprintf("the annotation %s is %s, which is not a time in RFC 3339 format, such as 2026-12-24T18:00:00Z",
		v1alpha1.AnnotationExpiresAt, quote(value))
}

func msgInvalidTTL(value string) string {
	return fmt.Sprintf("the annotation %s is %s, which is not a positive duration in days, hours, minutes and seconds, "+
		"such as 7d or 1h30m", v1alpha1.AnnotationTTL, quote(value))
}

func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }
