// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/internal/finalization/sharedlist"
	"github.com/nslifecycle/nslifecycle/internal/finalization/throttling"
)

const (
	// deleteBudget limits how long a pass deletes objects. The next pass deletes the remaining objects, so that
	// a namespace with many objects does not block other namespaces.
	deleteBudget = 10 * time.Second
	// listBudget limits how long a pass lists objects without finding one to delete, and how long it counts the objects
	// of one type afterwards.
	listBudget = 6 * deleteBudget
	// maxConcurrentTypes limits the types of one namespace that are processed concurrently.
	maxConcurrentTypes = 10
	// maxConcurrentDeletes limits the objects of one namespace that are deleted concurrently. On a
	// machine with two cores, deletions with a limit of 40 take two thirds of the time that they take
	// with a limit of 20 (measured).
	maxConcurrentDeletes = 40
	// maxConcurrentRequests limits the concurrent requests for all namespaces, of each kind (see seats).
	maxConcurrentRequests = 64
)

// seats limits the concurrent requests of one kind: list requests or DELETE requests. Requests to aggregated servers
// have separate seats, because these servers may not respond, and DELETE requests may wait for webhooks. Neither may
// delay the lists of other namespaces.
type seats struct{ stored, aggregated *throttling.Limiter }

func newSeats() seats {
	return seats{throttling.NewLimiter(maxConcurrentRequests), throttling.NewLimiter(maxConcurrentRequests)}
}

// limiter returns the limiter for the types of kube-apiserver, or for the types of aggregated API servers.
func (s seats) limiter(isAggregated bool) *throttling.Limiter {
	if isAggregated {
		return s.aggregated
	}
	return s.stored
}

// ErrReplaced means that the Namespace no longer exists, was created again under the same name, or no
// longer has the namespace finalizer.
var ErrReplaced = errors.New(messageReplaced)

// NamespaceGetter reads a Namespace from the API server instead of a cache.
type NamespaceGetter interface {
	Get(ctx context.Context, name string) (*corev1.Namespace, error)
}

// lister lists the first page of each given type in a namespace, with requests sent at notBefore or
// later.
type lister interface {
	List(
		ctx context.Context, namespace string, types []schema.GroupVersionResource, notBefore time.Time,
	) ([]*sharedlist.Result, error)
}

type contentDeleter struct {
	Config
	cache                  *discoveryCache
	listSeats, deleteSeats seats
	lister                 lister
}

type pass struct {
	*contentDeleter
	namespace *corev1.Namespace
	state     *contentState
	startedAt time.Time

	// confirmLock guards confirmedAt, and makes concurrent callers of confirm share one request.
	confirmLock sync.Mutex
	confirmedAt time.Time
	deletes     *semaphore.Weighted
}

// deleteContent makes one pass: it lists the content of a terminating Namespace, deletes the objects
// that can be deleted now, and reports the remaining ones. Passes over the same Namespace share a
// contentState and must not run concurrently. For the errors of deleteContent, see Finalizer.Sync.
func (d *contentDeleter) deleteContent(
	ctx context.Context, namespace *corev1.Namespace, firstSeen, gracePeriodEnd time.Time, state *contentState,
) (*Report, error) {
	p := &pass{
		contentDeleter: d, namespace: namespace, state: state, startedAt: d.Clock.Now(),
		deletes: semaphore.NewWeighted(maxConcurrentDeletes),
	}
	report, err := p.run(ctx, firstSeen, gracePeriodEnd)
	if err != nil {
		state.isInterrupted = true
		return nil, err
	}
	for _, typeState := range state.types {
		// The next pass lists remaining objects again.
		typeState.page, typeState.requests = nil, deleteResults{}
	}
	return report, nil
}

