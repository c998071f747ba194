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
)

// passes are passes over one Namespace that share a Ledger.
type passes struct {
	g       *WithT
	server  *contentServer
	deleter *Deleter
	api     *discoverer
	ledger  *Ledger
}

func newPasses(t *testing.T, server *contentServer) *passes {
	t.Helper()
	p := &passes{g: NewWithT(t), server: server, ledger: &Ledger{}}
	p.deleter, p.api = newDeleter(server, &namespaceReader{namespace: terminating()}, ordinary...)
	return p
}

// pass makes one, and returns what was asked meanwhile, sorted.
func (p *passes) pass(t *testing.T, settledAt time.Time) (*Report, []string) {
	t.Helper()
	p.server.log = nil
	report, err := p.deleter.Pass(t.Context(), terminating(), now, settledAt, p.ledger)
	p.g.Expect(err).NotTo(HaveOccurred())
	requests := p.server.recorded("")
	slices.Sort(requests)
	return report, requests
}

var (
	later        = now.Add(time.Hour)
	listEachType = []string{"list configmaps", "list pods", "list widgets"}
)

// Only what is left is looked at, until nothing is: then everything is once more.
func TestLedgerKeepsWhatIsKnown(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{
		"widgets": {object("w", "example.com/hold")}, "configmaps": {object("c")},
	}})
	p.server.objects["pods"] = objects{object("p")}

	report, requests := p.pass(t, now)
	p.g.Expect(requests).To(ConsistOf("list configmaps", "list pods", "list widgets", "get namespace x",
		"delete pods/p of p-uid, Background", "list pods", "delete widgets/w of w-uid, Background", "list widgets"))
	p.g.Expect(report.IsProof).To(BeFalse())

	// Pods were found empty, and what was deleted is not deleted again. ConfigMaps wait.
	report, requests = p.pass(t, now)
	p.g.Expect(requests).To(Equal([]string{"list configmaps", "list widgets"}))
	p.g.Expect(report.IsProof).To(BeFalse())

	p.server.objects["widgets"] = nil
	report, requests = p.pass(t, now)
	p.g.Expect(requests).To(ConsistOf("list configmaps", "list widgets", "get namespace x",
		"delete configmaps/c of c-uid, Background", "list configmaps", "list configmaps", "list pods", "list widgets"))
	p.g.Expect(report.IsProof).To(BeTrue())
}

// A request that was accepted before the deletion may have been held for long.
func TestLedgerDoesNotMissWhatComesAfterTheSurvey(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{"widgets": {object("w", "example.com/hold")}}})
	p.pass(t, now)
	p.server.objects["widgets"], p.server.objects["configmaps"] = nil, objects{object("late", "example.com/hold")}
	report, requests := p.pass(t, now)
	p.g.Expect(requests).To(ContainElement("delete configmaps/late of late-uid, Background"))
	p.g.Expect(report.IsProof).To(BeFalse())
	p.server.objects["configmaps"] = nil
	report, _ = p.pass(t, now)
	p.g.Expect(report.IsProof).To(BeTrue())
}

// What was found empty before may have got something since.
func TestLedgerProvesNothingBeforeTheSettlingTime(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{}})
	report, requests := p.pass(t, later)
	p.g.Expect(requests).To(Equal(listEachType))
	p.g.Expect(report.IsClean()).To(BeTrue())
	p.g.Expect(report.IsProof).To(BeFalse())
	_, requests = p.pass(t, later)
	p.g.Expect(requests).To(Equal([]string{"list pods"}))

	p.server.objects["widgets"] = objects{object("late", "example.com/hold")}
	settledAt := p.server.clock.Now()
	report, requests = p.pass(t, settledAt)
	p.g.Expect(requests).To(ContainElements(listEachType))
	p.g.Expect(report.Remaining).To(HaveLen(1))
	p.g.Expect(report.IsProof).To(BeFalse())
	p.g.Expect(p.api.count).To(Equal(2)) // The first discovery was before, too.

	p.server.objects["widgets"] = nil
	report, requests = p.pass(t, settledAt)
	p.g.Expect(requests).To(ConsistOf("list widgets", "list configmaps", "list pods", "list widgets"))
	p.g.Expect(report.IsProof).To(BeTrue())
}

