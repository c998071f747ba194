// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcetypes

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

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

// Distinct returns the types without those whose objects another one of the types contains, too.
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
