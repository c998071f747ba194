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

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
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

const (
	// maxConcurrentLists limits the number of types that are listed concurrently.
	maxConcurrentLists = 32
	// pageSize is the maximum number of objects on a page.
	pageSize = 500
)

// Unlimited is the limit for listing all objects of a type.
const Unlimited = 0

// Content contains the objects of one type.
type Content struct {
	Type Type
	// Objects contains all objects, or the first objects if the list has a limit.
	Objects []metav1.PartialObjectMetadata
	// Count is the total number of objects. If the API server does not return the number of objects on
	// later pages, Count is the number of Objects and IsAtLeast is true.
	Count     int
	IsAtLeast bool
	// Err is the error that made the list incomplete.
	Err error
}

// List lists up to limit objects of each type, in one namespace or, if the namespace is empty, in all
// namespaces. It returns the types that have objects or could not be listed, in the original order. It
// omits types that are no longer served.
func List(
	ctx context.Context, client metadata.Interface, namespace string, types []Type, limit int,
) []Content {
	return ListSelected(ctx, client, namespace, types, "", limit)
}

// ListSelected is like List for the objects that a label selector matches.
func ListSelected(
	ctx context.Context, client metadata.Interface, namespace string, types []Type, labelSelector string, limit int,
) []Content {
	all := make([]Content, len(types))
	group := errgroup.Group{}
	group.SetLimit(maxConcurrentLists)
	for i, resourceType := range types {
		group.Go(func() error {
			all[i] = listType(ctx, client, namespace, resourceType, labelSelector, limit)
			return nil
		})
	}
	_ = group.Wait() // Each Content contains its error.
	var contents []Content
	for _, content := range all {
		if content.Count > 0 || content.Err != nil {
			contents = append(contents, content)
		}
	}
	return contents
}

func listType(
	ctx context.Context, client metadata.Interface, namespace string, resourceType Type, labelSelector string, limit int,
) Content {
	content := Content{Type: resourceType}
	if !resourceType.Can("list") {
		if resourceType.Can("delete") { // Types that can only be created, such as reviews, have no objects.
			content.Err = fmt.Errorf("the API server does not support listing %s", resourceType)
		}
		return content
	}
	options := metav1.ListOptions{LabelSelector: labelSelector, Limit: pageSize}
	for {
		if limit != Unlimited {
			options.Limit = int64(min(limit-len(content.Objects), pageSize))
		}
		page, err := client.Resource(resourceType.GroupVersionResource).Namespace(namespace).List(ctx, options)
		switch {
		case apierrors.IsNotFound(err): // The type is no longer served.
			return content
		case apierrors.IsResourceExpired(err) && options.Continue != "":
			// The list took longer than etcd keeps old revisions. Repeat it without pagination.
			content.Objects, options = nil, metav1.ListOptions{LabelSelector: labelSelector}
			limit = Unlimited
			continue
		case err != nil:
			content.Err = fmt.Errorf("failed to list %s: %w", resourceType, err)
			content.Count = len(content.Objects)
			return content
		}
		content.Objects = append(content.Objects, page.Items...)
		content.Count = len(content.Objects)
		options.Continue = page.Continue
		isFull := limit != Unlimited && len(content.Objects) >= limit
		if page.Continue == "" || isFull {
			if page.RemainingItemCount != nil {
				content.Count += int(*page.RemainingItemCount)
			} else {
				content.IsAtLeast = page.Continue != ""
			}
			return content
		}
	}
}

// Type is a namespaced resource type.
type Type struct {
	schema.GroupVersionResource
	Kind string
	// Verbs contains the supported verbs, such as list and delete.
	Verbs []string
}

// Can reports whether the API server supports the given verb for the type.
func (t Type) Can(verb string) bool {
	return slices.Contains(t.Verbs, verb)
}

// aliases maps types to those that contain the same objects, also in clusters without the aliases. OpenShift serves
// RBAC objects in a second group, in which a server-side apply cannot create them.
var aliases = map[schema.GroupResource]schema.GroupResource{
	{Group: "events.k8s.io", Resource: "events"}: {Resource: "events"},
	{Group: "authorization.openshift.io", Resource: "roles"}: {
		Group: "rbac.authorization.k8s.io", Resource: "roles"},
	{Group: "authorization.openshift.io", Resource: "rolebindings"}: {
		Group: "rbac.authorization.k8s.io", Resource: "rolebindings"},
}

// Distinct removes types whose objects another type contains, too.
func Distinct(types []Type) []Type {
	return slices.DeleteFunc(slices.Clone(types), func(one Type) bool {
		original, ok := aliases[one.GroupResource()]
		return ok && slices.ContainsFunc(types, func(other Type) bool { return other.GroupResource() == original })
	})
}

// String returns the name of the type in the form that kubectl accepts, such as deployments.apps or
// pods.
func (t Type) String() string {
	return t.GroupResource().String()
}

// IsNamed reports whether a user can refer to the type by the given name, with or without the group:
// deployments.apps or deployments.
func (t Type) IsNamed(name string) bool {
	return name == t.String() || name == t.Resource
}

// GroupVersionKind returns the group, version and kind of the type's objects.
func (t Type) GroupVersionKind() schema.GroupVersionKind {
	return t.GroupVersion().WithKind(t.Kind)
}

// namespaceSubresources are the subresources of Namespaces. In each group, the API server interprets
// /namespaces/<namespace>/status as the status of an object with the plural namespaces. A type with such a
// name therefore has no objects, and a list request requires the permission to get that object.
var namespaceSubresources = sets.New("finalize", "status")

// InvalidGroupVersion is a group version that cannot be parsed, or that contains a resource name that
// cannot be part of a URL.
type InvalidGroupVersion struct {
	GroupVersion string
	Err          error
}

// Parse parses discovery results. It returns the namespaced types for which include returns true,
// sorted by group, resource and version. It also returns the invalid group versions, in the
// original order.
func Parse(
	lists []*metav1.APIResourceList, include func(resource *metav1.APIResource) bool,
) ([]Type, []InvalidGroupVersion) {
	var types []Type
	var invalid []InvalidGroupVersion
	for _, list := range lists {
		if len(list.APIResources) == 0 {
			continue
		}
		groupVersion, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			invalid = append(invalid, InvalidGroupVersion{GroupVersion: list.GroupVersion, Err: err})
			continue
		}
		for i := range list.APIResources {
			resource := &list.APIResources[i]
			if !resource.Namespaced || namespaceSubresources.Has(resource.Name) || !include(resource) {
				continue
			}
			gvr := groupVersion.WithResource(resource.Name)
			if err := metadataclient.ValidateType(gvr); err != nil {
				invalid = append(invalid, InvalidGroupVersion{GroupVersion: list.GroupVersion, Err: err})
				continue
			}
			types = append(types, Type{GroupVersionResource: gvr, Kind: resource.Kind, Verbs: resource.Verbs})
		}
	}
	slices.SortFunc(types, func(a, b Type) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Version, b.Version))
	})
	return types, invalid
}
