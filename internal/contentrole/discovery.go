// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package contentrole

import (
	"context"
	"maps"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
)

// ServerPreferredNamespacedResourcesWithContext discovers the namespaced types, and adds those whose objects can be
// deleted to the role before it returns them. It implements resourcetypes.Discoverer.
func (k *Keeper) ServerPreferredNamespacedResourcesWithContext(ctx context.Context) ([]*metav1.APIResourceList, error) {
	recorded := &recorder{DiscoveryClient: k.discovery, lists: map[schema.GroupVersion]*metav1.APIResourceList{}}
	lists, err := discovery.ServerPreferredNamespacedResourcesWithContext(ctx, recorded)
	all := func(schema.GroupResource) bool { return true }
	if ensureErr := k.ensure(ctx, recorded.discovery(err), all); ensureErr != nil {
		// The types that the role lacks are reported on the namespaces.
		k.log.Error(ensureErr, "Failed to add types to a ClusterRole", "name", k.name)
	}
	return lists, err
}

// Has reports whether the role contains a type, or is not kept.
func (k *Keeper) Has(ctx context.Context, one schema.GroupResource) bool {
	if k.name == "" {
		return true
	}
	k.mutex.Lock()
	isFresh := !k.readAt.IsZero() && k.clock.Since(k.readAt) < checkInterval
	k.mutex.Unlock()
	if !isFresh {
		// Without the role, or if it cannot be read, the requests themselves show whether they are allowed.
		if role, err := k.read(ctx); role == nil || err != nil {
			return true
		}
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	_, ok := k.known[one]
	return ok
}

// Add adds a type to the role.
func (k *Keeper) Add(ctx context.Context, one schema.GroupResource) error {
	recorded := &recorder{DiscoveryClient: k.discovery, lists: map[schema.GroupVersion]*metav1.APIResourceList{}}
	_, err := discovery.ServerPreferredNamespacedResourcesWithContext(ctx, recorded)
	return k.ensure(ctx, recorded.discovery(err), func(other schema.GroupResource) bool { return other == one })
}

// recorder is a discovery client that keeps the types of all versions. One version that is cluster-scoped suffices to
// refuse a type, and the preferred version may be another one.
type recorder struct {
	*discovery.DiscoveryClient

	mutex sync.Mutex
	lists map[schema.GroupVersion]*metav1.APIResourceList
}

// GroupsAndMaybeResourcesWithContext implements discovery.AggregatedDiscoveryInterfaceWithContext.
func (r *recorder) GroupsAndMaybeResourcesWithContext(ctx context.Context) (
	*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error,
) {
	groups, lists, failed, err := r.DiscoveryClient.GroupsAndMaybeResourcesWithContext(ctx)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	maps.Copy(r.lists, lists)
	return groups, lists, failed, err
}

// ServerResourcesForGroupVersionWithContext implements discovery.ServerResourcesInterfaceWithContext.
func (r *recorder) ServerResourcesForGroupVersionWithContext(
	ctx context.Context, groupVersion string,
) (*metav1.APIResourceList, error) {
	list, err := r.DiscoveryClient.ServerResourcesForGroupVersionWithContext(ctx, groupVersion)
	if parsed, parseErr := schema.ParseGroupVersion(groupVersion); parseErr == nil && list != nil {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		r.lists[parsed] = list
	}
	return list, err
}

// discovery returns what was recorded, after a discovery that returned an error.
func (r *recorder) discovery(err error) Discovery {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found := Discovery{FailedGroups: sets.New[string]()}
	for groupVersion, list := range r.lists {
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") {
				continue
			}
			found.Resources = append(found.Resources, Resource{
				GroupVersionResource: groupVersion.WithResource(resource.Name),
				IsNamespaced:         resource.Namespaced, Verbs: resource.Verbs,
			})
		}
	}
	failed, _ := discovery.GroupDiscoveryFailedErrorGroups(err)
	for groupVersion := range failed {
		found.FailedGroups.Insert(groupVersion.Group)
	}
	return found
}
