// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// maxNamedChanges is the maximum number of changes that an error names.
const maxNamedChanges = 3

// Refused wraps an error to state that the command has changed nothing.
func Refused(err error) error { return fmt.Errorf("refused, nothing was changed: %w", err) }

// UnansweredError is the error of a write with an unknown outcome: the response was lost or the
// request was canceled.
type UnansweredError struct{ error }

// Unwrap returns the error of the request.
func (e UnansweredError) Unwrap() error { return e.error }

// isUnanswered reports whether the outcome of a failed write is unknown.
func isUnanswered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	const firstServerError = 500
	code := int(status.Status().Code)
	return (code == 0 || code >= firstServerError) && !denial.IsFromAdmission(err.Error())
}

// withAdvice adds advice for the user to the error of a rejected write.
func withAdvice(err error) error {
	text := err.Error()
	advice := ""
	switch {
	case strings.Contains(text, "failed calling webhook"):
		advice = adviceWebhookFailing
	case strings.Contains(text, "admission webhook") || strings.Contains(text, "ValidatingAdmissionPolicy"):
		advice = adviceAdmissionDenied
	case apierrors.IsForbidden(err):
		advice = adviceForbidden
	case apierrors.IsInvalid(err):
		advice = adviceInvalid
	}
	if advice == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, advice)
}

// errChanged returns the error for a namespace that no longer matches the plan.
func errChanged(namespace string, changes []string) error {
	if more := len(changes) - maxNamedChanges; more > 0 {
		changes = append(slices.Clone(changes[:maxNamedChanges]), "and "+printable.Count(more, "more change"))
	}
	return fmt.Errorf("namespace %q has changed since the plan was computed (%s); run the command again",
		namespace, strings.Join(changes, ", "))
}
