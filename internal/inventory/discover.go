// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Inventory is the result of one discovery.
type Inventory struct {
	// Types are sorted by group and resource, each in the version that the API server
	// prefers.
	Types []Type
	// Failed are the errors of group versions whose types could not be discovered.
	Failed map[schema.GroupVersion]error
	// Unparsed are the errors of group versions that cannot be parsed.
	Unparsed map[string]error
}

// Err joins all discovery errors, in the order of the group versions.
func (i *Inventory) Err() error {
	var errs []error
	failed := slices.SortedFunc(maps.Keys(i.Failed), func(a, b schema.GroupVersion) int {
		return cmp.Compare(a.String(), b.String())
	})
	for _, groupVersion := range failed {
		errs = append(errs, fmt.Errorf("%s: %w", groupVersion, i.Failed[groupVersion]))
	}
	for _, name := range slices.Sorted(maps.Keys(i.Unparsed)) {
		errs = append(errs, fmt.Errorf("%q: %w", name, i.Unparsed[name]))
	}
	return errors.Join(errs...)
}

// Discoverer discovers the namespaced types that an API server serves.
type Discoverer interface {
	ServerPreferredNamespacedResourcesWithContext(ctx context.Context) ([]*metav1.APIResourceList, error)
}

// Discover returns the types that an API server serves, without subresources. It fails only if the
// API server returns no type at all; partial failures are part of the Inventory.
func Discover(ctx context.Context, discoverer Discoverer) (*Inventory, error) {
	lists, err := discoverer.ServerPreferredNamespacedResourcesWithContext(ctx)
	inventory := &Inventory{Failed: map[schema.GroupVersion]error{}, Unparsed: map[string]error{}}
	if err != nil {
		groups, ok := discovery.GroupDiscoveryFailedErrorGroups(err)
		if !ok {
			return nil, fmt.Errorf("failed to discover the resource types of the API server: %w", err)
		}
		maps.Copy(inventory.Failed, groups)
	}
	types, invalid := Parse(lists, func(*metav1.APIResource) bool { return true })
	for _, group := range invalid {
		if groupVersion, err := schema.ParseGroupVersion(group.GroupVersion); err == nil {
			inventory.Failed[groupVersion] = group.Err
		} else {
			inventory.Unparsed[group.GroupVersion] = group.Err
		}
	}
	inventory.Types = types
	if len(inventory.Types) == 0 {
		return nil, errors.New("the API server serves no namespaced resource type")
	}
	return inventory, nil
}
