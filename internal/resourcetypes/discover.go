// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcetypes

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

// Set is the result of discovery.
type Set struct {
	// Types contains the discovered types, sorted by group and resource, each in the version that the API
	// server prefers.
	Types []Type
	// Failed contains the errors of group versions whose types could not be discovered.
	Failed map[schema.GroupVersion]error
	// Unparsed contains the errors of group versions that cannot be parsed.
	Unparsed map[string]error
}

// Err joins all discovery errors, sorted by group version.
func (s *Set) Err() error {
	var errs []error
	failed := slices.SortedFunc(maps.Keys(s.Failed), func(a, b schema.GroupVersion) int {
		return cmp.Compare(a.String(), b.String())
	})
	for _, groupVersion := range failed {
		errs = append(errs, fmt.Errorf("%s: %w", groupVersion, s.Failed[groupVersion]))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Unparsed)) {
		errs = append(errs, fmt.Errorf("%q: %w", name, s.Unparsed[name]))
	}
	return errors.Join(errs...)
}

// Discoverer discovers the namespaced resource types of an API server.
type Discoverer interface {
	ServerPreferredNamespacedResourcesWithContext(ctx context.Context) ([]*metav1.APIResourceList, error)
}

// Discover returns the namespaced types that an API server serves, without subresources. It returns an
// error only if discovery fails completely or finds no type. Partial failures are part of the Set.
func Discover(ctx context.Context, discoverer Discoverer) (*Set, error) {
	lists, err := discoverer.ServerPreferredNamespacedResourcesWithContext(ctx)
	set := &Set{Failed: map[schema.GroupVersion]error{}, Unparsed: map[string]error{}}
	if err != nil {
		groups, ok := discovery.GroupDiscoveryFailedErrorGroups(err)
		if !ok {
			return nil, fmt.Errorf("failed to discover the resource types of the API server: %w", err)
		}
		maps.Copy(set.Failed, groups)
	}
	types, invalid := Parse(lists, func(*metav1.APIResource) bool { return true })
	for _, group := range invalid {
		if groupVersion, err := schema.ParseGroupVersion(group.GroupVersion); err == nil {
			set.Failed[groupVersion] = group.Err
		} else {
			set.Unparsed[group.GroupVersion] = group.Err
		}
	}
	set.Types = types
	if len(set.Types) == 0 {
		return nil, errors.New("the API server serves no namespaced resource type")
	}
	return set, nil
}
