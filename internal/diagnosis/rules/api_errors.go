// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/nslifecycle/nslifecycle/internal/denial"
)

// These patterns match the messages of errors from the API server. Conditions contain only the
// messages.
var (
	conversion = regexp.MustCompile(`conversion webhook for ([^,\s]+), Kind=(\w+)`)
	throttled  = regexp.MustCompile(`(?i)too many requests|client rate limiter|please try again later`)
	timedOut   = regexp.MustCompile(`(?i)the server was unable to return a response in the time allotted|` +
		`etcdserver: request timed out|request did not complete within|context deadline exceeded|Timeout: `)
	unreadable = regexp.MustCompile(`(?i)StorageReadError|failed to decrypt|unable to transform key|` +
		`no kind "[^"]*" is registered|proto: |illegal wireType|json: cannot unmarshal|corrupt object|` +
		`couldn't get version/kind|error decoding|invalid character`)
	notFound = regexp.MustCompile(`(?i)([a-z][\w.-]*)\s+"([^"]+)"\s+(?:was\s+)?not found`)
)

// isInvalid reports whether an error is a validation error that does not come from a policy.
func isInvalid(err error) bool {
	return apierrors.IsInvalid(err) && !denial.IsFromAdmission(err.Error())
}

// isDenied reports whether admission control, not the authorizer, denied a request.
func isDenied(err error) bool {
	return denial.IsFromAdmission(err.Error()) || apierrors.IsForbidden(err) && !denial.IsMissingPermission(err)
}

// isStoreReadError reports whether the API server cannot read stored objects.
func isStoreReadError(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonStoreReadError || unreadable.MatchString(err.Error())
}

func isServerError(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err)
}

// isStale reports whether discovery of a group version returned stale data.
func isStale(err error) bool {
	_, ok := err.(discovery.StaleGroupVersionError) //nolint:errorlint // discovery never wraps it
	return ok
}
