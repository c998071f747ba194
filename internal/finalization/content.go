// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

// maxNamedErrors is how many objects of one type are named with what went wrong.
const maxNamedErrors = 3

// typeState is what a pass knows of one type in one namespace.
type typeState struct {
	Remaining

	// page is the first page of the survey.
	page     *metav1.PartialObjectMetadataList
	listedAt time.Time
	// isUncounted says that the survey has found nothing yet, and not come to the end.
	isUncounted bool
	// isNotServed says that the API server does not serve the type.
	isNotServed bool
	// hasMore says that there may be objects that this pass has not come to.
	hasMore     bool
	listError   error
	deleteError error
	// isInDoubt says that the API server gave no final answer to a DELETE.
	isInDoubt bool
	// failed is how many DELETEs went wrong.
	failed int
}

// look lists one page. What goes wrong becomes the type's listError; the error returned
// ends the pass.
func (p *pass) look(
	ctx context.Context, state *typeState, token string,
) (*metav1.PartialObjectMetadataList, error) {
	var page *metav1.PartialObjectMetadataList
	err := inTurn(ctx, p.requests, func(ctx context.Context) error {
		var err error
		p.meter.Requested(PurposeList)
		// No resource version: the answer is as new as storage.
		page, err = p.objects(state).List(ctx, metav1.ListOptions{Limit: pageSize, Continue: token})
		return err
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if token != "" && isExpired(err) {
		// The list is too old to be continued. The next pass starts a new one.
		state.hasMore = true
		return nil, nil
	}
	return state.judge(page, err), nil
}

// judge takes in the answer to a list. It returns the page, an empty one where the type
// is not served, or nil where that went wrong.
func (s *typeState) judge(page *metav1.PartialObjectMetadataList, err error) *metav1.PartialObjectMetadataList {
	s.isNotServed = isNotServed(err)
	switch {
	case s.isNotServed:
		return &metav1.PartialObjectMetadataList{}
	case err != nil:
		s.listError = fmt.Errorf("listing %s: %w", s.Type.GroupResource(), err)
		return nil
	}
	s.ResourceVersion = page.ResourceVersion
	return page
}

// take takes in the first page.
func (s *typeState) take(found *finding) {
	if found == nil { // cannot be listed
		return
	}
	page := s.judge(found.page, found.err)
	if page == nil {
		return
	}
	s.page, s.listedAt = page, found.listedAt
	s.count(page.Items)
	s.addUnseen(page)
	// A page may be empty and others follow, as the API allows.
	s.isUncounted = s.Count == 0 && page.Continue != ""
}

// isOpen tells whether something may be left of the type.
func (s *typeState) isOpen() bool {
	return s.Count > 0 || s.isUncounted || s.hasMore || s.isNotServed || !s.Type.CanList ||
		s.listError != nil || s.deleteError != nil
}

func (p *pass) listFirstPage(ctx context.Context, state *typeState) error {
	if !state.Type.CanList {
		return nil
	}
	page, err := p.look(ctx, state, "")
	if err == nil && page != nil && !state.isNotServed {
		state.take(&finding{page: page, listedAt: p.clock.Now()})
	}
	return err
}

// deleteType deletes the objects of one type, and counts again what is left of them.
func (p *pass) deleteType(ctx context.Context, state *typeState) error {
	switch {
	case !state.Type.CanList:
		return p.deleteUnseen(ctx, state)
	case state.page == nil || (len(state.page.Items) == 0 && state.page.Continue == ""):
		return nil
	}
	wasTouched, err := p.deletePages(ctx, state)
	switch {
	case err != nil || state.listError != nil:
		return err
	case !wasTouched && state.page.Continue == "":
		return nil // counted already
	case !p.ledger.isProof && state.isPresumedGone():
		// The survey that proves it is still to come.
		state.reset()
		return nil
	}
	return p.countAll(ctx, state)
}

// isPresumedGone tells whether the API server must have removed all objects of the type
// when it was told to: there was no finalizer, and nothing went wrong. Of objects on other
// pages than the first the finalizers are not known. Only where no other stage follows:
// what comes while a type is being deleted may need what that stage deletes.
func (s *typeState) isPresumedGone() bool {
	return s.deleteError == nil && !s.hasMore && !s.isUncounted && len(s.Finalizers) == 0 && s.Terminating == 0 &&
		s.Count == s.Seen && s.page.Continue == "" && stageOf(s.Type.GroupResource()) == stageSupport
}

// deletePages deletes page by page, as long as there is time.
func (p *pass) deletePages(ctx context.Context, state *typeState) (bool, error) {
	wasTouched := false
	var failed []objectError
	page, listedAt := state.page, state.listedAt
	for page != nil {
		if targets := needDeletion(page.Items); len(targets) > 0 {
			if err := p.confirm(ctx, listedAt); err != nil {
				return false, err
			}
			wasTouched = true
			errs, err := p.deleteObjects(ctx, state, targets)
			if err != nil {
				return false, err
			}
			failed = append(failed, errs...)
		}
		if page.Continue == "" || state.hasMore {
			break
		}
		// To look costs little next to deleting. What goes already, and may take long, must not
		// keep a pass from what comes behind it.
		if p.hasRunFor(passBudget) && wasTouched || p.hasRunFor(lookBudget) {
			state.hasMore = true
			break
		}
		var err error
		page, err = p.look(ctx, state, page.Continue)
		if err != nil {
			return false, err
		}
		listedAt = p.clock.Now()
	}
	state.failed = len(failed)
	state.deleteError = joinObjectErrors(state.Type, failed)
	state.isInDoubt = slices.ContainsFunc(failed, func(f objectError) bool { return !isFinal(f.err) })
	return wasTouched, nil
}

// deleteObjects deletes some objects of a type side by side, and returns what went
// wrong with each. Once the API server puts a DELETE off the others are left to another
// pass: each would wait as long, in the way of other namespaces.
func (p *pass) deleteObjects(
	ctx context.Context, state *typeState, targets []metav1.PartialObjectMetadata,
) ([]objectError, error) {
	var lock sync.Mutex
	var failed []objectError
	var group sync.WaitGroup
	defer group.Wait()
	var isPutOff atomic.Bool
	for _, target := range targets {
		if err := p.deletes.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		if isPutOff.Load() {
			p.deletes.Release(1)
			state.hasMore = true
			break
		}
		group.Go(func() {
			defer p.deletes.Release(1)
			if err := p.deleteObject(ctx, state, &target); err != nil {
				// Without a time to wait it is a refusal like any other, by a webhook for example.
				if RetryAfter(err) > 0 {
					isPutOff.Store(true)
				}
				lock.Lock()
				defer lock.Unlock()
				failed = append(failed, objectError{name: target.Name, err: err})
			}
		})
	}
	group.Wait()
	return failed, ctx.Err()
}

func (p *pass) deleteObject(ctx context.Context, state *typeState, object *metav1.PartialObjectMetadata) error {
	err := inTurn(ctx, p.requests, func(ctx context.Context) error {
		p.meter.Requested(PurposeDelete)
		return p.objects(state).Delete(ctx, object.Name, metav1.DeleteOptions{
			// The garbage collector must not keep what depends on the object: everything in
			// the namespace goes.
			PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
			Preconditions:     &metav1.Preconditions{UID: ptr.To(object.UID)},
		})
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or replaced by another one, which is counted afterwards
	}
	if err == nil && object.DeletionTimestamp == nil {
		p.meter.Deleted()
	}
	return err
}

// deleteUnseen deletes what cannot be listed. Whether that leaves anything behind cannot
// be known; like upstream it is taken for empty after that.
func (p *pass) deleteUnseen(ctx context.Context, state *typeState) error {
	if !state.Type.CanDeleteCollection {
		return nil
	}
	if err := p.confirm(ctx, p.clock.Now()); err != nil {
		return err
	}
	err := inTurn(ctx, p.requests, func(ctx context.Context) error {
		p.meter.Requested(PurposeDeleteCollection)
		return p.objects(state).DeleteCollection(ctx,
			metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}, metav1.ListOptions{})
	})
	if err != nil && !isNotServed(err) {
		state.deleteError = fmt.Errorf("deleting all %s: %w", state.Type.GroupResource(), err)
		state.isInDoubt = !isFinal(err)
	}
	return ctx.Err()
}

// countAll counts what is left of a type, page by page, as long as there is time.
func (p *pass) countAll(ctx context.Context, state *typeState) error {
	state.reset()
	token := ""
	for {
		page, err := p.look(ctx, state, token)
		switch {
		case err != nil:
			return err
		case page == nil:
			return nil
		}
		state.count(page.Items)
		if token = page.Continue; token == "" {
			break
		}
		if p.hasRunFor(passBudget) {
			state.addUnseen(page)
			// Empty pages prove nothing about those that follow.
			state.hasMore = state.hasMore || state.Count == 0
			break
		}
	}
	// Nobody has deleted what came in the meantime, so no event will tell that it goes.
	state.HasNew = state.Seen > state.Terminating+state.failed
	if state.isNotServed {
		p.askDiscoveryFor(state)
	}
	return nil
}

func (p *pass) objects(state *typeState) metadata.ResourceInterface {
	return p.content.Resource(state.Type.GroupVersionResource).Namespace(p.namespace.Name)
}

// needDeletion returns those objects that a DELETE changes anything about.
func needDeletion(objects []metav1.PartialObjectMetadata) []metav1.PartialObjectMetadata {
	var targets []metav1.PartialObjectMetadata
	for _, object := range objects {
		// What is being deleted in another way, in the foreground or with its dependents
		// orphaned, goes on in the background as the rest does: the API server takes the
		// finalizers of the other ways off then.
		waitsForCollector := slices.Contains(object.Finalizers, metav1.FinalizerDeleteDependents) ||
			slices.Contains(object.Finalizers, metav1.FinalizerOrphanDependents)
		if object.DeletionTimestamp == nil || waitsForCollector {
			targets = append(targets, object)
		}
	}
	return targets
}

// mayHaveObjects tells whether there are objects to delete, as far as the survey could
// tell.
func (s *typeState) mayHaveObjects() bool {
	return s.Count > 0 || s.isUncounted || s.listError != nil || !s.Type.CanList
}

func (s *typeState) reset() {
	s.Count, s.Seen, s.Terminating, s.Until, s.Finalizers, s.isUncounted = 0, 0, 0, time.Time{}, nil, false
}

// count adds objects to those that remain.
func (s *typeState) count(objects []metav1.PartialObjectMetadata) {
	s.Count += len(objects)
	s.Seen += len(objects)
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
			if end := object.DeletionTimestamp.Time; end.After(s.Until) {
				s.Until = end
			}
		}
	}
}

