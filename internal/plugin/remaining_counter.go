// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/metadata"

	"github.com/nslifecycle/nslifecycle/internal/plugin/orphans"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// fullCountInterval is the time between two counts of all types. In between, the counter counts
// only the types that had objects in the previous count. A cluster has hundreds of types, but a
// namespace usually contains objects of only a few.
const fullCountInterval = 15 * time.Second

// remainingCounter counts the objects in a namespace.
type remainingCounter struct {
	client     metadata.Interface
	discoverer resourcetypes.Discoverer
	namespace  string

	lastFullCount time.Time
	// nonEmpty contains the types that had objects in the previous count, and counts the numbers.
	nonEmpty []resourcetypes.Type
	counts   map[string]int
}

// snapshot is the result of a count.
type snapshot struct {
	// counts are the numbers of objects by type, without types that have no objects. The number of a
	// type that could not be counted is that of the previous count.
	counts map[string]int
	// unread lists the types that could not be counted and why.
	unread []string
	// isComplete is set if all types were counted.
	isComplete bool
}

func (s *session) newRemainingCounter(namespace string) (*remainingCounter, error) {
	discoverer, client, err := s.contentClients()
	if err != nil {
		return nil, err
	}
	return &remainingCounter{client: client, discoverer: discoverer, namespace: namespace}, nil
}

// count counts the objects of all types, or of the types that had objects in the previous count.
func (r *remainingCounter) count(ctx context.Context) snapshot {
	result := snapshot{counts: map[string]int{}}
	types := r.nonEmpty
	if time.Since(r.lastFullCount) >= fullCountInterval {
		result.isComplete = true
		types = r.discoverTypes(ctx, &result)
	}
	contents := resourcetypes.List(ctx, r.client, r.namespace, types, 1)
	if result.isComplete {
		r.lastFullCount = time.Now()
	}
	r.nonEmpty = nil
	for _, content := range contents {
		r.nonEmpty = append(r.nonEmpty, content.Type)
		name, count := printable.Escape(content.Type.String()), content.Count
		if content.Err != nil {
			result.unread = append(result.unread, content.Err.Error())
			count = max(count, r.counts[name])
		}
		if count > 0 {
			result.counts[name] = count
		}
	}
	r.counts = result.counts
	return result
}

// discoverTypes returns the types of objects that block the deletion of a namespace.
func (r *remainingCounter) discoverTypes(ctx context.Context, result *snapshot) []resourcetypes.Type {
	discovered, err := resourcetypes.Discover(ctx, r.discoverer)
	if err != nil {
		result.unread = append(result.unread, err.Error())
		return r.nonEmpty
	}
	types := orphans.StoredTypes(discovered.Types)
	if err := discovered.Err(); err != nil {
		result.unread = append(result.unread, err.Error())
		for _, known := range r.nonEmpty {
			if !slices.ContainsFunc(types, func(found resourcetypes.Type) bool { return found.String() == known.String() }) {
				types = append(types, known)
			}
		}
	}
	return types
}

// deletionProgress contains the numbers of objects during a deletion.
type deletionProgress struct {
	// highest is the highest count of each type, and current is the latest.
	highest, current map[string]int
}

func newDeletionProgress() *deletionProgress {
	return &deletionProgress{highest: map[string]int{}}
}

func (p *deletionProgress) add(counts map[string]int) {
	p.current = counts
	for resource, count := range counts {
		p.highest[resource] = max(p.highest[resource], count)
	}
}

// totals returns the sums of the counts of all types.
func (p *deletionProgress) totals() (highest, current int) {
	for resource, count := range p.highest {
		highest += count
		current += p.current[resource]
	}
	return highest, current
}

// resources returns the types, sorted by the number of remaining objects in descending order.
func (p *deletionProgress) resources() []string {
	return slices.SortedFunc(maps.Keys(p.highest), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.current[b], p.current[a]), cmp.Compare(a, b))
	})
}