func (p *pass) run(ctx context.Context, firstSeen, gracePeriodEnd time.Time) (*Report, error) {
	isAfterGracePeriod := !p.startedAt.Before(gracePeriodEnd)
	isFullPass := p.state.needsFullPass(isAfterGracePeriod, gracePeriodEnd, p.cache)
	for {
		var err error
		if isFullPass {
			err = p.listAll(ctx, isAfterGracePeriod, firstSeen, gracePeriodEnd)
		} else {
			err = p.relistRemaining(ctx)
		}
		if err != nil {
			return nil, err
		}
		waitReason, err := p.deleteInOrder(ctx, p.state.types)
		if err != nil {
			return nil, err
		}
		report := newReport(p.startedAt, gracePeriodEnd, p.state, waitReason)
		report.addRemedies(p.PermissionRemedy)
		if isFullPass || !report.ConfirmedEmpty {
			return report, nil
		}
		// No objects remain. However, the other types may have been listed long ago, and a request that a
		// slow webhook delayed may have created an object since then. Therefore, list all types once more.
		isFullPass = true
	}
}

// listAll discovers the types and lists the first page of each. If the API server does not serve a
// discovered type, discovery may be stale, and listAll repeats discovery once.
func (p *pass) listAll(ctx context.Context, isAfterGracePeriod bool, firstSeen, gracePeriodEnd time.Time) error {
	discoverNotBefore, listNotBefore := p.state.computeNotBefore(
		isAfterGracePeriod, firstSeen, gracePeriodEnd, p.startedAt)
	// known contains the results of the first attempt. The value is nil if the type is empty.
	known := map[ResourceType]*typeState{}
	for attempt := 0; ; attempt++ {
		resources, err := p.cache.get(ctx, discoverNotBefore)
		if err != nil {
			return fmt.Errorf("failed to discover resource types: %w", err)
		}
		results, err := p.listTypes(ctx, resources.Types, known, listNotBefore)
		if err != nil {
			return err
		}
		types, isStale := mergeResults(resources.Types, known, results)
		if !isStale || attempt > 0 {
			// Like upstream, assume that a type has no objects if it is not served after two discoveries
			// (kubernetes/kubernetes#22413).
			*p.state = contentState{
				resources: resources, types: types, isAfterGracePeriod: isAfterGracePeriod, gracePeriodEnd: gracePeriodEnd,
				failures: p.state.failures,
			}
			return nil
		}
		for _, resourceType := range resources.Types {
			known[resourceType] = nil
		}
		for _, state := range types {
			if state.isNotServed {
				delete(known, state.Type)
			} else {
				known[state.Type] = state
			}
		}
		discoverNotBefore = p.Clock.Now()
		listNotBefore = discoverNotBefore
	}
}

// listTypes lists the first page of the types that are not known yet. The result for each other type, and
// for each type that cannot be listed, is nil.
func (p *pass) listTypes(
	ctx context.Context, types []ResourceType, known map[ResourceType]*typeState, notBefore time.Time,
) ([]*sharedlist.Result, error) {
	var unknown []schema.GroupVersionResource
	var indexes []int
	for i, resourceType := range types {
		if _, ok := known[resourceType]; !ok && resourceType.CanList {
			unknown, indexes = append(unknown, resourceType.GroupVersionResource), append(indexes, i)
		}
	}
	listed, err := p.lister.List(ctx, p.namespace.Name, unknown, notBefore)
	if err != nil {
		return nil, err
	}
	results := make([]*sharedlist.Result, len(types))
	answered := 0
	for i, result := range listed {
		results[indexes[i]] = result
		if result.Err == nil {
			answered++
		}
	}
	p.Metrics.Answered(answered)
	return results, nil
}

// mergeResults returns the states of the types that the pass needs later. It also reports whether
// discovery may be stale, because the API server does not serve one of the types.
func mergeResults(
	types []ResourceType, known map[ResourceType]*typeState, results []*sharedlist.Result,
) ([]*typeState, bool) {
	var states []*typeState
	isStale := false
	for i, resourceType := range types {
		state, ok := known[resourceType]
		switch {
		case !ok:
			state = &typeState{Remaining: Remaining{Type: resourceType}}
			state.setFirstPage(results[i])
		case state == nil:
			continue
		}
		isStale = isStale || state.isNotServed
		// Empty types need no state. With many namespaces, their states would use most of the memory.
		if state.isOpen() || stageOf(resourceType.GroupResource()) == stagePods {
			states = append(states, state)
		}
	}
	return states, isStale
}

