// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/finalization/sharedlist"
	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

// contentState is the known content of a namespace between passes: the result of the last full pass
// over all types, updated by each later pass. In the zero contentState, no content is known.
type contentState struct {
	resources *ResourceSet
	// types contains the types that may have objects. It always contains the type pods,
	// because Pods can be created until the grace period ends.
	types []*typeState
	// isAfterGracePeriod reports whether discovery and lists of the last full pass were requested after
	// the grace period.
	isAfterGracePeriod bool
	// gracePeriodEnd is the end of the grace period according to the last full pass.
	gracePeriodEnd time.Time
	// isInterrupted reports whether the last pass ended with an error. Its counts might be partial, so
	// types with objects might appear to be empty.
	isInterrupted bool
	// failures are the calls that failed in the last passes.
	failures callFailures
}

// needsFullPass reports whether all types must be listed instead of only those that may have
// objects.
func (s *contentState) needsFullPass(isAfterGracePeriod bool, gracePeriodEnd time.Time, cache *discoveryCache) bool {
	return s.resources == nil || s.isInterrupted || s.isOutdated(isAfterGracePeriod, gracePeriodEnd) ||
		!s.resources.IsComplete() || cache.isStale(s.resources)
}

// isOutdated reports whether the grace period has ended since the last full pass, or now ends later
// than in that pass, for example because a second API server was added.
func (s *contentState) isOutdated(isAfterGracePeriod bool, gracePeriodEnd time.Time) bool {
	return s.isAfterGracePeriod != isAfterGracePeriod ||
		(s.isAfterGracePeriod && s.gracePeriodEnd.Before(gracePeriodEnd))
}

// computeNotBefore returns the earliest acceptable times of discovery and of shared lists for a full
// pass. Lists can be older than the pass in the first pass, or if no object remained in the
// previous pass. In these cases, the operator cannot miss a deletion.
func (s *contentState) computeNotBefore(
	isAfterGracePeriod bool, firstSeen, gracePeriodEnd, startedAt time.Time,
) (discovery, lists time.Time) {
	isFirst := s.resources == nil
	mayHaveObjects := s.isInterrupted || slices.ContainsFunc(s.types, (*typeState).isOpen)
	switch {
	case !isAfterGracePeriod && isFirst:
		return time.Time{}, firstSeen // Until the grace period ends, any discovery is acceptable.
	case !isAfterGracePeriod:
		return time.Time{}, startedAt
	case isFirst || (!mayHaveObjects && s.isOutdated(isAfterGracePeriod, gracePeriodEnd)):
		return gracePeriodEnd, gracePeriodEnd
	default:
		return gracePeriodEnd, startedAt
	}
}

// typeState describes the known objects of one type in one namespace.
type typeState struct {
	Remaining

	// page is the first page of the list.
	page     *metav1.PartialObjectMetadataList
	listedAt time.Time
	// emptyPages is the number of empty pages before the last page.
	emptyPages int
	// isUncounted reports whether the first page is empty but other pages follow.
	isUncounted bool
	// isNotServed reports whether the API server does not serve the type.
	isNotServed bool
	// isIncomplete reports whether there may be objects that this pass has not processed.
	isIncomplete bool
	listError    error
	deleteError  error
	// isUncertain reports whether the outcome of a DELETE request is unknown, for example after a
	// timeout.
	isUncertain bool
	// isFailing reports whether a DELETE request failed although no rule rejected it.
	isFailing bool
	// requests contains the results of the requests of the current pass.
	requests deleteResults
	// failed is the number of failed DELETE requests whose objects remain.
	failed int
	// undeleted is the number of objects that an aggregated API server still lists, and not as terminating, although a
	// DELETE request for them succeeded or was ineffective.
	undeleted int
}

// setListResult stores the result of a list request. It returns the page, an empty page if the type is
// not served, or nil if the request failed.
func (s *typeState) setListResult(
	page *metav1.PartialObjectMetadataList, err error,
) *metav1.PartialObjectMetadataList {
	s.isNotServed = isNotServed(err)
	switch {
	case s.isNotServed:
		return &metav1.PartialObjectMetadataList{}
	case err != nil:
		s.listError = fmt.Errorf("failed to list %s: %w", s.Type.GroupResource(), err)
		return nil
	}
	s.ResourceVersion = page.ResourceVersion
	return page
}

