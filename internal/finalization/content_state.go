// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/finalization/sharedlist"
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
// pass. Lists can be older than the pass if it is the first one, or if no object remained in the
// previous one. In these cases, the operator cannot miss a deletion.
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

// setFirstPage stores the first page of a list.
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

// mayHaveObjects reports whether the type may have objects to delete.
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

// reset prepares the state for counting the remaining objects.
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