// Nothing else goes while there is a pod, and before the settling time one may come that
// the survey has not seen.
func TestLedgerDoesNotMissAPodThatComes(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{
		"widgets": {object("w", "example.com/hold")}, "configmaps": {object("c")},
	}})
	p.pass(t, later)
	p.server.objects["widgets"], p.server.objects["pods"] = nil, objects{deleted(later, "late")}
	report, requests := p.pass(t, later)
	p.g.Expect(requests).To(Equal(listEachType))
	p.g.Expect(report.Wait).To(Equal(waitForPods))
}

// Answers that were given to others are a proof if they were asked for after the settling
// time, and not if they came after it.
func TestLedgerTakesAnswersOfOthers(t *testing.T) {
	tests := map[string]struct {
		// asked is when others asked, counted from when the namespace had settled.
		asked     time.Duration
		want      []string
		wantProof bool
	}{
		"the moment before": {asked: -1, want: listEachType},
		"at that moment":    {asked: 0, wantProof: true},
		"later":             {asked: time.Millisecond, wantProof: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// The others were told that nothing is there.
			p := newPasses(t, &contentServer{objects: map[string]objects{"widgets": {deleted(now, "w", "example.com/hold")}}})
			settledAt := p.server.clock.Now().Add(time.Second)
			p.server.clock.advance(time.Second + 10*time.Millisecond)
			p.deleter.surveyor.answers = map[ResourceType]*clusterAnswer{}
			for _, resourceType := range []ResourceType{podsType, configMapsType, widgetsType} {
				answer := &clusterAnswer{asked: settledAt.Add(test.asked)}
				answer.finish("1", settledAt.Add(5*time.Millisecond))
				p.deleter.surveyor.answers[resourceType] = answer
			}
			report, requests := p.pass(t, settledAt)
			p.g.Expect(requests).To(Equal(test.want))
			p.g.Expect(report.IsProof).To(Equal(test.wantProof))
		})
	}
}

func TestLedgerNeedsSurvey(t *testing.T) {
	settledAt := now.Add(time.Second)
	tests := map[string]struct {
		ledger    Ledger
		isSettled bool
		// changed is when a type may have come or gone.
		changed time.Time
		want    bool
	}{
		"nothing is known":          {want: true},
		"nothing is known, settled": {isSettled: true, want: true},
		"surveyed, and not settled": {ledger: Ledger{inventory: &Inventory{began: now}}},
		"settled since":             {ledger: Ledger{inventory: &Inventory{began: now}}, isSettled: true, want: true},
		"surveyed when it had settled": {
			ledger: Ledger{inventory: &Inventory{began: now}, isProof: true, settledAt: settledAt}, isSettled: true,
		},
		"the settling time has grown, and is not over": {
			ledger: Ledger{inventory: &Inventory{began: now}, isProof: true, settledAt: now}, want: true,
		},
		"the settling time has grown, and is over": {
			ledger:    Ledger{inventory: &Inventory{began: now}, isProof: true, settledAt: settledAt.Add(-1)},
			isSettled: true, want: true,
		},
		"the settling time has become shorter": {
			ledger:    Ledger{inventory: &Inventory{began: now}, isProof: true, settledAt: settledAt.Add(time.Second)},
			isSettled: true,
		},
		"the clock was set back": {
			ledger: Ledger{inventory: &Inventory{began: now}, isProof: true, settledAt: settledAt}, want: true,
		},
		"the last pass was cut short": {
			ledger:    Ledger{inventory: &Inventory{began: now}, isProof: true, settledAt: settledAt, isCutShort: true},
			isSettled: true, want: true,
		},
		"discovery failed": {
			ledger:    Ledger{inventory: &Inventory{began: now, DiscoveryError: errOutage}, isProof: true, settledAt: settledAt},
			isSettled: true, want: true,
		},
		"a group version could not be parsed": {
			ledger:    Ledger{inventory: &Inventory{began: now, ParseError: errOutage}, isProof: true, settledAt: settledAt},
			isSettled: true, want: true,
		},
		"a type came or went before": {
			ledger: Ledger{inventory: &Inventory{began: now}}, changed: now.Add(-1),
		},
		"a type has come or gone": {
			ledger: Ledger{inventory: &Inventory{began: now}}, changed: now, want: true,
		},
		"a type has come or gone, settled": {
			ledger:    Ledger{inventory: &Inventory{began: now}, isProof: true, settledAt: settledAt},
			isSettled: true, changed: now, want: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			catalog := &Catalog{changed: test.changed}
			NewWithT(t).Expect(test.ledger.needsSurvey(test.isSettled, settledAt, catalog)).To(Equal(test.want))
		})
	}
}

