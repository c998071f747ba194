// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// Reasons of problems, in addition to those of package render.
const (
	// ReasonInvalidTemplate: the template does not compile.
	ReasonInvalidTemplate = "InvalidTemplate"
	// ReasonInvalidObject: the object cannot be part of a template.
	ReasonInvalidObject = "InvalidObject"
	// ReasonKindNotFound: the API server does not serve the kind.
	ReasonKindNotFound = "KindNotFound"
	// ReasonSourceNotFound: the source of a copy does not exist.
	ReasonSourceNotFound = "SourceNotFound"
	// ReasonSourceReplaced: the namespace of the source of a copy was deleted and created again.
	ReasonSourceReplaced = "SourceNamespaceReplaced"
	// ReasonServiceAccountNotFound: the ServiceAccount of the template does not exist.
	ReasonServiceAccountNotFound = "ServiceAccountNotFound"
	// ReasonForbidden: the ServiceAccount or the operator lacks permissions.
	ReasonForbidden = "Forbidden"
	// ReasonConflict: another client controls fields of the object.
	ReasonConflict = "Conflict"
	// ReasonClaimed: another template contains the same object.
	ReasonClaimed = "ClaimedByTemplate"
	// ReasonAlreadyExists: the object existed before, and the template does not adopt it.
	ReasonAlreadyExists = "AlreadyExists"
	// ReasonApplyFailed: the API server rejected the object.
	ReasonApplyFailed = "ApplyFailed"
	// ReasonFieldImmutable: the API server does not permit the change of the existing object.
	ReasonFieldImmutable = "FieldImmutable"
	// ReasonNotRecorded: the API server rejects the record of the objects in the annotation of the Namespace.
	ReasonNotRecorded = "NotRecorded"
	// ReasonObjectKept: the operator does not delete an object that it has not created.
	ReasonObjectKept = "ObjectKept"
	// ReasonTerminating: the current object is being deleted.
	ReasonTerminating = "ObjectTerminating"
	// ReasonNotCounted: kube-controller-manager has not counted the ResourceQuota yet.
	ReasonNotCounted = "QuotaNotCounted"
	// ReasonNotGranted: the API server does not grant the permissions of the RoleBinding yet.
	ReasonNotGranted = "PermissionsNotGranted"
	// ReasonRevisionNotFound: a revision of the template was deleted.
	ReasonRevisionNotFound = "RevisionNotFound"
	// ReasonNotSynced: the operator cannot list the objects of a kind, or the source of a copy.
	ReasonNotSynced = "WatchNotSynced"
	// ReasonNotSelected: the labels of a new Namespace have changed, and the template may still select it again.
	ReasonNotSelected = "NotSelected"
	// ReasonTooManyObjects: the templates of the Namespace contain too many objects.
	ReasonTooManyObjects = "TooManyObjects"
)

// Problem is why a Namespace does not contain what a template specifies.
type Problem struct {
	Template string
	// Object is the name of the object in the template; empty if the problem concerns the template.
	Object string
	// Reason is one word in CamelCase.
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

// IsConflict reports whether another client or template controls the object. Such a problem is not
// retried until the object or the template changes.
func (p Problem) IsConflict() bool {
	return p.Reason == ReasonConflict || p.Reason == ReasonClaimed || p.Reason == ReasonAlreadyExists
}

// isLocal reports whether the problem lies in what the Namespace contains already, and not in the revision of the
// template: it cannot occur in a new Namespace. Otherwise, the users of one Namespace could stop a rollout.
func (p Problem) isLocal() bool {
	return p.IsConflict() || p.Reason == ReasonTerminating || p.Reason == ReasonFieldImmutable ||
		p.Reason == ReasonNotRecorded
}

// isIncomplete reports whether problems leave the Namespace without an object. An object that another
// template contains exists.
func isIncomplete(problems []Problem) bool {
	return slices.ContainsFunc(problems, func(found Problem) bool { return found.Reason != ReasonClaimed })
}

// problem is an error with a reason.
type problem struct {
	reason string
	err    error
}

func (p *problem) Error() string { return p.err.Error() }
func (p *problem) Unwrap() error { return p.err }

func problemf(reason, format string, args ...any) error {
	return &problem{reason: reason, err: fmt.Errorf(format, args...)}
}

// errNotSynced means that a watch has not listed all objects yet.
var errNotSynced = errors.New("the watch has not listed all objects yet")

func notSyncedUnless(isSynced bool, kind string) error {
	if isSynced {
		return nil
	}
	return problemf(ReasonNotSynced, "the operator cannot list kind %q: %w", kind, errNotSynced)
}

// toProblem converts an error.
func toProblem(template, object string, err error) Problem {
	var known *problem
	var rendering *render.Error
	reason := ReasonApplyFailed
	switch {
	case errors.As(err, &known):
		reason = known.reason
	case errors.As(err, &rendering):
		reason, object, err = rendering.Reason, cmp.Or(object, rendering.Object), rendering.Err
	case apierrors.IsForbidden(err):
		reason = ReasonForbidden
	case nswrite.IsConflict(err):
		reason = ReasonConflict
	}
	message := nscondition.Shorten(err.Error(), maxFailureMessage)
	return Problem{Template: template, Object: object, Reason: reason, Message: message}
}

func sortProblems(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Template, b.Template), strings.Compare(a.Object, b.Object))
	})
}
