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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/nslifecycle/nslifecycle/internal/finalization/throttling"
	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

const (
	// maxDiscoveryAge limits the age of a cached discovery. It matters for the types of aggregated API
	// servers, because no watch event reports their changes.
	maxDiscoveryAge = time.Minute
	// discoveryTimeout limits the duration of one discovery.
	discoveryTimeout = 30 * time.Second
)

// ResourceType is a namespaced type whose objects can be deleted.
type ResourceType struct {
	schema.GroupVersionResource
	CanList             bool
	CanDeleteCollection bool
	CanWatch            bool
	// IsAggregated reports whether an aggregated API server serves the type, or whether the server is unknown.
	IsAggregated bool
}

// ResourceSet is the result of one discovery.
type ResourceSet struct {
	// Types are sorted by group and resource, each in the version that the API server prefers.
	Types []ResourceType
	// DiscoveryError is the error for the group versions that could not be discovered.
	DiscoveryError error
	// ParseError is the error for the group versions that cannot be parsed, or that contain a resource
	// name that cannot be part of a URL.
	ParseError error

	// requestedAt is the time when discovery started.
	requestedAt time.Time
}

// IsComplete reports whether the set contains all types that the API server serves.
func (s *ResourceSet) IsComplete() bool {
	return s.DiscoveryError == nil && s.ParseError == nil
}

// discoveryCache caches discovery for all namespaces.
type discoveryCache struct {
	discoverer   resourcetypes.Discoverer
	isAggregated func(schema.GroupVersion) bool
	clock        clock.PassiveClock

	// access is a lock that is held during discovery, so that waiting callers share the result. It is a
	// channel, so callers can stop waiting when their context is done.
	access    chan struct{}
	resources *ResourceSet

	// changeLock guards changedAt, the time of the last call of invalidate.
	changeLock sync.Mutex
	changedAt  time.Time
}

func newDiscoveryCache(
	discoverer resourcetypes.Discoverer, isAggregated func(schema.GroupVersion) bool, passive clock.PassiveClock,
) *discoveryCache {
	return &discoveryCache{
		discoverer: discoverer, isAggregated: isAggregated, clock: passive, access: make(chan struct{}, 1),
	}
}

// invalidate must be called when a type may have been added or removed.
func (c *discoveryCache) invalidate() {
	c.changeLock.Lock()
	defer c.changeLock.Unlock()
	c.changedAt = c.clock.Now()
}

// get returns the result of a discovery that started at notBefore or later, and after the last call
// of invalidate. An incomplete result is shared only by callers that waited for it. Discovery errors
// are part of the ResourceSet; the returned error is the context's error.
func (c *discoveryCache) get(ctx context.Context, notBefore time.Time) (*ResourceSet, error) {
	calledAt := c.clock.Now()
	select {
	case c.access <- struct{}{}:
		defer func() { <-c.access }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !c.isUsable(calledAt, notBefore) {
		resources := c.discover(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		c.resources = resources
	}
	return c.resources, nil
}

// isStale reports whether a type may have been added or removed since the discovery of a set.
func (c *discoveryCache) isStale(resources *ResourceSet) bool {
	c.changeLock.Lock()
	defer c.changeLock.Unlock()
	return !resources.requestedAt.After(c.changedAt)
}

func (c *discoveryCache) isUsable(calledAt, notBefore time.Time) bool {
	switch {
	case c.resources == nil || c.resources.requestedAt.Before(notBefore) || c.isStale(c.resources):
		return false
	case c.resources.IsComplete():
		return c.clock.Since(c.resources.requestedAt) < maxDiscoveryAge
	default:
		return !c.resources.requestedAt.Before(calledAt)
	}
}

func (c *discoveryCache) discover(ctx context.Context) *ResourceSet {
	resources := &ResourceSet{requestedAt: c.clock.Now()}
	var lists []*metav1.APIResourceList
	err := throttling.Do(ctx, discoveryTimeout, func(ctx context.Context) error {
		var err error
		lists, err = c.discoverer.ServerPreferredNamespacedResourcesWithContext(ctx)
		return err
	})
	resources.DiscoveryError = err
	resources.Types, resources.ParseError = computeDeletableTypes(lists, c.isAggregated)
	hasCoreType := slices.ContainsFunc(resources.Types, func(resourceType ResourceType) bool {
		return resourceType.Group == corev1.GroupName
	})
	if resources.IsComplete() && !hasCoreType {
		// Every Kubernetes control plane serves core types such as ConfigMaps and Secrets, but not
		// necessarily Pods. However, client-go interprets "not found" at /api, for example from a
		// proxy, as a server without the core group. Without this check, all namespaces would be finalized
		// while their Pods are running.
		resources.DiscoveryError = errors.New(errNoCoreResourceType)
	}
	return resources
}

// computeDeletableTypes returns the types whose objects can be deleted, and an error that names the
// invalid group versions. Upstream stops at the first invalid group version.
func computeDeletableTypes(
	lists []*metav1.APIResourceList, isAggregated func(schema.GroupVersion) bool,
) ([]ResourceType, error) {
	parsed, invalid := resourcetypes.Parse(lists, func(resource *metav1.APIResource) bool {
		return slices.Contains(resource.Verbs, "delete")
	})
	// An Event is one object in etcd, and kube-apiserver serves it in two groups. Nothing is known about the storage of
	// aggregated API servers.
	distinct := map[schema.GroupVersionResource]bool{}
	for _, resourceType := range resourcetypes.Distinct(parsed) {
		distinct[resourceType.GroupVersionResource] = true
	}
	var types []ResourceType
	for _, resourceType := range parsed {
		if !distinct[resourceType.GroupVersionResource] && !isAggregated(resourceType.GroupVersion()) {
			continue
		}
		types = append(types, ResourceType{
			GroupVersionResource: resourceType.GroupVersionResource,
			CanList:              resourceType.Can("list"),
			CanDeleteCollection:  resourceType.Can("deletecollection"),
			CanWatch:             resourceType.Can("watch"),
			IsAggregated:         isAggregated(resourceType.GroupVersion()),
		})
	}
	var errs []error
	for _, group := range invalid {
		errs = append(errs, fmt.Errorf("group version %s: %w", metadataclient.Quote(group.GroupVersion), group.Err))
	}
	return slices.Compact(types), errors.Join(errs...)
}