// The settling time is chosen anew at each pass: an API server may have come.
func TestLedgerDoesNotOutliveItsSettlingTime(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{"widgets": {object("w", "example.com/hold")}}})
	_, requests := p.pass(t, now)
	p.g.Expect(requests).To(ContainElements(listEachType))
	// It is longer now, and over. Meanwhile another API server has created something.
	p.server.objects["widgets"], p.server.objects["configmaps"] = nil, objects{object("late", "example.com/hold")}
	report, requests := p.pass(t, p.server.clock.Now())
	p.g.Expect(requests).To(ContainElements(listEachType))
	p.g.Expect(report.IsProof).To(BeFalse())
}

func TestLedgerLooksAtEverythingWhenTypesChange(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{"widgets": {deleted(now, "w", "example.com/hold")}}})
	p.pass(t, now)
	p.api.answers = []discoveryAnswer{{lists: served(append(ordinary, "example.com/v1/gadgets")...)}}
	p.deleter.catalog.Invalidate()
	p.server.objects["widgets"], p.server.objects["gadgets"] = nil, objects{deleted(now, "g", "example.com/hold")}
	report, requests := p.pass(t, now)
	p.g.Expect(requests).To(ConsistOf("list configmaps", "list pods", "list widgets", "list gadgets"))
	p.g.Expect(report.IsProof).To(BeFalse())
}

func TestLedgerLooksAtEverythingWhereDiscoveryFailed(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{"widgets": {deleted(now, "w", "example.com/hold")}}})
	p.api.answers = []discoveryAnswer{{lists: served("v1/pods"), err: errOutage}, {lists: served(ordinary...)}}
	report, requests := p.pass(t, now)
	p.g.Expect(requests).To(Equal([]string{"list pods"}))
	p.g.Expect(report.IsProof).To(BeFalse())
	report, requests = p.pass(t, now)
	p.g.Expect(requests).To(Equal(listEachType))
	p.g.Expect(report.IsProof).To(BeFalse())
}

// A type of which something was left and that is not served all at once is no empty one.
// Only discovery can tell, as in a survey.
func TestLedgerMeetsATypeThatIsNotServed(t *testing.T) {
	p := newPasses(t, &contentServer{objects: map[string]objects{"widgets": {deleted(now, "w", "example.com/hold")}}})
	p.pass(t, now)
	p.server.fail("list widgets", errNotFound)
	report, requests := p.pass(t, now)
	p.g.Expect(requests).To(Equal([]string{"list widgets"}))
	p.g.Expect(report.IsProof).To(BeFalse())
	p.g.Expect(report.HasMore).To(BeTrue())

	// It was away for a moment.
	p.server.fail("list widgets", nil)
	report, requests = p.pass(t, now)
	p.g.Expect(requests).To(Equal(listEachType))
	p.g.Expect(p.api.count).To(Equal(2))
	p.g.Expect(report.IsProof).To(BeFalse())

	// It is away for good, though discovery has it: it counts as empty.
	p.server.fail("list widgets", errNotFound)
	p.pass(t, now)
	report, _ = p.pass(t, now)
	p.g.Expect(report.IsProof).To(BeTrue())
}

