// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/internal/finalization/sharedlist"
)

// passes are passes over one Namespace that share a contentState.
type passes struct {
	g       *WithT
	server  *contentServer
	deleter *contentDeleter
	api     *discoverer
	state   *contentState
}

func newPasses(t *testing.T, server *contentServer) *passes {
	t.Helper()
	p := &passes{g: NewWithT(t), server: server, state: &contentState{}}
	p.deleter, p.api = newDeleter(server, &namespaceReader{namespace: terminating()}, ordinary...)
	return p
}

// pass runs a pass. It returns the Report and the requests that the pass sent, sorted.
func (p *passes) pass(t *testing.T, gracePeriodEnd time.Time) (*Report, []string) {
	t.Helper()
	p.server.log = nil
	report, err := p.deleter.deleteContent(t.Context(), terminating(), now, gracePeriodEnd, p.state)
	p.g.Expect(err).NotTo(HaveOccurred())
	requests := p.server.recorded("")
	slices.Sort(requests)
	return report, requests
}

var (
	later        = now.Add(time.Hour)
	listEachType = []string{"list configmaps", "list pods", "list widgets"}
)

// Only remaining types are listed until none remain; then all types are listed once more.
func TestPassKeepsContentState(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{
		"widgets": {object("w", "example.com/hold")}, "configmaps": {object("c")},
	}})
	p.server.objects["pods"] = objects{object("p")}

	report, requests := p.pass(t, now)
	p.g.Expect(requests).To(ConsistOf("list configmaps", "list pods", "list widgets", "get namespace x",
		"delete pods/p of p-uid, Background", "list pods", "delete widgets/w of w-uid, Background", "list widgets"))
	p.g.Expect(report.ConfirmedEmpty).To(BeFalse())

	// No Pods remain, and the terminating widget is not deleted again. The ConfigMap waits.
	report, requests = p.pass(t, now)
	p.g.Expect(requests).To(Equal([]string{"list configmaps", "list widgets"}))
	p.g.Expect(report.ConfirmedEmpty).To(BeFalse())

	p.server.objects["widgets"] = nil
	report, requests = p.pass(t, now)
	p.g.Expect(requests).To(ConsistOf("list configmaps", "list widgets", "get namespace x",
		"delete configmaps/c of c-uid, Background", "list configmaps", "list configmaps", "list pods", "list widgets"))
	p.g.Expect(report.ConfirmedEmpty).To(BeTrue())
}

// A request that was admitted before the deletion might have been delayed.
func TestPassFindsObjectsCreatedAfterTheFullPass(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{"widgets": {object("w", "example.com/hold")}}})
	p.pass(t, now)
	p.server.objects["widgets"], p.server.objects["configmaps"] = nil, objects{object("late", "example.com/hold")}
	report, requests := p.pass(t, now)
	p.g.Expect(requests).To(ContainElement("delete configmaps/late of late-uid, Background"))
	p.g.Expect(report.ConfirmedEmpty).To(BeFalse())
	p.server.objects["configmaps"] = nil
	report, _ = p.pass(t, now)
	p.g.Expect(report.ConfirmedEmpty).To(BeTrue())
}

// Until the grace period ends, objects can be created, even of a type that was empty.
func TestPassConfirmsNothingBeforeTheGracePeriodEnds(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{}})
	report, requests := p.pass(t, later)
	p.g.Expect(requests).To(Equal(listEachType))
	p.g.Expect(report.IsClean()).To(BeTrue())
	p.g.Expect(report.ConfirmedEmpty).To(BeFalse())
	_, requests = p.pass(t, later)
	p.g.Expect(requests).To(Equal([]string{"list pods"}))

	p.server.objects["widgets"] = objects{object("late", "example.com/hold")}
	gracePeriodEnd := p.server.clock.Now()
	report, requests = p.pass(t, gracePeriodEnd)
	p.g.Expect(requests).To(ContainElements(listEachType))
	p.g.Expect(report.Remaining).To(HaveLen(1))
	p.g.Expect(report.ConfirmedEmpty).To(BeFalse())
	p.g.Expect(p.api.count).To(Equal(2)) // The first discovery was also too early.

	p.server.objects["widgets"] = nil
	report, requests = p.pass(t, gracePeriodEnd)
	p.g.Expect(requests).To(ConsistOf("list widgets", "list configmaps", "list pods", "list widgets"))
	p.g.Expect(report.ConfirmedEmpty).To(BeTrue())
}

