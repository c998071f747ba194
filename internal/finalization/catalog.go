// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"cmp"
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

	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

const (
	// maxInventoryAge bounds how long an inventory is used although nothing has been heard
	// of a change. It matters for the types of aggregated API servers, whose changes raise
	// no event.
	maxInventoryAge = time.Minute
	// discoveryTimeout is how long one discovery may take.
	discoveryTimeout = 30 * time.Second
)

// ResourceType is a namespaced type whose objects can be deleted.
type ResourceType struct {
	schema.GroupVersionResource
	CanList             bool
	CanDeleteCollection bool
	CanWatch            bool
}

// Inventory is what one discovery has found.
type Inventory struct {
	// Types are sorted by group and resource, each in the version that the API server
	// prefers.
	Types []ResourceType
	// DiscoveryError says what could not be discovered. Types holds the rest.
	DiscoveryError error
	// ParseError says which group versions could not be parsed, or have a resource whose name
	// cannot be part of a URL. Types holds the rest.
	ParseError error

	began time.Time
}

// IsComplete tells whether the inventory has everything that the API server serves.
func (i *Inventory) IsComplete() bool {
	return i.DiscoveryError == nil && i.ParseError == nil
}

// ResourceDiscoverer lists the namespaced types that an API server serves.
type ResourceDiscoverer interface {
	ServerPreferredNamespacedResourcesWithContext(ctx context.Context) ([]*metav1.APIResourceList, error)
}

// Catalog caches discovery, which all namespaces share.
type Catalog struct {
	discoverer ResourceDiscoverer
	clock      clock.PassiveClock

	// access is taken by whoever reads or writes what follows, for the whole of a
	// discovery: those who wait then share its outcome.
	access    chan struct{}
	inventory *Inventory

	// changeLock guards changed, the time of the last Invalidate.
	changeLock sync.Mutex
	changed    time.Time
}

// NewCatalog returns an empty catalog.
func NewCatalog(discoverer ResourceDiscoverer, passive clock.PassiveClock) *Catalog {
	return &Catalog{discoverer: discoverer, clock: passive, access: make(chan struct{}, 1)}
}

// Invalidate makes the next Get discover again. It is to be called when a type may have
// come or gone.
func (c *Catalog) Invalidate() {
	c.changeLock.Lock()
	defer c.changeLock.Unlock()
	c.changed = c.clock.Now()
}

// Get returns an inventory whose discovery began at notBefore or later, and after the
// last Invalidate. It never uses an incomplete one twice, except for callers who waited
// for it. A failed discovery is an Inventory as well; the error is that of the context.
func (c *Catalog) Get(ctx context.Context, notBefore time.Time) (*Inventory, error) {
	asked := c.clock.Now()
	select {
	case c.access <- struct{}{}:
		defer func() { <-c.access }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !c.isUsable(asked, notBefore) {
		inventory := c.discover(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		c.inventory = inventory
	}
	return c.inventory, nil
}

// isStale tells whether a type may have come or gone since an inventory was made.
func (c *Catalog) isStale(inventory *Inventory) bool {
	c.changeLock.Lock()
	defer c.changeLock.Unlock()
	return !inventory.began.After(c.changed)
}

func (c *Catalog) isUsable(asked, notBefore time.Time) bool {
	switch {
	case c.inventory == nil || c.inventory.began.Before(notBefore) || c.isStale(c.inventory):
		return false
	case c.inventory.IsComplete():
		return c.clock.Since(c.inventory.began) < maxInventoryAge
	default:
		return !c.inventory.began.Before(asked)
	}
}

func (c *Catalog) discover(ctx context.Context) *Inventory {
	inventory := &Inventory{began: c.clock.Now()}
	var lists []*metav1.APIResourceList
	err := within(ctx, discoveryTimeout, func(ctx context.Context) error {
		var err error
		lists, err = c.discoverer.ServerPreferredNamespacedResourcesWithContext(ctx)
		return err
	})
	inventory.DiscoveryError = err
	inventory.Types, inventory.ParseError = deletableTypes(lists)
	if inventory.IsComplete() && !hasCoreType(inventory.Types) {
		// No API server is that poor, but client-go takes "not found" at /api, as something
		// between here and there may answer, for a server without that group. To believe it
		// would mean to finalize everything, with pods that run on.
		inventory.DiscoveryError = errors.New(
			"the API server names no type of the core group that can be deleted, not even configmaps")
	}
	return inventory
}

// hasCoreType tells whether some type is of the core group. Not whether that is pods: there
// are API servers that serve none, but all serve the likes of ConfigMaps and Secrets.
func hasCoreType(types []ResourceType) bool {
	return slices.ContainsFunc(types, func(resourceType ResourceType) bool {
		return resourceType.Group == corev1.GroupName
	})
}

// deletableTypes returns the types that can be deleted, and an error that names the
// group versions that it cannot parse or use. Upstream gives up at the first of these.
func deletableTypes(lists []*metav1.APIResourceList) ([]ResourceType, error) {
	var types []ResourceType
	var errs []error
	for _, list := range lists {
		if len(list.APIResources) == 0 {
			continue
		}
		groupVersion, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			errs = append(errs, fmt.Errorf("group version %s: %w", metadataclient.Quote(list.GroupVersion), err))
			continue
		}
		for _, resource := range list.APIResources {
			if !resource.Namespaced || !slices.Contains(resource.Verbs, "delete") {
				continue
			}
			gvr := groupVersion.WithResource(resource.Name)
			if err := metadataclient.ValidateType(gvr); err != nil {
				errs = append(errs, fmt.Errorf("group version %s: %w", metadataclient.Quote(list.GroupVersion), err))
				continue
			}
			types = append(types, ResourceType{
				GroupVersionResource: gvr,
				CanList:              slices.Contains(resource.Verbs, "list"),
				CanDeleteCollection:  slices.Contains(resource.Verbs, "deletecollection"),
				CanWatch:             slices.Contains(resource.Verbs, "watch"),
			})
		}
	}
	slices.SortFunc(types, func(a, b ResourceType) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Version, b.Version))
	})
	return slices.Compact(types), errors.Join(errs...)
}