// What discovery has and nobody serves is no reason to discover again and again while
// something else is waited for.
func TestLedgerRemembersThatATypeIsNotServed(t *testing.T) {
	p := newPasses(t, &contentServer{
		objects: map[string]objects{"configmaps": {deleted(now, "c", "example.com/hold")}},
		errors:  map[string]error{"list widgets": errNotFound},
	})
	for range 3 {
		report, _ := p.pass(t, now)
		p.g.Expect(report.HasMore).To(BeFalse())
		p.g.Expect(report.Remaining).To(HaveLen(1))
	}
	p.g.Expect(p.api.count).To(Equal(2)) // In the first pass, to be sure.
	p.server.objects["configmaps"] = nil
	report, _ := p.pass(t, now)
	p.g.Expect(report.IsProof).To(BeTrue())
}

// A pass that ends in the middle has counted some types in part.
func TestLedgerOfAPassThatWasCutShort(t *testing.T) {
	tests := map[string]struct {
		// last is after which list of widgets the pass ends.
		last int
		// isKnown says that there was a pass before.
		isKnown bool
	}{
		"while it counts what is left":      {last: 2},
		"while it looks again":              {last: 1, isKnown: true},
		"while it counts what is left then": {last: 2, isKnown: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPasses(t, &contentServer{objects: map[string]objects{"widgets": {object("w", "example.com/hold")}}})
			if test.isKnown {
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
			_, err := p.deleter.Pass(ctx, terminating(), now, now, p.ledger)
			p.g.Expect(err).To(MatchError(context.Canceled))
			report, _ := p.pass(t, now)
			p.g.Expect(report.Remaining).NotTo(BeEmpty())
			p.g.Expect(report.IsProof).To(BeFalse())
		})
	}
}

func TestAnswersFrom(t *testing.T) {
	seenAt, settledAt, began := now, now.Add(time.Second), now.Add(time.Minute)
	surveyed := func(isProof bool, change func(*typeState)) Ledger {
		state := &typeState{Remaining: Remaining{Type: widgetsType}}
		change(state)
		return Ledger{inventory: &Inventory{}, isProof: isProof, settledAt: settledAt, types: []*typeState{
			{Remaining: Remaining{Type: podsType}}, state,
		}}
	}
	nothing := func(*typeState) {}
	tests := map[string]struct {
		ledger                    Ledger
		isSettled                 bool
		wantDiscovered, wantAsked time.Time
	}{
		"the first pass":                  {wantAsked: seenAt},
		"the first pass, settled already": {isSettled: true, wantDiscovered: settledAt, wantAsked: settledAt},
		"again before it has settled":     {ledger: surveyed(false, nothing), wantAsked: began},
		"the settling time has grown":     {ledger: surveyed(true, nothing), wantAsked: began},
		"settled, and nothing was left": {
			ledger: surveyed(false, nothing), isSettled: true, wantDiscovered: settledAt, wantAsked: settledAt,
		},
		"again after it has settled": {
			ledger: surveyed(true, nothing), isSettled: true, wantDiscovered: settledAt, wantAsked: began,
		},
	}
	for name, change := range map[string]func(*typeState){
		"objects":                      func(s *typeState) { s.Count = 1 },
		"maybe something":              func(s *typeState) { s.isUncounted = true },
		"more to do":                   func(s *typeState) { s.hasMore = true },
		"a type that is not served":    func(s *typeState) { s.isNotServed = true },
		"a type that cannot be known":  func(s *typeState) { s.listError = errOutage },
		"a deletion that failed":       func(s *typeState) { s.deleteError = errOutage },
		"a type that cannot be listed": func(s *typeState) { s.Type.CanList = false },
	} {
		test := tests["again after it has settled"]
		test.ledger = surveyed(false, change)
		tests["settled, and what was left is "+name] = test
	}
	// What it has counted in part looks empty.
	cutShort := tests["again after it has settled"]
	cutShort.ledger = surveyed(false, nothing)
	cutShort.ledger.isCutShort = true
	tests["settled, and the last pass was cut short"] = cutShort
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			discovered, asked := test.ledger.answersFrom(test.isSettled, seenAt, settledAt, began)
			g.Expect(discovered).To(Equal(test.wantDiscovered))
			g.Expect(asked).To(Equal(test.wantAsked))
		})
	}
}

