// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/client-go/metadata"

	"github.com/nslifecycle/nslifecycle/internal/inventory"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// fullLookInterval is the time between two looks at all types. In between only those are
// asked that had something when they were asked last: a cluster has hundreds of types, and
// a namespace objects of a few.
const fullLookInterval = 15 * time.Second

// remains counts what is left in a namespace.
type remains struct {
	client     metadata.Interface
	discoverer inventory.Discoverer
	namespace  string

	lastFullLook time.Time
	// inUse are the types that had objects when they were asked last.
	inUse []inventory.Type
}

// tally is what one look has found.
type tally struct {
	// counts are by type, sorted by it.
	counts []typeCount
	// unread says which types could not be counted.
	unread []string
	isFull bool
}

// typeCount is how many objects of a type there are.
type typeCount struct {
	resource string
	count    int
}

func (s *session) newRemains(namespace string) (*remains, error) {
	discoverer, client, err := s.contentClients()
	if err != nil {
		return nil, err
	}
	return &remains{client: client, discoverer: discoverer, namespace: namespace}, nil
}

// look counts once: everything now and then, and what was not empty in between.
func (r *remains) look(ctx context.Context) tally {
	var result tally
	asked := r.inUse
	if time.Since(r.lastFullLook) >= fullLookInterval {
		result.isFull = true
		asked = r.discover(ctx, &result)
	}
	contents := inventory.List(ctx, r.client, r.namespace, asked, 1)
	if result.isFull {
		r.lastFullLook = time.Now()
	}
	r.inUse = nil
	for _, content := range contents {
		r.inUse = append(r.inUse, content.Type)
		if content.Err != nil {
			result.unread = append(result.unread, content.Err.Error())
		}
		if content.Count > 0 {
			resource := printable.Escape(content.Type.String())
			result.counts = append(result.counts, typeCount{resource: resource, count: content.Count})
		}
	}
	slices.SortFunc(result.counts, func(a, b typeCount) int { return cmp.Compare(a.resource, b.resource) })
	return result
}

// discover returns the types that a namespace has to get rid of.
func (r *remains) discover(ctx context.Context, result *tally) []inventory.Type {
	discovered, err := inventory.Discover(ctx, r.discoverer)
	if err != nil {
		result.unread = append(result.unread, err.Error())
		return r.inUse
	}
	if err := discovered.Err(); err != nil {
		result.unread = append(result.unread, err.Error())
	}
	return storedTypes(discovered.Types)
}

// storedTypes returns the types that hold objects of their own. Those that cannot be
// deleted only show others, and Events are served twice.
func storedTypes(types []inventory.Type) []inventory.Type {
	return slices.DeleteFunc(slices.Clone(types), func(one inventory.Type) bool {
		return !one.Can("list") || !one.Can("delete") || one.String() == "events.events.k8s.io"
	})
}

// countdown is what is known of the way of a namespace to emptiness.
type countdown struct {
	// most is the highest count of each type that was seen, now the latest.
	most, now map[string]int
}

func newCountdown() *countdown {
	return &countdown{most: map[string]int{}, now: map[string]int{}}
}

// add takes in one tally.
func (c *countdown) add(latest tally) {
	clear(c.now)
	for _, one := range latest.counts {
		c.now[one.resource] = one.count
		c.most[one.resource] = max(c.most[one.resource], one.count)
	}
}

// totals returns how many objects there were and how many are left.
func (c *countdown) totals() (most, left int) {
	for resource, count := range c.most {
		most += count
		left += c.now[resource]
	}
	return most, left
}

// resources returns the types that were seen, sorted: those with the most objects left
// first.
func (c *countdown) resources() []string {
	var names []string
	for resource := range c.most {
		names = append(names, resource)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(c.now[b], c.now[a]), cmp.Compare(a, b))
	})
	return names
}
