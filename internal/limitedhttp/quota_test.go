// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package limitedhttp

import (
	"fmt"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
)

func TestQuota(t *testing.T) {
	type addition struct {
		peer string
		cost int
	}
	tests := map[string]struct {
		added     []addition
		wantEnded []int // indexes of added
	}{
		"within the capacity":             {[]addition{{"a", 4}, {"b", 6}}, nil},
		"the oldest":                      {[]addition{{"a", 5}, {"a", 5}, {"a", 5}}, []int{0}},
		"several of the oldest":           {[]addition{{"a", 5}, {"a", 5}, {"a", 10}}, []int{0, 1}},
		"the oldest of the largest peer":  {[]addition{{"b", 1}, {"a", 4}, {"a", 5}, {"b", 1}}, []int{1}},
		"a flood does not end other uses": {[]addition{{"b", 1}, {"a", 9}, {"a", 9}, {"a", 9}, {"a", 9}}, []int{1, 2, 3}},
		"a new use of the largest peer":   {[]addition{{"a", 1}, {"b", 1}, {"c", 9}}, []int{2}},
		"without cost":                    {[]addition{{"a", 0}, {"a", 0}}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			q := NewQuota(10)
			var ended []int
			var uses []*Use
			for i, added := range test.added {
				u := q.use(added.peer, added.cost, func() { ended = append(ended, i) })
				u.renew()
				uses = append(uses, u)
			}
			g.Expect(ended).To(Equal(test.wantEnded))
			for _, u := range uses {
				u.Release()
				u.Release()
			}
			g.Expect(q.used).To(BeZero())
			g.Expect(q.uses).To(BeEmpty())
		})
	}
}

// TestQuotaWithManyPeers verifies that one of many peers that use the same is ended.
func TestQuotaWithManyPeers(t *testing.T) {
	g := NewWithT(t)
	q := NewQuota(10)
	ended := 0
	for i := range 100 {
		q.use(fmt.Sprint(i), 1, func() { ended++ }).renew()
	}
	g.Expect(ended).To(Equal(90))
	g.Expect(q.used).To(Equal(10))
}

// TestQuotaEndsStalledUses verifies that many peers with a few uses that wait for them do not keep out one with more.
func TestQuotaEndsStalledUses(t *testing.T) {
	g := NewWithT(t)
	q := NewQuota(10)
	var ended []string
	add := func(peer string, isStalled bool) {
		added := q.use(peer, 1, func() { ended = append(ended, peer) })
		added.isStalled = func() bool { return isStalled }
		added.renew()
	}
	for range 4 {
		add("busy", false)
	}
	for i := range 9 {
		add(fmt.Sprint(i/2), true)
	}
	g.Expect(ended).To(Equal([]string{"0", "1", "2"}))
}

// TestQuotaWaits verifies that what a use has used is free before the next one begins.
func TestQuotaWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		q := NewQuota(1)
		isEnded, begun := false, make(chan *Use, 1)
		oldest := q.Add("a", 1, func() { isEnded = true })
		go func() { begun <- q.Add("b", 1, func() {}) }()
		synctest.Wait()
		g.Expect(isEnded).To(BeTrue())
		g.Expect(begun).NotTo(Receive())
		oldest.Release()
		synctest.Wait()
		g.Expect(begun).To(Receive())
	})
}