// addUnseen adds those that are on no page that was listed.
func (s *typeState) addUnseen(last *metav1.PartialObjectMetadataList) {
	s.Count += int(ptr.Deref(last.RemainingItemCount, 0))
}

// objectError is what went wrong with one object.
type objectError struct {
	name string
	err  error
}

// joinObjectErrors makes one error of those of a type: the first few by name, and the
// number of the others.
func joinObjectErrors(resourceType ResourceType, failed []objectError) error {
	if len(failed) == 0 {
		return nil
	}
	slices.SortFunc(failed, func(a, b objectError) int { return cmp.Compare(a.name, b.name) })
	var errs []error
	for i, failure := range failed {
		if i == maxNamedErrors {
			errs = append(errs, fmt.Errorf("and so on with %s", plural(len(failed)-i, "other object")))
			break
		}
		errs = append(errs, fmt.Errorf("deleting %s %s: %w",
			resourceType.GroupResource(), metadataclient.Quote(failure.name), failure.err))
	}
	return joinWith("; ", errs)
}

// isNotServed tells whether an error says that the API server does not have the type.
// Some types that are in discovery answer "not found" to everything
// (kubernetes/kubernetes#22413).
func isNotServed(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// isUnavailable tells whether an error says that the server of a type is not there, as
// an aggregated API server may be.
func isUnavailable(err error) bool {
	return apierrors.IsServiceUnavailable(err)
}

// isFinal tells whether an error is an answer that will not be another one in a moment,
// such as a refusal.
func isFinal(err error) bool {
	if errors.Is(err, metadataclient.ErrNotSent) {
		return true
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) &&
		!apierrors.IsTooManyRequests(err)
}

func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// joinWith is errors.Join with another separator, for messages of one line.
func joinWith(separator string, errs []error) error {
	return &joinedError{separator: separator, errs: errs}
}

type joinedError struct {
	separator string
	errs      []error
}

func (e *joinedError) Error() string {
	texts := make([]string, 0, len(e.errs))
	for _, err := range e.errs {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, e.separator)
}

func (e *joinedError) Unwrap() []error { return e.errs }
