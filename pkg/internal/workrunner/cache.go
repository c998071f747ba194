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

// caches are those of Namespaces that the managers of this process have. All that is added to
// a manager and watches the same Namespaces shares one: with eight of them each change of a
// Namespace would be sent, decoded and kept eight times.
var caches = sharedCaches{byKey: map[cacheKey]cache.Cache{}}

type sharedCaches struct {
	lock  sync.Mutex
	byKey map[cacheKey]cache.Cache
}

type cacheKey struct {
	manager manager.Manager
	watched string
}

// get returns the manager's cache of some Namespaces, which it makes and adds to the manager
// where there is none yet. It is empty until the first controller asks for it, which is when
// the manager is the leader, and is forgotten when the manager stops.
func (c *sharedCaches) get(mgr manager.Manager, reads client.Client, watched Selection) (cache.Cache, error) {
	// Managers are pointers; one that somebody has wrapped in a type of another kind cannot be
	// a key.
	isShared := reflect.ValueOf(mgr).Comparable()
	key := cacheKey{watched: fmt.Sprintf("%v;%v", watched.Label, watched.Field)}
	c.lock.Lock()
	defer c.lock.Unlock()
	if isShared {
		key.manager = mgr
		if shared, exists := c.byKey[key]; exists {
			return shared, nil
		}
	}
	namespaces, err := cache.New(unlimited(mgr.GetConfig()), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: reads.Scheme(), Mapper: reads.RESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Namespace{}: {
			Label: watched.Label, Field: watched.Field, Transform: cache.TransformStripManagedFields(),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("creating a cache of namespaces: %w", err)
	}
	if err := mgr.Add(&sharedCache{Cache: namespaces, forget: func() { c.forget(key) }}); err != nil {
		return nil, fmt.Errorf("adding a cache of namespaces to the manager: %w", err)
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

// sharedCache is forgotten when it stops.
type sharedCache struct {
	cache.Cache
	forget func()
}

// Start runs the cache until the manager stops.
func (c *sharedCache) Start(ctx context.Context) error {
	defer c.forget()
	return c.Cache.Start(ctx)
}

// NeedLeaderElection says that it does not: it is there before those that ask for it.
func (*sharedCache) NeedLeaderElection() bool { return false }