func TestIsPresumedGone(t *testing.T) {
	tests := map[string]struct {
		change func(*typeState)
		want   bool
	}{
		"deleted, and nothing holds it":  {change: func(*typeState) {}, want: true},
		"pods have a grace period":       {change: func(s *typeState) { s.Type = podsType }},
		"others may need the last stage": {change: func(s *typeState) { s.Type = widgetsType }},
		"configmaps of another group are not in it": {
			change: func(s *typeState) { s.Type = resourceType("metrics.example.com", "v1", "configmaps") },
		},
		"something has a finalizer": {change: func(s *typeState) { s.Finalizers = map[string]int{"f": 1} }},
		"something goes already":    {change: func(s *typeState) { s.Terminating = 1 }},
		"a deletion failed":         {change: func(s *typeState) { s.deleteError = errForbidden }},
		"there was no time":         {change: func(s *typeState) { s.hasMore = true }},
		"the first page was empty":  {change: func(s *typeState) { s.isUncounted = true }},
		"there were more pages":     {change: func(s *typeState) { s.Count = 3 }},
		"there were more pages, and nobody said how much is on them": {
			change: func(s *typeState) { s.page.Continue = "2" },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			state := &typeState{
				Remaining: Remaining{Type: resourceType("", "v1", "configmaps"), Count: 2, Seen: 2}, page: &metav1.PartialObjectMetadataList{},
			}
			test.change(state)
			NewWithT(t).Expect(state.isPresumedGone()).To(Equal(test.want))
		})
	}
}

// Before the settling time it saves a request to believe the API server; after it, it
// would be a proof without a look.
func TestPassPresumesBeforeTheSettlingTimeOnly(t *testing.T) {
	tests := map[string]struct {
		settledAt time.Time
		object    metav1.PartialObjectMetadata
		want      []string
		wantClean bool
	}{
		"not settled": {
			settledAt: later, object: object("w"), wantClean: true,
			want: []string{"list configmaps", "get namespace x", "delete configmaps/w of w-uid, Background"},
		},
		"settled": {
			settledAt: now, object: object("w"), wantClean: true,
			want: []string{"list configmaps", "get namespace x", "delete configmaps/w of w-uid, Background", "list configmaps"},
		},
		"not settled, and held": {
			settledAt: later, object: object("w", "example.com/hold"),
			want: []string{"list configmaps", "get namespace x", "delete configmaps/w of w-uid, Background", "list configmaps"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &contentServer{objects: map[string]objects{"configmaps": {test.object}}}
			deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, "v1/configmaps")
			report, err := deleter.Pass(t.Context(), terminating(), now, test.settledAt, &Ledger{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(server.log).To(Equal(test.want))
			g.Expect(report.IsClean()).To(Equal(test.wantClean))
		})
	}
}

// What an object of an API server of its own kind does after a DELETE is seen when the
// namespace has settled.
func TestPassLooksAgainAtWhatItPresumed(t *testing.T) {
	p := newPasses(t, &contentServer{
		objects: map[string]objects{"configmaps": {object("c")}}, grace: map[string]time.Duration{"configmaps": time.Minute},
	})
	report, _ := p.pass(t, later)
	p.g.Expect(report.IsClean()).To(BeTrue())
	report, requests := p.pass(t, p.server.clock.Now())
	p.g.Expect(requests).To(Equal(listEachType))
	p.g.Expect(report.Remaining).To(HaveLen(1))
	p.g.Expect(report.IsProof).To(BeFalse())
}

// An error of a list is one of this type, and another look at it is due.
func TestLedgerLooksAgainAtWhatFailed(t *testing.T) {
	for name, err := range map[string]error{
		"an outage": errOutage, "a refusal": errForbidden, "a timeout": apierrors.NewTimeoutError("too slow", 1),
	} {
		t.Run(name, func(t *testing.T) {
			p := newPasses(t, &contentServer{errors: map[string]error{"list widgets": err}})
			report, _ := p.pass(t, now)
			p.g.Expect(report.IsProof).To(BeFalse())
			report, requests := p.pass(t, now)
			p.g.Expect(requests).To(Equal([]string{"list widgets"}))
			p.g.Expect(report.IsProof).To(BeFalse())
			p.server.fail("list widgets", nil)
			report, _ = p.pass(t, now)
			p.g.Expect(report.IsProof).To(BeTrue())
		})
	}
}