// No other object is deleted while a Pod exists. Until the grace period ends, a Pod can be created after
// the full pass.
func TestPassFindsNewPodsBeforeTheGracePeriodEnds(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{
		"widgets": {object("w", "example.com/hold")}, "configmaps": {object("c")},
	}})
	p.pass(t, later)
	p.server.objects["widgets"], p.server.objects["pods"] = nil, objects{deleted(later, "late")}
	report, requests := p.pass(t, later)
	p.g.Expect(requests).To(Equal(listEachType))
	p.g.Expect(report.WaitReason).To(Equal(waitForPods))
}

// cachedLister returns the empty result of an earlier request for another namespace if that request is
// recent enough.
type cachedLister struct {
	lister
	requestedAt time.Time
}

func (l *cachedLister) List(
	ctx context.Context, namespace string, types []schema.GroupVersionResource, notBefore time.Time,
) ([]*sharedlist.Result, error) {
	if l.requestedAt.Before(notBefore) {
		return l.lister.List(ctx, namespace, types, notBefore)
	}
	var results []*sharedlist.Result
	for range types {
		results = append(results, &sharedlist.Result{
			Page: &metav1.PartialObjectMetadataList{}, ListedAt: l.requestedAt.Add(5 * time.Millisecond),
		})
	}
	return results, nil
}

// Lists for other namespaces confirm that a namespace is empty if they were requested after the grace
// period. The time of the response does not matter.
func TestPassUsesListsOfOtherNamespaces(t *testing.T) {
	tests := map[string]struct {
		// requested is the time of the list requests, relative to the end of the grace period.
		requested time.Duration
		want      []string
		wantEmpty bool
	}{
		"requested shortly before the grace period ended": {requested: -1, want: listEachType},
		"requested when the grace period ended":           {requested: 0, wantEmpty: true},
		"requested after the grace period":                {requested: time.Millisecond, wantEmpty: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPasses(t, &contentServer{objects: map[string]objects{"widgets": {deleted(now, "w", "example.com/hold")}}})
			gracePeriodEnd := p.server.clock.Now().Add(time.Second)
			p.server.clock.advance(time.Second + 10*time.Millisecond)
			p.deleter.lister = &cachedLister{lister: p.deleter.lister, requestedAt: gracePeriodEnd.Add(test.requested)}
			report, requests := p.pass(t, gracePeriodEnd)
			p.g.Expect(requests).To(Equal(test.want))
			p.g.Expect(report.ConfirmedEmpty).To(Equal(test.wantEmpty))
		})
	}
}

