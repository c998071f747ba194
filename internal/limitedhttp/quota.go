// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package limitedhttp

import (
	"slices"
	"sync"
)

// Quota bounds what all peers use at the same time. If it is exceeded, it ends the oldest use of the peer that
// uses the most. A peer therefore cannot keep out other peers, neither by many uses nor by endless ones. Uses that wait
// for their peers end first, so that many peers with a few of them cannot keep out one with more.
type Quota struct {
	capacity int

	lock sync.Mutex
	used int
	uses []*Use // the oldest first
}

// Use is what one connection or request uses of a quota.
type Use struct {
	quota *Quota
	peer  string
	cost  int
	// isStalled reports whether the use waits for its peer. It can be nil.
	isStalled func() bool
	// end is called if the quota ends the use.
	end func()
	// released is closed at the first release.
	released chan struct{}
	once     sync.Once
}

// NewQuota returns a quota.
func NewQuota(capacity int) *Quota {
	return &Quota{capacity: capacity}
}

// Add adds a use, and waits until the uses that it has ended are released. The caller releases it, also after the
// quota has ended it.
func (q *Quota) Add(peer string, cost int, end func()) *Use {
	added := q.use(peer, cost, end)
	for _, other := range added.renew() {
		if other != added {
			<-other.released
		}
	}
	return added
}

func (q *Quota) use(peer string, cost int, end func()) *Use {
	return &Use{quota: q, peer: peer, cost: cost, end: end, released: make(chan struct{})}
}

// renew adds a use, or makes an existing use the newest. It returns the uses that ended because of the limits.
func (u *Use) renew() []*Use {
	excess := u.quota.insert(u)
	for _, other := range excess {
		other.end()
	}
	return excess
}

// insert returns the uses that exceed the capacity.
func (q *Quota) insert(added *Use) []*Use {
	q.lock.Lock()
	defer q.lock.Unlock()
	if i := slices.Index(q.uses, added); i >= 0 {
		q.remove(i)
	}
	q.uses = append(q.uses, added)
	q.used += added.cost
	var excess []*Use
	for q.used > q.capacity {
		i := q.next()
		excess = append(excess, q.uses[i])
		q.remove(i)
	}
	return excess
}

// next returns the index of the use to end.
func (q *Quota) next() int {
	var candidates []*Use
	for _, use := range q.uses {
		if use.isStalled != nil && use.isStalled() {
			candidates = append(candidates, use)
		}
	}
	if len(candidates) == 0 {
		candidates = q.uses
	}
	byPeer, largest := map[string]int{}, 0
	for _, use := range candidates {
		byPeer[use.peer] += use.cost
		largest = max(largest, byPeer[use.peer])
	}
	oldest := slices.IndexFunc(candidates, func(u *Use) bool { return byPeer[u.peer] == largest })
	return slices.Index(q.uses, candidates[oldest])
}

func (q *Quota) remove(i int) {
	q.used -= q.uses[i].cost
	q.uses = slices.Delete(q.uses, i, i+1)
}

// Release removes a use. It can be called more than once.
func (u *Use) Release() {
	u.quota.lock.Lock()
	defer u.quota.lock.Unlock()
	if i := slices.Index(u.quota.uses, u); i >= 0 {
		u.quota.remove(i)
	}
	u.once.Do(func() { close(u.released) })
}
