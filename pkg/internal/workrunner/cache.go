// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// caches contains the caches of Namespaces for all managers in this process. Controllers with the
// same manager and the same selection share a cache. Otherwise, each Namespace would be sent,
// decoded and stored once per controller.
var caches = sharedCaches{byKey: map[cacheKey]cache.Cache{}}

type sharedCaches struct {
	lock  sync.Mutex
	byKey map[cacheKey]cache.Cache
}

type cacheKey struct {
	manager   manager.Manager
	selection string
}

// get returns the manager's cache for a selection, and creates the cache if it does not exist. The
// cache is empty until a controller that uses it starts. It is removed from sharedCaches when the
// manager stops.
func (c *sharedCaches) get(mgr manager.Manager, reads client.Client, selection Selection) (cache.Cache, error) {
	// A manager whose type is not comparable, such as a wrapper, cannot be a map key.
	isShared := reflect.ValueOf(mgr).Comparable()
	key := cacheKey{selection: fmt.Sprintf("%v;%v", selection.Label, selection.Field)}
	c.lock.Lock()
	defer c.lock.Unlock()
	if isShared {
		key.manager = mgr
		if shared, ok := c.byKey[key]; ok {
			return shared, nil
		}
	}
	namespaces, err := cache.New(withoutRateLimit(mgr.GetConfig()), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: reads.Scheme(), Mapper: reads.RESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Namespace{}: {
			Label: selection.Label, Field: selection.Field, Transform: cache.TransformStripManagedFields(),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("failed to create a cache of namespaces: %w", err)
	}
	if err := mgr.Add(&sharedCache{Cache: namespaces, forget: func() { c.forget(key) }}); err != nil {
		return nil, fmt.Errorf("failed to add a cache of namespaces to the manager: %w", err)
	}
	if isShared {
		c.byKey[key] = namespaces
	}
	return namespaces, nil
}

func (c *sharedCaches) forget(key cacheKey) {
	c.lock.Lock()
	defer c.lock.Unlock()
	delete(c.byKey, key)
}

// sharedCache removes itself from sharedCaches when it stops.
type sharedCache struct {
	cache.Cache
	forget func()
}

// Start runs the cache until the manager stops.
func (c *sharedCache) Start(ctx context.Context) error {
	defer c.forget()
	return c.Cache.Start(ctx)
}

// NeedLeaderElection returns false: the cache must start before the controllers that use it.
func (*sharedCache) NeedLeaderElection() bool { return false }