func TestNeedsFullPass(t *testing.T) {
	gracePeriodEnd := now.Add(time.Second)
	tests := map[string]struct {
		state              contentState
		isAfterGracePeriod bool
		// changed is the time of the last change of the resource types.
		changed time.Time
		want    bool
	}{
		"no earlier pass":                                     {want: true},
		"no earlier pass, after the grace period":             {isAfterGracePeriod: true, want: true},
		"a full pass before the grace period ends":            {state: contentState{resources: &ResourceSet{requestedAt: now}}},
		"the grace period has ended since the last full pass": {state: contentState{resources: &ResourceSet{requestedAt: now}}, isAfterGracePeriod: true, want: true},
		"a full pass after the grace period": {
			state: contentState{resources: &ResourceSet{requestedAt: now}, isAfterGracePeriod: true, gracePeriodEnd: gracePeriodEnd}, isAfterGracePeriod: true,
		},
		"the grace period is longer and has not ended": {
			state: contentState{resources: &ResourceSet{requestedAt: now}, isAfterGracePeriod: true, gracePeriodEnd: now}, want: true,
		},
		"the grace period is longer and has ended": {
			state:              contentState{resources: &ResourceSet{requestedAt: now}, isAfterGracePeriod: true, gracePeriodEnd: gracePeriodEnd.Add(-1)},
			isAfterGracePeriod: true, want: true,
		},
		"the grace period is shorter": {
			state:              contentState{resources: &ResourceSet{requestedAt: now}, isAfterGracePeriod: true, gracePeriodEnd: gracePeriodEnd.Add(time.Second)},
			isAfterGracePeriod: true,
		},
		"the clock was set back": {
			state: contentState{resources: &ResourceSet{requestedAt: now}, isAfterGracePeriod: true, gracePeriodEnd: gracePeriodEnd}, want: true,
		},
		"the last pass was interrupted": {
			state:              contentState{resources: &ResourceSet{requestedAt: now}, isAfterGracePeriod: true, gracePeriodEnd: gracePeriodEnd, isInterrupted: true},
			isAfterGracePeriod: true, want: true,
		},
		"discovery failed": {
			state:              contentState{resources: &ResourceSet{requestedAt: now, DiscoveryError: errOutage}, isAfterGracePeriod: true, gracePeriodEnd: gracePeriodEnd},
			isAfterGracePeriod: true, want: true,
		},
		"a group version could not be parsed": {
			state:              contentState{resources: &ResourceSet{requestedAt: now, ParseError: errOutage}, isAfterGracePeriod: true, gracePeriodEnd: gracePeriodEnd},
			isAfterGracePeriod: true, want: true,
		},
		"a type changed before the last full pass": {
			state: contentState{resources: &ResourceSet{requestedAt: now}}, changed: now.Add(-1),
		},
		"a type changed after the last full pass": {
			state: contentState{resources: &ResourceSet{requestedAt: now}}, changed: now, want: true,
		},
		"a type changed after the last full pass, after the grace period": {
			state:              contentState{resources: &ResourceSet{requestedAt: now}, isAfterGracePeriod: true, gracePeriodEnd: gracePeriodEnd},
			isAfterGracePeriod: true, changed: now, want: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cache := &discoveryCache{changedAt: test.changed}
			NewWithT(t).Expect(test.state.needsFullPass(test.isAfterGracePeriod, gracePeriodEnd, cache)).To(Equal(test.want))
		})
	}
}

// Each pass chooses the grace period again, because an API server may have been added.
func TestPassListsAllTypesAfterALongerGracePeriod(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{"widgets": {object("w", "example.com/hold")}}})
	_, requests := p.pass(t, now)
	p.g.Expect(requests).To(ContainElements(listEachType))
	// The grace period is now longer and has ended. In the meantime, another API server has admitted the
	// creation of an object.
	p.server.objects["widgets"], p.server.objects["configmaps"] = nil, objects{object("late", "example.com/hold")}
	report, requests := p.pass(t, p.server.clock.Now())
	p.g.Expect(requests).To(ContainElements(listEachType))
	p.g.Expect(report.ConfirmedEmpty).To(BeFalse())
}

func TestPassListsAllTypesAfterATypeChange(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{"widgets": {deleted(now, "w", "example.com/hold")}}})
	p.pass(t, now)
	p.api.results = []discoveryResult{{lists: served(append(ordinary, "example.com/v1/gadgets")...)}}
	p.deleter.cache.invalidate()
	p.server.objects["widgets"], p.server.objects["gadgets"] = nil, objects{deleted(now, "g", "example.com/hold")}
	report, requests := p.pass(t, now)
	p.g.Expect(requests).To(ConsistOf("list configmaps", "list pods", "list widgets", "list gadgets"))
	p.g.Expect(report.ConfirmedEmpty).To(BeFalse())
}

