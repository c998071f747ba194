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

	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

// Type is a namespaced type of objects.
type Type struct {
	schema.GroupVersionResource
	Kind string
	// Verbs are those of the type, such as list and delete.
	Verbs []string
}

// Can tells whether the API server offers a verb for the type.
func (t Type) Can(verb string) bool {
	return slices.Contains(t.Verbs, verb)
}

// String returns the name that kubectl takes: deployments.apps, or pods.
func (t Type) String() string {
	return t.GroupResource().String()
}

// IsNamed tells whether users mean the type by a name: deployments.apps, or deployments.
func (t Type) IsNamed(name string) bool {
	return name == t.String() || name == t.Resource
}

// GroupVersionKind returns what apiVersion and kind of an object of the type say.
func (t Type) GroupVersionKind() schema.GroupVersionKind {
	return t.GroupVersion().WithKind(t.Kind)
}

// Inventory is what one discovery has found.
type Inventory struct {
	// Types are sorted by group and resource, each in the version that the API server
	// prefers.
	Types []Type
	// Failed says why the types of a group version are not known.
	Failed map[schema.GroupVersion]error
	// Unparsed says which group versions have names that cannot be parsed.
	Unparsed map[string]error
}

// Err joins everything that could not be discovered, in the order of the group versions.
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

// Discoverer lists the namespaced types that an API server serves.
type Discoverer interface {
	ServerPreferredNamespacedResourcesWithContext(ctx context.Context) ([]*metav1.APIResourceList, error)
}

// Discover returns the types that an API server serves, without subresources. It fails
// only where the API server names no type at all; what is missing otherwise is told by
// the Inventory.
func Discover(ctx context.Context, discoverer Discoverer) (*Inventory, error) {
	lists, err := discoverer.ServerPreferredNamespacedResourcesWithContext(ctx)
	inventory := &Inventory{Failed: map[schema.GroupVersion]error{}, Unparsed: map[string]error{}}
	if err != nil {
		groups, isPartial := discovery.GroupDiscoveryFailedErrorGroups(err)
		if !isPartial {
			return nil, fmt.Errorf("discovering the types of the API server: %w", err)
		}
		maps.Copy(inventory.Failed, groups)
	}
	for _, list := range lists {
		if len(list.APIResources) == 0 {
			continue
		}
		groupVersion, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			inventory.Unparsed[list.GroupVersion] = err
			continue
		}
		for _, resource := range list.APIResources {
			if !resource.Namespaced {
				continue
			}
			gvr := groupVersion.WithResource(resource.Name)
			if err := metadataclient.ValidateType(gvr); err != nil {
				inventory.Failed[groupVersion] = err
				continue
			}
			inventory.Types = append(inventory.Types, Type{
				GroupVersionResource: gvr, Kind: resource.Kind, Verbs: resource.Verbs,
			})
		}
	}
	slices.SortFunc(inventory.Types, func(a, b Type) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Version, b.Version))
	})
	if len(inventory.Types) == 0 {
		return nil, errors.New("the API server names no namespaced type at all")
	}
	return inventory, nil
}
