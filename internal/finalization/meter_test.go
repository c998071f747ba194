// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tally is a Meter that remembers.
type tally struct {
	lock              sync.Mutex
	requests          map[Purpose]int
	deleted, answered int
}

func (t *tally) Requested(purpose Purpose) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.requests == nil {
		t.requests = map[Purpose]int{}
	}
	t.requests[purpose]++
}

func (t *tally) Deleted() {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.deleted++
}

func (t *tally) Answered(types int) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.answered += types
}

func TestMeterOfSurveys(t *testing.T) {
	three := []string{"x", "y", "z"}
	tests := map[string]struct {
		namespaces             []string
		server                 *clusterServer
		wantRequests, wantMade int
	}{
		"nothing is shared":     {namespaces: []string{"x"}, server: &clusterServer{}, wantRequests: 2, wantMade: 2},
		"one answer for three":  {namespaces: three, server: &clusterServer{}, wantRequests: 6, wantMade: 2},
		"two of the same order": {namespaces: []string{"x", "y"}, server: &clusterServer{}, wantRequests: 4, wantMade: 4},
		"no answer is none that was shared": {
			namespaces:   three,
			server:       &clusterServer{errors: map[string]error{"pods everywhere, 1": errForbidden, "pods in y, 500": errOutage}},
			wantRequests: 5, wantMade: 5,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				var counted tally
				surveyor := test.server.surveyor()
				surveyor.meter = &counted
				lookTogether(surveyor, test.namespaces, podsType, widgetsType)
				made := len(test.server.newRequests())
				g.Expect(made).To(Equal(test.wantMade))
				g.Expect(counted.requests).To(Equal(map[Purpose]int{PurposeSurvey: made}))
				g.Expect(counted.answered).To(Equal(test.wantRequests))

				// What is known already is an answer without a request.
				if test.server.errors == nil && len(test.namespaces) > fewAskers {
					lookFor(t.Context(), surveyor, "late", time.Now().Add(-time.Second), podsType)
					g.Expect(counted.answered).To(Equal(test.wantRequests + 1))
					g.Expect(counted.requests[PurposeSurvey]).To(Equal(made))
				}
			})
		})
	}
}

func TestMeterOfPasses(t *testing.T) {
	const hold = "example.com/hold"
	g := NewWithT(t)
	server := &contentServer{
		objects: map[string]objects{"widgets": {
			object("goes"), object("stays", hold), object("refused"),
			deleted(now, "dying", hold), deleted(now, "orphaning", metav1.FinalizerOrphanDependents),
		}},
		errors: map[string]error{"delete widgets/refused": errForbidden},
	}
	var counted tally
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()},
		"example.com/v1/widgets", "example.com/v1/bulk:delete,deletecollection")
	deleter.WithMeter(&counted)
	var ledger Ledger
	_, err := deleter.Pass(t.Context(), terminating(), now, now, &ledger)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counted.requests[PurposeDelete]).To(Equal(4), "the one that is dying already is left alone")
	g.Expect(counted.deleted).To(Equal(2), "neither what was refused nor what was being deleted before")
	g.Expect(counted.requests[PurposeDeleteCollection]).To(Equal(1))
	g.Expect(counted.requests[PurposeConfirm]).To(BeNumerically(">", 0))
	g.Expect(counted.requests[PurposeList]).To(Equal(1), "what is left is counted again")
	g.Expect(counted.requests[PurposeSurvey]).To(Equal(1))
	g.Expect(counted.answered).To(Equal(1))

	_, err = deleter.Pass(t.Context(), terminating(), now, now, &ledger)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counted.deleted).To(Equal(2), "each is counted once")
}
