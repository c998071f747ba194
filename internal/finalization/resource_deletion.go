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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/finalization/sharedlist"
	"github.com/nslifecycle/nslifecycle/internal/finalization/throttling"
	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// maxNamedErrors is the number of objects of one type that an error names.
const maxNamedErrors = 3

// maxEmptyPages limits the empty pages of a type in one pass. An aggregated API server could return such pages without
// end, and thus delay all namespaces.
const maxEmptyPages = 10

// listPage lists one page. It stores a failure in the type's listError. If listPage returns an
// error, the pass ends.
func (p *pass) listPage(
	ctx context.Context, state *typeState, continueToken string,
) (*metav1.PartialObjectMetadataList, error) {
	var page *metav1.PartialObjectMetadataList
	err := p.listSeats.limiter(state.Type.IsAggregated).Do(ctx, func(ctx context.Context) error {
		var err error
		p.Metrics.Requested(PurposeList)
		// A list request without a resourceVersion is a consistent read.
		page, err = p.objects(state).List(ctx, metav1.ListOptions{
			Limit: sharedlist.PageLimit(state.Type.IsAggregated), Continue: continueToken,
		})
		return err
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if continueToken != "" && isExpired(err) {
		// The next pass starts a new list.
		state.isIncomplete = true
		return nil, nil
	}
	if err == nil && len(page.Items) == 0 && page.Continue != "" {
		if state.emptyPages++; state.emptyPages > maxEmptyPages {
			err = fmt.Errorf("the list has more than %d empty pages", maxEmptyPages)
		}
	}
	return state.setListResult(page, err), nil
}

func (p *pass) listFirstPage(ctx context.Context, state *typeState) error {
	if !state.Type.CanList {
		return nil
	}
	page, err := p.listPage(ctx, state, "")
	if err == nil && page != nil && !state.isNotServed {
		state.setFirstPage(&sharedlist.Result{Page: page, ListedAt: p.Clock.Now()})
	}
	return err
}

// deleteType deletes the objects of one type and counts the remaining ones.
func (p *pass) deleteType(ctx context.Context, state *typeState) error {
	switch {
	case !state.Type.CanList:
		return p.deleteCollection(ctx, state)
	case state.page == nil || (len(state.page.Items) == 0 && state.page.Continue == ""):
		return nil
	}
	hasDeleted, err := p.deletePages(ctx, state)
	switch {
	case err != nil || state.listError != nil:
		return err
	case !hasDeleted && state.page.Continue == "":
		return nil // The objects have already been counted.
	case !p.state.isAfterGracePeriod && state.canAssumeDeleted():
		// A full pass after the grace period verifies this.
		state.reset()
		return nil
	}
	return p.recount(ctx, state)
}

// deletePages deletes the objects of one type, page by page, within the time budget. It reports whether
// it sent a DELETE request.
func (p *pass) deletePages(ctx context.Context, state *typeState) (hasDeleted bool, err error) {
	page, listedAt := state.page, state.listedAt
	for page != nil {
		if targets := needDeletion(page.Items); len(targets) > 0 {
			if err := p.confirm(ctx, listedAt); err != nil {
				return false, err
			}
			hasDeleted = true
			if err := p.deleteObjects(ctx, state, targets); err != nil {
				return false, err
			}
		}
		if page.Continue == "" || state.isIncomplete || state.needsCollection() {
			break
		}
		// A list request is cheap compared to deletions. Pages with only terminating objects must not
		// prevent a pass from deleting the objects on later pages.
		if elapsed := p.Clock.Since(p.startedAt); elapsed > deleteBudget && hasDeleted || elapsed > listBudget {
			state.isIncomplete = true
			break
		}
		page, err = p.listPage(ctx, state, page.Continue)
		if err != nil {
			return false, err
		}
		listedAt = p.Clock.Now()
	}
	state.setDeleteError(nil)
	return hasDeleted, nil
}

// deleteObjects deletes objects of a type concurrently. If the API server throttles a DELETE request, a
// later pass deletes the other objects. Otherwise, each request would wait just as long and block other
// namespaces.
func (p *pass) deleteObjects(ctx context.Context, state *typeState, targets []metav1.PartialObjectMetadata) error {
	var lock sync.Mutex
	var group sync.WaitGroup
	defer group.Wait()
	isThrottled := false
	for _, target := range targets {
		if err := p.deletes.Acquire(ctx, 1); err != nil {
			return err
		}
		lock.Lock()
		state.isIncomplete = state.isIncomplete || isThrottled
		isDone := isThrottled || state.needsCollection()
		lock.Unlock()
		if isDone {
			p.deletes.Release(1)
			break
		}
		group.Go(func() {
			defer p.deletes.Release(1)
			err := p.deleteObject(ctx, state, &target)
			lock.Lock()
			defer lock.Unlock()
			state.addResult(&target, err)
			// A 429 without Retry-After is an ordinary rejection, for example by a webhook.
			isThrottled = isThrottled || throttling.RetryAfter(err) > 0
		})
	}
	group.Wait()
	return ctx.Err()
}

func (p *pass) deleteObject(ctx context.Context, state *typeState, object *metav1.PartialObjectMetadata) error {
	err := p.deleteSeats.limiter(state.Type.IsAggregated).Do(ctx, func(ctx context.Context) error {
		p.Metrics.Requested(PurposeDelete)
		return p.objects(state).Delete(ctx, object.Name, metav1.DeleteOptions{
			// Dependents must not be orphaned, because all objects in the namespace are deleted.
			PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
			Preconditions:     &metav1.Preconditions{UID: ptr.To(object.UID)},
		})
	})
	if err == nil && object.DeletionTimestamp == nil {
		p.Metrics.Deleted()
	}
	return err
}

// deleteCollection deletes all objects of a type. If the type cannot be listed, it then treats the type as empty, like
// upstream, because it cannot determine whether objects remain.
func (p *pass) deleteCollection(ctx context.Context, state *typeState) error {
	if !state.Type.CanDeleteCollection {
		return nil
	}
	isConfirmed := false
	err := p.deleteSeats.limiter(state.Type.IsAggregated).Do(ctx, func(ctx context.Context) error {
		// The limiter can delay requests, so the Namespace is confirmed immediately before the request.
		if err := p.confirmNow(ctx); err != nil {
			return err
		}
		isConfirmed = true
		p.Metrics.Requested(PurposeDeleteCollection)
		return p.objects(state).DeleteCollection(ctx,
			metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}, metav1.ListOptions{})
	})
	if !isConfirmed {
		return err
	}
	if err != nil && !isNotServed(err) {
		state.requests.collectionError = fmt.Errorf("failed to delete all %s: %w", state.Type.GroupResource(), err)
		state.deleteError = state.requests.collectionError
		state.isUncertain, state.isFailing = !isFinal(err), isFailedCall(err)
	}
	return ctx.Err()
}

// deleteUndeleted deletes the objects that an aggregated API server still lists after they were deleted one by one, and
// counts the remaining objects. In a deletecollection request, the server itself decides which objects the namespace
// contains. It is sent only if nothing else helps, because it names the namespace but not its UID: like a request of
// upstream's namespace controller, it affects a recreated namespace if it is delayed.
func (p *pass) deleteUndeleted(ctx context.Context, state *typeState) error {
	if state.undeleted == 0 || state.isUncertain {
		return nil
	}
	// Objects that the server computes from other objects no longer exist once these are deleted.
	if err := p.recount(ctx, state); err != nil || state.undeleted == 0 || !state.Type.CanDeleteCollection {
		return err
	}
	var isAggregated bool
	err := p.listSeats.stored.Do(ctx, func(ctx context.Context) error {
		var err error
		isAggregated, err = p.ConfirmAggregated(ctx, state.Type.GroupVersion())
		return err
	})
	if err != nil || !isAggregated {
		return ctx.Err() // The errors of the DELETE requests are reported.
	}
	if err := p.deleteCollection(ctx, state); err != nil {
		return err
	}
	return p.recount(ctx, state)
}

// recount counts the remaining objects of a type, page by page.
//
// The next stage must not start while an object on a page that was not counted is terminating, so it waits if recount
// does not list all pages. To avoid that, recount has a budget of its own: deletePages has just listed as many pages
// within listBudget. Only a pass that is incomplete anyway stops earlier.
func (p *pass) recount(ctx context.Context, state *typeState) error {
	state.reset()
	startedAt := p.Clock.Now()
	remaining := sets.New[objectKey]()
	continueToken := ""
	for {
		page, err := p.listPage(ctx, state, continueToken)
		switch {
		case err != nil:
			return err
		case page == nil:
			return nil
		}
		state.count(page.Items)
		for i := range page.Items {
			if state.mayRemain() && page.Items[i].DeletionTimestamp == nil {
				remaining.Insert(state.keyOf(page.Items[i].Name, page.Items[i].UID))
			}
		}
		if continueToken = page.Continue; continueToken == "" {
			break
		}
		isOverBudget := state.isIncomplete && p.Clock.Since(p.startedAt) > deleteBudget
		if isOverBudget || p.Clock.Since(startedAt) > listBudget {
			state.Count += int(ptr.Deref(page.RemainingItemCount, 0))
			state.isIncomplete = true
			break
		}
	}
	state.setRemaining(remaining)
	if state.isNotServed {
		p.rediscover(state)
	}
	return nil
}

func (p *pass) objects(state *typeState) metadata.ResourceInterface {
	return p.Content.Resource(state.Type.GroupVersionResource).Namespace(p.namespace.Name)
}

// needDeletion returns the objects for which a DELETE request has an effect.
func needDeletion(objects []metav1.PartialObjectMetadata) []metav1.PartialObjectMetadata {
	var targets []metav1.PartialObjectMetadata
	for _, object := range objects {
		// A DELETE request changes a foreground or orphaning deletion to a background deletion: the API
		// server removes the finalizers of the other propagation policies.
		waitsForCollector := slices.Contains(object.Finalizers, metav1.FinalizerDeleteDependents) ||
			slices.Contains(object.Finalizers, metav1.FinalizerOrphanDependents)
		if object.DeletionTimestamp == nil || waitsForCollector {
			targets = append(targets, object)
		}
	}
	return targets
}

// joinObjectErrors returns one error for all failures of a type. It names the first objects, and
// counts the others.
func joinObjectErrors(resourceType ResourceType, failed []objectError) error {
	if len(failed) == 0 {
		return nil
	}
	slices.SortFunc(failed, func(a, b objectError) int { return cmp.Compare(a.name, b.name) })
	var errs []error
	for i, failure := range failed {
		if i == maxNamedErrors {
			errs = append(errs, fmt.Errorf("and %s", printable.Count(len(failed)-i, "other object")))
			break
		}
		errs = append(errs, fmt.Errorf("failed to delete %s %s: %w",
			resourceType.GroupResource(), metadataclient.Quote(failure.name), failure.err))
	}
	return joinedError(errs)
}

// isFinal reports whether an error means that the client did not send the request, or that the API
// server responded with an error other than a timeout or throttling. Such a request is assumed to
// have had no effect.
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

func joinErrors(errs ...error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return joinedError(errs)
}

// joinedError is like the error that errors.Join returns, but its message is a single line.
type joinedError []error

func (e joinedError) Error() string {
	texts := make([]string, 0, len(e))
	for _, err := range e {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

func (e joinedError) Unwrap() []error { return e }
