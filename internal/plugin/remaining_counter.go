// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/client-go/metadata"

	"github.com/nslifecycle/nslifecycle/internal/plugin/orphans"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// fullCountInterval is the time between two counts of all types. In between, only the types that
// had objects are counted: a cluster has hundreds of types, a namespace objects of a few.
const fullCountInterval = 15 * time.Second

// remainingCounter counts the objects in a namespace.
type remainingCounter struct {
	client     metadata.Interface
	discoverer resourcetypes.Discoverer
	namespace  string

	lastFullCount time.Time
	// nonEmpty are the types that had objects in the previous count.
	nonEmpty []resourcetypes.Type
}

// snapshot is the result of a count.
type snapshot struct {
	// counts are sorted by type.
	counts []typeCount
	// unread lists the types that could not be counted and why.
	unread []string
	// isComplete is set if all types were counted.
	isComplete bool
}

// typeCount is the number of objects of a type.
type typeCount struct {
	resource string
	count    int
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
	var result snapshot
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

// discoverTypes returns the types of objects that block the deletion of a namespace.
func (r *remainingCounter) discoverTypes(ctx context.Context, result *snapshot) []resourcetypes.Type {
	discovered, err := resourcetypes.Discover(ctx, r.discoverer)
	if err != nil {
		result.unread = append(result.unread, err.Error())
		return r.nonEmpty
	}
	if err := discovered.Err(); err != nil {
		result.unread = append(result.unread, err.Error())
	}
	return orphans.StoredTypes(discovered.Types)
}

// deletionProgress compares the counts of a deletion.
type deletionProgress struct {
	// highest is the highest count of each type, current the latest.
	highest, current map[string]int
}

func newDeletionProgress() *deletionProgress {
	return &deletionProgress{highest: map[string]int{}, current: map[string]int{}}
}

func (p *deletionProgress) add(latest snapshot) {
	clear(p.current)
	for _, one := range latest.counts {
		p.current[one.resource] = one.count
		p.highest[one.resource] = max(p.highest[one.resource], one.count)
	}
}

// totals returns the sums of all types.
func (p *deletionProgress) totals() (highest, current int) {
	for resource, count := range p.highest {
		highest += count
		current += p.current[resource]
	}
	return highest, current
}

// resources returns the types, those with the most remaining objects first.
func (p *deletionProgress) resources() []string {
	var names []string
	for resource := range p.highest {
		names = append(names, resource)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(p.current[b], p.current[a]), cmp.Compare(a, b))
	})
	return names
}
