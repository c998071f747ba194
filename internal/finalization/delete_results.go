// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

// deleteResults are the results of the requests that deleted objects of one type in one pass.
type deleteResults struct {
	// failures are the failed DELETE requests.
	failures []objectError
	// attempted contains the objects of an aggregated API server for which a DELETE request succeeded or was ineffective,
	// and ineffective is the number of the latter (see hasNoEffect).
	attempted   sets.Set[objectKey]
	ineffective int
	// collectionError is the error of a deletecollection request.
	collectionError error
}

// objectError is the error from deleting one object.
type objectError struct {
	name string
	uid  types.UID
	err  error
}

// objectKey identifies an object of one type in one namespace.
type objectKey struct {
	name string
	uid  types.UID
}

// maxIneffective is the number of ineffective DELETE requests for objects of a type after which a deletecollection
// request deletes the other objects. An aggregated API server can show thousands of objects of another namespace.
const maxIneffective = 20

// addResult stores the result of a DELETE request.
func (s *typeState) addResult(object *metav1.PartialObjectMetadata, err error) {
	if err != nil {
		s.requests.failures = append(s.requests.failures, objectError{name: object.Name, uid: object.UID, err: err})
	}
	if !s.Type.IsAggregated || (err != nil && !hasNoEffect(err)) {
		return
	}
	if s.requests.attempted == nil {
		s.requests.attempted = sets.New[objectKey]()
	}
	s.requests.attempted.Insert(s.keyOf(object.Name, object.UID))
	if err != nil {
		s.requests.ineffective++
	}
}

// needsCollection reports whether a deletecollection request should delete the other objects of the type.
func (s *typeState) needsCollection() bool {
	return s.Type.CanDeleteCollection && s.requests.ineffective >= maxIneffective
}

// mayRemain reports whether setRemaining needs the remaining objects.
func (s *typeState) mayRemain() bool {
	return len(s.requests.failures) > 0 || len(s.requests.attempted) > 0
}

// setRemaining updates the state for the remaining objects that are not terminating.
func (s *typeState) setRemaining(remaining sets.Set[objectKey]) {
	s.setDeleteError(remaining)
	s.undeleted = s.requests.attempted.Intersection(remaining).Len()
	// Objects that were created in the meantime are not terminating, so no watch event will report their
	// deletion.
	s.HasNew = s.Listed > s.Terminating+s.failed
}

// keyOf returns the key of an object. An aggregated API server may compute objects without a stable UID.
func (s *typeState) keyOf(name string, uid types.UID) objectKey {
	if s.Type.IsAggregated {
		uid = ""
	}
	return objectKey{name: name, uid: uid}
}

// setDeleteError stores the errors of requests that failed. NotFound and Conflict usually mean that the object was
// deleted or replaced in the meantime, so that the request has not failed. An admission webhook can deny a request with
// the same codes, but then the object is among the remaining ones, which are not terminating. For an aggregated API
// server, this is true for all errors: an object that it no longer lists has been deleted otherwise.
func (s *typeState) setDeleteError(remaining sets.Set[objectKey]) {
	failed := slices.DeleteFunc(slices.Clone(s.requests.failures), func(f objectError) bool {
		mayBeDeleted := apierrors.IsNotFound(f.err) || apierrors.IsConflict(f.err) || s.Type.IsAggregated && isFinal(f.err)
		return mayBeDeleted && !remaining.Has(s.keyOf(f.name, f.uid))
	})
	s.failed = len(failed)
	s.deleteError = joinObjectErrors(s.Type, failed)
	s.isUncertain = slices.ContainsFunc(failed, func(f objectError) bool { return !isFinal(f.err) })
	if s.requests.collectionError != nil && len(remaining) > 0 {
		s.deleteError = joinErrors(s.deleteError, s.requests.collectionError)
		s.isUncertain = s.isUncertain || !isFinal(s.requests.collectionError)
	}
}

// hasNoEffect reports whether an error means that the API server has no such object, or cannot delete it alone. The
// server has not rejected the deletion.
func hasNoEffect(err error) bool {
	return isNotServed(err) || apierrors.IsConflict(err) || errors.Is(err, metadataclient.ErrNotSent)
}
