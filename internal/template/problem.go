// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// MaxFailureMessage is the maximum length of the message of a problem in bytes. Together with the names, it fits into
// an Event.
const MaxFailureMessage = 832

// remedies maps the reasons of problems that waiting cannot end to actions of the user. A problem with another reason
// can end without a change by a user of the template or the Namespace.
var remedies = map[string]string{
	v1alpha1.ReasonForbidden: "grant the ServiceAccount of the template what is missing, or change the policy or " +
		"webhook that denies the object",
	v1alpha1.ReasonServiceAccountNotFound: "create the ServiceAccount and grant it the permissions",
	v1alpha1.ReasonInvalidTemplate:        remedyTemplate,
	v1alpha1.ReasonTooManyObjects:         remedyTemplate,
	v1alpha1.ReasonInvalidObject:          remedyValues,
	v1alpha1.ReasonExpressionFailed:       remedyValues,
	v1alpha1.ReasonInvalidParameter:       remedyValues,
	v1alpha1.ReasonOutputTooLarge:         remedyValues,
	v1alpha1.ReasonInputTooLarge:          "remove labels or annotations from the namespace, or shorten its parameters",
	v1alpha1.ReasonConflict:               remedyOther,
	v1alpha1.ReasonAlreadyExists:          remedyOther,
	v1alpha1.ReasonFieldImmutable:         "delete the object, so that the operator creates it",
}

const (
	remedyTemplate = "correct the template"
	remedyValues   = "correct the template, or the labels and parameters of the namespace"
	remedyOther    = "remove what the other client has set, or change spec.sync.adoptionPolicy"
)

// Problem is a reason for which a Namespace does not contain the objects of a template.
type Problem struct {
	Template string
	// Object is the name of the object in the template; empty if the problem concerns the template, or an object that it
	// no longer contains.
	Object string
	// Reason is one of the reasons for failures in package v1alpha1.
	Reason string
	// Message is one sentence without the names above.
	Message string
}

// String returns one sentence with the names.
func (p Problem) String() string {
	if p.Object == "" {
		return fmt.Sprintf("template %q: %s", p.Template, p.Message)
	}
	return fmt.Sprintf("template %q, object %q: %s", p.Template, p.Object, p.Message)
}

// Remedy returns what a user must do to end a problem that waiting cannot end. It returns "" for other problems.
func (p Problem) Remedy() string {
	if denial.IsTransient(p.Message) {
		return ""
	}
	return remedies[p.Reason]
}

// IsConflict reports whether another client or template controls the object. Such a problem is not
// retried until the object or the template changes.
func (p Problem) IsConflict() bool {
	return p.Reason == v1alpha1.ReasonConflict || p.Reason == v1alpha1.ReasonClaimedByTemplate ||
		p.Reason == v1alpha1.ReasonAlreadyExists || p.Reason == v1alpha1.ReasonFieldsDiffer
}

// LeavesObject reports whether the Namespace contains the object in spite of the problem: another template applies it,
// or the API server has changed it.
func (p Problem) LeavesObject() bool {
	return p.Reason == v1alpha1.ReasonClaimedByTemplate || p.Reason == v1alpha1.ReasonFieldsDiffer
}

// IsLocal reports whether the problem lies in the objects or the size of the metadata of the Namespace, and not in the
// revision of the template. Otherwise, the users of one Namespace could stop a rollout.
func (p Problem) IsLocal() bool {
	return p.IsConflict() || p.Reason == v1alpha1.ReasonObjectTerminating || p.Reason == v1alpha1.ReasonFieldImmutable ||
		p.Reason == v1alpha1.ReasonNotRecorded || p.Reason == v1alpha1.ReasonInputTooLarge
}

// IsIncomplete reports whether problems leave the Namespace without an object.
func IsIncomplete(problems []Problem) bool {
	return slices.ContainsFunc(problems, func(found Problem) bool { return !found.LeavesObject() })
}

// ReasonError is an error with a reason.
type ReasonError struct {
	Reason string
	err    error
}

func (e *ReasonError) Error() string { return e.err.Error() }
func (e *ReasonError) Unwrap() error { return e.err }

// Problemf returns an error with a reason.
func Problemf(reason, format string, args ...any) error {
	return &ReasonError{Reason: reason, err: fmt.Errorf(format, args...)}
}

// ErrNotSynced means that a watch has not listed all objects yet.
var ErrNotSynced = errors.New("the watch has not listed all objects yet")

// NotSyncedUnless returns ErrNotSynced with the kind, unless its watch has listed all objects.
func NotSyncedUnless(isSynced bool, kind string) error {
	if isSynced {
		return nil
	}
	return Problemf(v1alpha1.ReasonWatchNotSynced, "the operator cannot list kind %q: %w", kind, ErrNotSynced)
}

// ToProblem converts an error.
func ToProblem(template, object string, err error) Problem {
	var known *ReasonError
	var rendering *render.Error
	reason := v1alpha1.ReasonApplyFailed
	switch {
	case errors.As(err, &known):
		reason = known.Reason
	case errors.As(err, &rendering):
		reason, object, err = rendering.Reason, cmp.Or(object, rendering.Object), rendering.Err
	case denial.IsQuotaUnknown(err):
		reason = v1alpha1.ReasonQuotaNotCounted
	case apierrors.IsForbidden(err):
		reason = v1alpha1.ReasonForbidden
	case denial.IsInvalid(err):
		reason = v1alpha1.ReasonInvalidObject
	case nsobject.IsConflict(err):
		reason = v1alpha1.ReasonConflict
	}
	message := denial.Message(err, MaxFailureMessage)
	return Problem{Template: template, Object: object, Reason: reason, Message: message}
}