func (s *typeState) setFirstPage(result *sharedlist.Result) {
	if result == nil { // The type cannot be listed.
		return
	}
	page := s.setListResult(result.Page, result.Err)
	if page == nil {
		return
	}
	s.page, s.listedAt = page, result.ListedAt
	s.count(page.Items)
	s.Count += int(ptr.Deref(page.RemainingItemCount, 0))
	// In the API, other pages can follow an empty page.
	s.isUncounted = s.Count == 0 && page.Continue != ""
}

// isOpen reports whether the type may have objects, now or once an error is resolved.
func (s *typeState) isOpen() bool {
	return s.Count > 0 || s.isUncounted || s.isIncomplete || s.isNotServed || !s.Type.CanList ||
		s.listError != nil || s.deleteError != nil
}

func (s *typeState) mayHaveObjects() bool {
	return s.Count > 0 || s.isUncounted || s.listError != nil || !s.Type.CanList
}

// canAssumeDeleted reports whether all objects of the type must have been deleted in this pass, because
// they had no finalizer and no request failed. It is false if there are other pages, because the
// finalizers on them are unknown, and for an aggregated API server, whose DELETE may be ineffective. It is
// true only in the last stage: an object that is created during the deletion of a type may need objects
// that a later stage deletes.
func (s *typeState) canAssumeDeleted() bool {
	return s.deleteError == nil && !s.isIncomplete && !s.isUncounted && len(s.Finalizers) == 0 && s.Terminating == 0 &&
		s.Count == s.Listed && s.page.Continue == "" && !s.Type.IsAggregated &&
		stageOf(s.Type.GroupResource()) == stageDependencies
}

func (s *typeState) reset() {
	s.Count, s.Listed, s.Terminating, s.DeletionDue, s.Finalizers, s.isUncounted = 0, 0, 0, time.Time{}, nil, false
	s.undeleted, s.emptyPages = 0, 0
}

// count adds listed objects to the remaining ones.
func (s *typeState) count(objects []metav1.PartialObjectMetadata) {
	s.Count += len(objects)
	s.Listed += len(objects)
	for i := range objects {
		object := &objects[i]
		for _, finalizer := range object.Finalizers {
			if s.Finalizers == nil {
				s.Finalizers = map[string]int{}
			}
			s.Finalizers[finalizer]++
		}
		if object.DeletionTimestamp != nil {
			s.Terminating++
			if due := object.DeletionTimestamp.Time; due.After(s.DeletionDue) {
				s.DeletionDue = due
			}
		}
	}
}

// isNotServed reports whether an error means that the API server does not serve the type. For some
// types that discovery returns, the API server responds to all requests with NotFound
// (kubernetes/kubernetes#22413).
func isNotServed(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// deleteResults are the results of the requests that deleted objects of one type in one pass.
type deleteResults struct {
	// failures are the failed DELETE requests.
	failures []objectError
	// attempted contains the objects of an aggregated API server for which a DELETE request succeeded or was ineffective.
	// ineffective is the number of objects whose DELETE request was ineffective (see hasNoEffect).
	attempted   sets.Set[objectKey]
	ineffective int
	// collectionError is the error of a deletecollection request.
	collectionError error
}

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
// deleted or replaced in the meantime, so these are no errors. An admission webhook can deny a request with the same
// codes, but then the object remains and is not terminating. For an aggregated API server, no error matters if the
// server no longer lists the object, because the object was then deleted in another way.
func (s *typeState) setDeleteError(remaining sets.Set[objectKey]) {
	failed := slices.DeleteFunc(slices.Clone(s.requests.failures), func(f objectError) bool {
		mayBeDeleted := apierrors.IsNotFound(f.err) || apierrors.IsConflict(f.err) || s.Type.IsAggregated && isFinal(f.err)
		return mayBeDeleted && !remaining.Has(s.keyOf(f.name, f.uid))
	})
	s.failed = len(failed)
	s.deleteError = joinObjectErrors(s.Type, failed)
	s.isUncertain = slices.ContainsFunc(failed, func(f objectError) bool { return !isFinal(f.err) })
	s.isFailing = hasFailedCall(failed)
	if s.requests.collectionError != nil && len(remaining) > 0 {
		s.deleteError = joinErrors(s.deleteError, s.requests.collectionError)
		s.isUncertain = s.isUncertain || !isFinal(s.requests.collectionError)
		s.isFailing = s.isFailing || isFailedCall(s.requests.collectionError)
	}
}

// hasNoEffect reports whether an error means that the API server has no such object, or cannot delete it alone. The
// server has not rejected the deletion.
func hasNoEffect(err error) bool {
	return isNotServed(err) || apierrors.IsConflict(err) || errors.Is(err, metadataclient.ErrNotSent)
}