func TestPassListsAllTypesAfterAFailedDiscovery(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{"widgets": {deleted(now, "w", "example.com/hold")}}})
	p.api.results = []discoveryResult{{lists: served("v1/pods"), err: errOutage}, {lists: served(ordinary...)}}
	report, requests := p.pass(t, now)
	p.g.Expect(requests).To(Equal([]string{"list pods"}))
	p.g.Expect(report.ConfirmedEmpty).To(BeFalse())
	report, requests = p.pass(t, now)
	p.g.Expect(requests).To(Equal(listEachType))
	p.g.Expect(report.ConfirmedEmpty).To(BeFalse())
}

// A type with remaining objects is not treated as empty when it is no longer served. As in a full pass,
// another discovery must confirm that the type was removed.
func TestPassRediscoversAfterATypeIsNotServed(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{"widgets": {deleted(now, "w", "example.com/hold")}}})
	p.pass(t, now)
	p.server.fail("list widgets", errNotFound)
	report, requests := p.pass(t, now)
	p.g.Expect(requests).To(Equal([]string{"list widgets"}))
	p.g.Expect(report.ConfirmedEmpty).To(BeFalse())
	p.g.Expect(report.Incomplete).To(BeTrue())

	// The type was unavailable only for a short time.
	p.server.fail("list widgets", nil)
	report, requests = p.pass(t, now)
	p.g.Expect(requests).To(Equal(listEachType))
	p.g.Expect(p.api.count).To(Equal(2))
	p.g.Expect(report.ConfirmedEmpty).To(BeFalse())

	// The type is permanently unavailable although discovery returns it. It is treated as empty.
	p.server.fail("list widgets", errNotFound)
	p.pass(t, now)
	report, _ = p.pass(t, now)
	p.g.Expect(report.ConfirmedEmpty).To(BeTrue())
}

// A type that discovery returns but that is not served does not cause repeated discoveries while the
// namespace waits for other objects.
func TestContentStateRemembersThatATypeIsNotServed(t *testing.T) {
	p := newPasses(t, &contentServer{
		objects: map[string]objects{"configmaps": {deleted(now, "c", "example.com/hold")}},
		errors:  map[string]error{"list widgets": errNotFound},
	})
	for range 3 {
		report, _ := p.pass(t, now)
		p.g.Expect(report.Incomplete).To(BeFalse())
		p.g.Expect(report.Remaining).To(HaveLen(1))
	}
	p.g.Expect(p.api.count).To(Equal(2)) // The first pass repeats discovery to confirm that it is not stale.
	p.server.objects["configmaps"] = nil
	report, _ := p.pass(t, now)
	p.g.Expect(report.ConfirmedEmpty).To(BeTrue())
}

// An interrupted pass may have counted only some objects of a type.
func TestContentStateOfAnInterruptedPass(t *testing.T) {
	tests := map[string]struct {
		// last is the number of list requests for widgets after which the pass is interrupted.
		last int
		// isSecond reports whether the interrupted pass is the second one.
		isSecond bool
	}{
		"while counting remaining objects":              {last: 2},
		"while listing objects, second pass":            {last: 1, isSecond: true},
		"while counting remaining objects, second pass": {last: 2, isSecond: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPasses(t, &contentServer{objects: map[string]objects{"widgets": {object("w", "example.com/hold")}}})
			if test.isSecond {
				p.pass(t, now)
				p.server.objects["widgets"] = append(p.server.objects["widgets"], object("v", "example.com/hold"))
			}
			ctx, cancel := context.WithCancel(t.Context())
			lists := 0
			p.server.hooks = map[string]func(){"list widgets": func() {
				if lists++; lists == test.last {
					cancel()
				}
			}}
			_, err := p.deleter.deleteContent(ctx, terminating(), now, now, p.state)
			p.g.Expect(err).To(MatchError(context.Canceled))
			report, _ := p.pass(t, now)
			p.g.Expect(report.Remaining).NotTo(BeEmpty())
			p.g.Expect(report.ConfirmedEmpty).To(BeFalse())
		})
	}
}

