// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

const (
	// requestTimeout is how long the API server may take for one request, and put it off.
	requestTimeout = 30 * time.Second
	// passBudget is how long a pass goes on to delete before it leaves the rest to the next
	// one, so that a namespace with very much in it does not keep the others waiting.
	passBudget = 10 * time.Second
	// lookBudget is how long it goes on to look for something to delete.
	lookBudget = 6 * passBudget
	// pageSize is how many objects are listed at a time.
	pageSize = 500
	// typesAtOnce is how many types of one namespace are worked on side by side.
	typesAtOnce = 10
	// deletesAtOnce is how many objects of one namespace are deleted side by side. Measured on
	// a two-core machine, 40 take two thirds of the time that 20 take.
	deletesAtOnce = 40
	// requestsAtOnce is how many requests all namespaces together have in flight. Those
	// who wait take turns, so that a full namespace leaves room for the others.
	requestsAtOnce = 64
)

// ErrReplaced says that the Namespace is not any more, or not the one it was: gone,
// created again under the same name, or released from the token by somebody else.
var ErrReplaced = errors.New("the namespace is no longer there, or its token is no longer ours to release")

// NamespaceGetter reads a Namespace from storage, not from a cache.
type NamespaceGetter interface {
	Get(ctx context.Context, name string) (*corev1.Namespace, error)
}

// Deleter empties namespaces.
type Deleter struct {
	catalog    *Catalog
	content    metadata.Interface
	namespaces NamespaceGetter
	token      corev1.FinalizerName
	clock      clock.PassiveClock
	requests   *semaphore.Weighted
	surveyor   *surveyor
	meter      Meter
}

// NewDeleter returns a Deleter that works for one token of spec.finalizers. Types that are
// aggregated, as far as the last argument tells, are listed in each namespace by itself;
// nil stands for none.
func NewDeleter(
	catalog *Catalog, content metadata.Interface, namespaces NamespaceGetter, token corev1.FinalizerName,
	passive clock.PassiveClock, isAggregated func(schema.GroupVersion) bool,
) *Deleter {
	requests := semaphore.NewWeighted(requestsAtOnce)
	content = metadataclient.New(content)
	return &Deleter{
		catalog: catalog, content: content, namespaces: namespaces, token: token, clock: passive,
		requests: requests,
		surveyor: newSurveyor(content, passive, requests, isAggregated),
		meter:    noMeter{},
	}
}

// Ledger is what is known of a Namespace from one pass to the next: what the last survey
// of all types has found, brought up to date by every pass since. The zero Ledger knows
// nothing.
type Ledger struct {
	inventory *Inventory
	// types are those of which something may be left, and pods: some may come.
	types []*typeState
	// isProof says that the survey and its discovery were asked for when the namespace had
	// settled.
	isProof bool
	// settledAt is when the namespace had settled, as far as was known at the survey.
	settledAt time.Time
	// isCutShort says that the last pass has ended in the middle. It may have counted types
	// in part, so that they look empty.
	isCutShort bool
}

// needsSurvey tells whether all types must be looked at, and not just those of which
// something may be left.
func (l *Ledger) needsSurvey(isSettled bool, settledAt time.Time, catalog *Catalog) bool {
	return l.inventory == nil || l.isCutShort || l.isOutdated(isSettled, settledAt) ||
		!l.inventory.IsComplete() || catalog.isStale(l.inventory)
}

// isOutdated tells whether the namespace has settled since the survey, or settles later
// than was known then: with a second API server the settling time grows.
func (l *Ledger) isOutdated(isSettled bool, settledAt time.Time) bool {
	return l.isProof != isSettled || (l.isProof && l.settledAt.Before(settledAt))
}

// answersFrom returns from when on discovery and the answers of others may be. They may
// be older than the pass where it is the first one, or where the last one has left
// nothing: then nothing that happened since can be missed.
func (l *Ledger) answersFrom(isSettled bool, seenAt, settledAt, began time.Time) (time.Time, time.Time) {
	isFirst := l.inventory == nil
	hasLeft := l.isCutShort || slices.ContainsFunc(l.types, (*typeState).isOpen)
	switch {
	case !isSettled && isFirst:
		return time.Time{}, seenAt // any discovery will do before the namespace has settled
	case !isSettled:
		return time.Time{}, began
	case isFirst || (!hasLeft && l.isOutdated(isSettled, settledAt)):
		return settledAt, settledAt
	default:
		return settledAt, began
	}
}