// relistRemaining lists the types that may have objects. Until the grace period ends, these include
// pods, because pods must not run without the objects that they were created with.
func (p *pass) relistRemaining(ctx context.Context) error {
	var open []*typeState
	wasNotServed := map[ResourceType]bool{}
	for i, state := range p.state.types {
		mayBeCreated := !p.state.isAfterGracePeriod && stageOf(state.Type.GroupResource()) == stagePods
		if state.isOpen() || mayBeCreated {
			wasNotServed[state.Type] = state.isNotServed
			state = &typeState{Remaining: Remaining{Type: state.Type}}
			p.state.types[i] = state
			open = append(open, state)
		}
	}
	if err := p.forEachType(ctx, open, p.listFirstPage); err != nil {
		return err
	}
	for _, state := range open {
		if state.isNotServed && !wasNotServed[state.Type] {
			p.rediscover(state)
		}
	}
	return nil
}

// rediscover makes the next pass repeat discovery after the API server has stopped serving a type,
// probably because the CustomResourceDefinition was deleted.
func (p *pass) rediscover(state *typeState) {
	p.cache.invalidate()
	state.isIncomplete = true
}

// deleteInOrder deletes the objects stage by stage. If a stage must wait, deleteInOrder returns the
// reason.
func (p *pass) deleteInOrder(ctx context.Context, types []*typeState) (string, error) {
	for current := range stageCount {
		var states []*typeState
		hasLater := false
		for _, state := range types {
			switch stage := stageOf(state.Type.GroupResource()); {
			case stage == current:
				states = append(states, state)
			case stage > current:
				hasLater = hasLater || state.mayHaveObjects()
			}
		}
		if err := p.forEachType(ctx, states, p.deleteType); err != nil {
			return "", err
		}
		// An aggregated API server may compute its objects from other objects, which are deleted now.
		if err := p.forEachType(ctx, states, p.deleteUndeleted); err != nil {
			return "", err
		}
		var failing []string
		if current == stageDefault {
			p.state.failures, failing = computeCallFailures(
				p.state.failures, p.state.resources.DiscoveryError != nil, states, p.startedAt)
		}
		// If later stages have no objects, there is no reason to wait. The message would be wrong, and
		// would alternate with the message of a namespace controller that runs alongside the operator.
		if reason := computeWaitReason(current, states, failing); reason != "" && hasLater {
			return reason, nil
		}
	}
	return "", nil
}

// forEachType calls f for all types with limited concurrency. It returns the first error, which ends
// the pass.
func (p *pass) forEachType(
	ctx context.Context, types []*typeState, f func(context.Context, *typeState) error,
) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrentTypes)
	for _, state := range types {
		group.Go(func() error { return f(ctx, state) })
	}
	return group.Wait()
}

// confirm returns nil if the Namespace still existed with the same UID after the given time. In that
// case, all objects that were listed before that time belong to the Namespace.
func (p *pass) confirm(ctx context.Context, after time.Time) error {
	p.confirmLock.Lock()
	defer p.confirmLock.Unlock()
	if p.confirmedAt.After(after) {
		return nil
	}
	requestedAt := p.Clock.Now()
	if err := p.listSeats.stored.Do(ctx, p.confirmNow); err != nil {
		return err
	}
	p.confirmedAt = requestedAt
	return nil
}

// confirmNow returns nil if the Namespace still exists with the same UID.
func (p *pass) confirmNow(ctx context.Context) error {
	p.Metrics.Requested(PurposeConfirm)
	live, err := p.Namespaces.Get(ctx, p.namespace.Name)
	switch {
	case apierrors.IsNotFound(err):
		return ErrReplaced
	case err != nil:
		return fmt.Errorf("failed to get namespace %q before deleting its content: %w", p.namespace.Name, err)
	case live.UID != p.namespace.UID || live.DeletionTimestamp == nil || !HasFinalizer(live, p.NamespaceFinalizer):
		return ErrReplaced
	}
	return nil
}