func TestComputeNotBefore(t *testing.T) {
	firstSeen, gracePeriodEnd, startedAt := now, now.Add(time.Second), now.Add(time.Minute)
	passed := func(isAfterGracePeriod bool, change func(*typeState)) contentState {
		state := &typeState{Remaining: Remaining{Type: widgetsType}}
		change(state)
		return contentState{resources: &ResourceSet{}, isAfterGracePeriod: isAfterGracePeriod, gracePeriodEnd: gracePeriodEnd, types: []*typeState{
			{Remaining: Remaining{Type: podsType}}, state,
		}}
	}
	nothing := func(*typeState) {}
	tests := map[string]struct {
		state                    contentState
		isAfterGracePeriod       bool
		wantDiscovery, wantLists time.Time
	}{
		"the first pass":                            {wantLists: firstSeen},
		"the first pass, after the grace period":    {isAfterGracePeriod: true, wantDiscovery: gracePeriodEnd, wantLists: gracePeriodEnd},
		"a later pass before the grace period ends": {state: passed(false, nothing), wantLists: startedAt},
		"the grace period is longer":                {state: passed(true, nothing), wantLists: startedAt},
		"after the grace period, and no object remained": {
			state: passed(false, nothing), isAfterGracePeriod: true, wantDiscovery: gracePeriodEnd, wantLists: gracePeriodEnd,
		},
		"a later pass after the grace period": {
			state: passed(true, nothing), isAfterGracePeriod: true, wantDiscovery: gracePeriodEnd, wantLists: startedAt,
		},
	}
	for name, change := range map[string]func(*typeState){
		"objects remain":               func(s *typeState) { s.Count = 1 },
		"objects may remain":           func(s *typeState) { s.isUncounted = true },
		"objects are unprocessed":      func(s *typeState) { s.isIncomplete = true },
		"a type is not served":         func(s *typeState) { s.isNotServed = true },
		"a list request failed":        func(s *typeState) { s.listError = errOutage },
		"a deletion failed":            func(s *typeState) { s.deleteError = errOutage },
		"a type does not support list": func(s *typeState) { s.Type.CanList = false },
	} {
		test := tests["a later pass after the grace period"]
		test.state = passed(false, change)
		tests["after the grace period, and "+name] = test
	}
	// A type that was only partially counted can appear to be empty.
	interrupted := tests["a later pass after the grace period"]
	interrupted.state = passed(false, nothing)
	interrupted.state.isInterrupted = true
	tests["after the grace period, and the last pass was interrupted"] = interrupted
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			discovery, lists := test.state.computeNotBefore(test.isAfterGracePeriod, firstSeen, gracePeriodEnd, startedAt)
			g.Expect(discovery).To(Equal(test.wantDiscovery))
			g.Expect(lists).To(Equal(test.wantLists))
		})
	}
}