// pass is the state of one pass over one namespace.
type pass struct {
	*Deleter
	namespace *corev1.Namespace
	ledger    *Ledger
	began     time.Time

	// confirmLock lets one of those who want the Namespace confirmed ask, and the others
	// share the answer.
	confirmLock sync.Mutex
	confirmedAt time.Time
	deletes     *semaphore.Weighted
}

// Pass looks at what is in a terminating Namespace, deletes what may be deleted now, and
// reports what remains. The deletion was first seen at seenAt; what is found out from
// settledAt on proves that the namespace is empty. Passes over the same Namespace share
// a Ledger, one after the other. The error is ErrReplaced, or that of the context or of
// reading the Namespace; everything else is in the Report.
func (d *Deleter) Pass(
	ctx context.Context, namespace *corev1.Namespace, seenAt, settledAt time.Time, ledger *Ledger,
) (*Report, error) {
	p := &pass{
		Deleter: d, namespace: namespace, ledger: ledger, began: d.clock.Now(),
		deletes: semaphore.NewWeighted(deletesAtOnce),
	}
	report, err := p.run(ctx, seenAt, settledAt)
	if err != nil {
		ledger.isCutShort = true
		return nil, err
	}
	for _, state := range ledger.types {
		state.page = nil // Whatever is left is listed anew.
	}
	return report, nil
}

// run makes the pass.
func (p *pass) run(ctx context.Context, seenAt, settledAt time.Time) (*Report, error) {
	isSettled := !p.began.Before(settledAt)
	mustSurvey := p.ledger.needsSurvey(isSettled, settledAt, p.catalog)
	for {
		var err error
		if mustSurvey {
			err = p.survey(ctx, isSettled, seenAt, settledAt)
		} else {
			err = p.lookAgain(ctx)
		}
		if err != nil {
			return nil, err
		}
		wait, err := p.deleteInOrder(ctx, p.ledger.types)
		if err != nil {
			return nil, err
		}
		report := newReport(p.began, p.ledger, wait)
		if mustSurvey || !report.IsProof {
			return report, nil
		}
		// What was left is gone. What was empty at the survey may have been looked at long ago,
		// and something may have come since: an object that the API server had accepted before,
		// and that a slow webhook has held. So everything is looked at once more.
		mustSurvey = true
	}
}

// survey discovers the types and finds the first objects of each. A type that turns out
// not to be served means that the inventory is out of date.
func (p *pass) survey(ctx context.Context, isSettled bool, seenAt, settledAt time.Time) error {
	discoveredAfter, askedAfter := p.ledger.answersFrom(isSettled, seenAt, settledAt, p.began)
	// What an earlier attempt has found: nil where there is nothing to keep.
	known := map[ResourceType]*typeState{}
	for attempt := 0; ; attempt++ {
		inventory, err := p.catalog.Get(ctx, discoveredAfter)
		if err != nil {
			return fmt.Errorf("waiting for the discovery of types: %w", err)
		}
		var unknown []ResourceType
		for _, resourceType := range inventory.Types {
			if _, isKnown := known[resourceType]; !isKnown && resourceType.CanList {
				unknown = append(unknown, resourceType)
			}
		}
		found, err := p.surveyor.look(ctx, p.namespace.Name, unknown, askedAfter)
		if err != nil {
			return err
		}
		types, isOutOfDate := takeFound(inventory.Types, known, found)
		if !isOutOfDate || attempt > 0 {
			// What discovery names twice and the API server does not serve has no objects,
			// as upstream holds (kubernetes/kubernetes#22413).
			*p.ledger = Ledger{inventory: inventory, types: types, isProof: isSettled, settledAt: settledAt}
			return nil
		}
		for _, resourceType := range inventory.Types {
			known[resourceType] = nil
		}
		for _, state := range types {
			if state.isNotServed {
				delete(known, state.Type)
			} else {
				known[state.Type] = state
			}
		}
		discoveredAfter = p.clock.Now()
		askedAfter = discoveredAfter
	}
}

