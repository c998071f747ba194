// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Error is a reason why a template cannot be rendered for a Namespace.
type Error struct {
	// Object is the name of the object in the template. It is empty if the error concerns all objects.
	Object string
	// Reason is one of the reasons of this package.
	Reason string
	// Err is the cause.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Object == "" {
		return e.Err.Error()
	}
	return "object " + e.Object + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// newError returns an Error for a failed evaluation.
func newError(err error) *Error {
	reason := v1alpha1.ReasonExpressionFailed
	switch {
	case errors.Is(err, errTooLarge):
		reason = v1alpha1.ReasonOutputTooLarge
	case isTooExpensive(err):
		reason = v1alpha1.ReasonInputTooLarge
	}
	return &Error{Reason: reason, Err: err}
}

func isTooExpensive(err error) bool {
	return errors.Is(err, errExpensive) || errors.Is(err, errAllExpensive)
}