func TestCanAssumeDeleted(t *testing.T) {
	tests := map[string]struct {
		change func(*typeState)
		want   bool
	}{
		"all objects were deleted": {change: func(*typeState) {}, want: true},
		"pods":                     {change: func(s *typeState) { s.Type = podsType }},
		"a type in another stage":  {change: func(s *typeState) { s.Type = widgetsType }},
		"configmaps in another group": {
			change: func(s *typeState) { s.Type = resourceType("metrics.example.com", "v1", "configmaps") },
		},
		"a type of an aggregated API server": {change: func(s *typeState) { s.Type.IsAggregated = true }},
		"objects with finalizers":            {change: func(s *typeState) { s.Finalizers = map[string]int{"f": 1} }},
		"terminating objects":                {change: func(s *typeState) { s.Terminating = 1 }},
		"a deletion failed":                  {change: func(s *typeState) { s.deleteError = errForbidden }},
		"the budget was exhausted":           {change: func(s *typeState) { s.isIncomplete = true }},
		"the first page was empty":           {change: func(s *typeState) { s.isUncounted = true }},
		"there were more pages":              {change: func(s *typeState) { s.Count = 3 }},
		"there were more pages with an unknown number of objects": {
			change: func(s *typeState) { s.page.Continue = "2" },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			state := &typeState{
				Remaining: Remaining{Type: resourceType("", "v1", "configmaps"), Count: 2, Listed: 2}, page: &metav1.PartialObjectMetadataList{},
			}
			test.change(state)
			NewWithT(t).Expect(state.canAssumeDeleted()).To(Equal(test.want))
		})
	}
}

// Until the grace period ends, the assumption saves a list request. After the grace period, the list is
// needed to confirm that the namespace is empty.
func TestPassAssumesDeletionOnlyInTheGracePeriod(t *testing.T) {
	tests := map[string]struct {
		gracePeriodEnd time.Time
		object         metav1.PartialObjectMetadata
		want           []string
		wantClean      bool
	}{
		"before the grace period ends": {
			gracePeriodEnd: later, object: object("w"), wantClean: true,
			want: []string{"list configmaps", "get namespace x", "delete configmaps/w of w-uid, Background"},
		},
		"after the grace period": {
			gracePeriodEnd: now, object: object("w"), wantClean: true,
			want: []string{"list configmaps", "get namespace x", "delete configmaps/w of w-uid, Background", "list configmaps"},
		},
		"before the grace period ends, with a finalizer": {
			gracePeriodEnd: later, object: object("w", "example.com/hold"),
			want: []string{"list configmaps", "get namespace x", "delete configmaps/w of w-uid, Background", "list configmaps"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &contentServer{objects: map[string]objects{"configmaps": {test.object}}}
			deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, "v1/configmaps")
			report, err := deleter.deleteContent(t.Context(), terminating(), now, test.gracePeriodEnd, &contentState{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(server.log).To(Equal(test.want))
			g.Expect(report.IsClean()).To(Equal(test.wantClean))
		})
	}
}

// An aggregated API server may delete an object later. In this case, a list after the grace period still
// returns the object.
func TestPassListsTypesThatItAssumedDeleted(t *testing.T) {
	p := newPasses(t, &contentServer{
		objects: map[string]objects{"configmaps": {object("c")}}, grace: map[string]time.Duration{"configmaps": time.Minute},
	})
	report, _ := p.pass(t, later)
	p.g.Expect(report.IsClean()).To(BeTrue())
	report, requests := p.pass(t, p.server.clock.Now())
	p.g.Expect(requests).To(Equal(listEachType))
	p.g.Expect(report.Remaining).To(HaveLen(1))
	p.g.Expect(report.ConfirmedEmpty).To(BeFalse())
}

// The next pass lists only the type whose list request failed.
func TestContentStateRepeatsFailedLists(t *testing.T) {
	for name, err := range map[string]error{
		"an outage": errOutage, "a rejection": errForbidden, "a timeout": apierrors.NewTimeoutError("too slow", 1),
	} {
		t.Run(name, func(t *testing.T) {
			p := newPasses(t, &contentServer{errors: map[string]error{"list widgets": err}})
			report, _ := p.pass(t, now)
			p.g.Expect(report.ConfirmedEmpty).To(BeFalse())
			report, requests := p.pass(t, now)
			p.g.Expect(requests).To(Equal([]string{"list widgets"}))
			p.g.Expect(report.ConfirmedEmpty).To(BeFalse())
			p.server.fail("list widgets", nil)
			report, _ = p.pass(t, now)
			p.g.Expect(report.ConfirmedEmpty).To(BeTrue())
		})
	}
}