// takeFound returns the states of those types that matter from here on, and whether one of
// them is not served, so that the inventory seems out of date. What is known already is not
// among what was found now.
func takeFound(
	types []ResourceType, known map[ResourceType]*typeState, found map[ResourceType]*finding,
) ([]*typeState, bool) {
	var states []*typeState
	isOutOfDate := false
	for _, resourceType := range types {
		state, isKnown := known[resourceType]
		switch {
		case !isKnown:
			state = &typeState{Remaining: Remaining{Type: resourceType}}
			state.take(found[resourceType])
		case state == nil:
			continue
		}
		isOutOfDate = isOutOfDate || state.isNotServed
		// What is empty needs no state: in bulk, most of the memory would go into that.
		if state.isOpen() || stageOf(resourceType.GroupResource()) == stagePods {
			states = append(states, state)
		}
	}
	return states, isOutOfDate
}

// lookAgain looks at those types of which something may be left. Pods may have come while
// the namespace has not settled, and must not run on without what they were set up with.
func (p *pass) lookAgain(ctx context.Context) error {
	var open []*typeState
	wasNotServed := map[ResourceType]bool{}
	for i, state := range p.ledger.types {
		mayHaveCome := !p.ledger.isProof && stageOf(state.Type.GroupResource()) == stagePods
		if state.isOpen() || mayHaveCome {
			wasNotServed[state.Type] = state.isNotServed
			state = &typeState{Remaining: Remaining{Type: state.Type}}
			p.ledger.types[i] = state
			open = append(open, state)
		}
	}
	if err := p.sideBySide(ctx, open, p.listFirstPage); err != nil {
		return err
	}
	for _, state := range open {
		if state.isNotServed && !wasNotServed[state.Type] {
			p.askDiscoveryFor(state)
		}
	}
	return nil
}

// askDiscoveryFor makes the next pass discover anew, since a type is not served all at
// once: its CRD has gone meanwhile, or so it seems.
func (p *pass) askDiscoveryFor(state *typeState) {
	p.catalog.Invalidate()
	state.hasMore = true
}

// deleteInOrder goes through the stages and stops where the rest has to wait; it
// returns why.
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
		if err := p.sideBySide(ctx, states, p.deleteType); err != nil {
			return "", err
		}
		// Where nothing is left to wait, it would be wrong to say so, and to say it again
		// and again beside a namespace controller that says otherwise.
		if why := whyWait(current, states); why != "" && hasLater {
			return why, nil
		}
	}
	return "", nil
}

// sideBySide calls f for all types, a bounded number at a time. It returns the first
// error, which has to be one that ends the pass.
func (p *pass) sideBySide(
	ctx context.Context, types []*typeState, f func(context.Context, *typeState) error,
) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(typesAtOnce)
	for _, state := range types {
		group.Go(func() error { return f(ctx, state) })
	}
	return group.Wait()
}

// inTurn makes one request to the API server when it is its turn.
func inTurn(ctx context.Context, requests *semaphore.Weighted, request func(context.Context) error) error {
	if err := requests.Acquire(ctx, 1); err != nil {
		return err
	}
	defer requests.Release(1)
	return within(ctx, requestTimeout, request)
}

// confirm makes sure that the Namespace was still the same at a time after the given
// one, so that whatever was listed by then belongs to it.
func (p *pass) confirm(ctx context.Context, after time.Time) error {
	p.confirmLock.Lock()
	defer p.confirmLock.Unlock()
	if p.confirmedAt.After(after) {
		return nil
	}
	asked := p.clock.Now()
	var live *corev1.Namespace
	err := inTurn(ctx, p.requests, func(ctx context.Context) error {
		var err error
		p.meter.Requested(PurposeConfirm)
		live, err = p.namespaces.Get(ctx, p.namespace.Name)
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return ErrReplaced
	case err != nil:
		return fmt.Errorf("reading namespace %q before anything in it is deleted: %w", p.namespace.Name, err)
	case live.UID != p.namespace.UID || live.DeletionTimestamp == nil || !HasToken(live, p.token):
		return ErrReplaced
	}
	p.confirmedAt = asked
	return nil
}

// hasRunFor tells whether the pass has taken longer than that.
func (p *pass) hasRunFor(budget time.Duration) bool {
	return p.clock.Since(p.began) > budget
}
