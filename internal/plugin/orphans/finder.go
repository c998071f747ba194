// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/metadata"

	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// Orphan is an object whose namespace does not exist.
type Orphan struct {
	Resource          string      `json:"resource"`
	APIVersion        string      `json:"apiVersion"`
	Kind              string      `json:"kind"`
	Namespace         string      `json:"namespace"`
	Name              string      `json:"name"`
	UID               types.UID   `json:"uid"`
	CreationTimestamp metav1.Time `json:"creationTimestamp"`
	Finalizers        []string    `json:"finalizers,omitempty"`

	gvr schema.GroupVersionResource
}

// String returns the type and the name as kubectl prints them.
func (o Orphan) String() string { return o.Resource + "/" + printable.Name(o.Name) }

// Result is the result of a search.
type Result struct {
	// Orphans are sorted by namespace and type.
	Orphans []Orphan
	// Unread contains the sorted errors of failed reads. Objects that could not be read might be
	// orphans.
	Unread []string
}

// Finder finds and deletes orphans.
type Finder struct {
	Discoverer resourcetypes.Discoverer
	Client     metadata.Interface
	// Namespace limits the search to one namespace. If it is empty, the search includes all namespaces.
	Namespace string
}

// Find finds the orphans. It fails if the namespaces cannot be listed.
func (f *Finder) Find(ctx context.Context) (*Result, error) {
	discovered, err := resourcetypes.Discover(ctx, f.Discoverer)
	if err != nil {
		return nil, err
	}
	result := &Result{}
	if err := discovered.Err(); err != nil {
		result.Unread = append(result.Unread, "discovery: "+err.Error())
	}
	contents := resourcetypes.List(ctx, f.Client, f.Namespace, StoredTypes(discovered.Types), resourcetypes.Unlimited)
	// List the namespaces after the objects, so that the namespaces of all listed objects are
	// included.
	existing, err := f.listNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	candidates := newCandidates(contents, existing)
	for _, content := range contents {
		if content.Err != nil {
			result.Unread = append(result.Unread, content.Err.Error())
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(candidates.types)) {
		f.confirm(ctx, namespace, candidates, result)
	}
	slices.Sort(result.Unread)
	return result, ctx.Err()
}

// StoredTypes returns the resource types of stored objects, without those whose objects another type contains.
// It excludes types that cannot be deleted, because an API server computes their objects.
func StoredTypes(all []resourcetypes.Type) []resourcetypes.Type {
	return slices.DeleteFunc(resourcetypes.Distinct(all), func(one resourcetypes.Type) bool {
		return !one.Can("list") || !one.Can("delete")
	})
}

// CountNamespaces returns the number of distinct namespaces of the given orphans.
func CountNamespaces(orphans []Orphan) int {
	names := sets.Set[string]{}
	for i := range orphans {
		names.Insert(orphans[i].Namespace)
	}
	return names.Len()
}

// candidates are objects that might be orphans because their namespace was not listed.
type candidates struct {
	uids sets.Set[types.UID]
	// types are the resource types of the candidates, by namespace.
	types map[string][]resourcetypes.Type
}

func newCandidates(contents []resourcetypes.Content, existing sets.Set[string]) *candidates {
	found := &candidates{uids: sets.Set[types.UID]{}, types: map[string][]resourcetypes.Type{}}
	for _, content := range contents {
		missing := sets.Set[string]{}
		for i := range content.Objects {
			if object := &content.Objects[i]; !existing.Has(object.Namespace) {
				found.uids.Insert(object.UID)
				missing.Insert(object.Namespace)
			}
		}
		for namespace := range missing {
			found.types[namespace] = append(found.types[namespace], content.Type)
		}
	}
	return found
}

// confirm adds the orphans among the candidates of one namespace to the result.
func (f *Finder) confirm(ctx context.Context, namespace string, candidates *candidates, result *Result) {
	missing, err := f.isMissing(ctx, namespace)
	if err != nil {
		result.Unread = append(result.Unread, fmt.Sprintf("failed to get namespace %q: %v", namespace, err))
		return
	}
	if !missing {
		return
	}
	contents := resourcetypes.List(ctx, f.Client, namespace, candidates.types[namespace], resourcetypes.Unlimited)
	for _, content := range contents {
		if content.Err != nil {
			result.Unread = append(result.Unread, fmt.Sprintf("namespace %q: %v", namespace, content.Err))
		}
		for i := range content.Objects {
			if candidates.uids.Has(content.Objects[i].UID) {
				result.Orphans = append(result.Orphans, newOrphan(content.Type, &content.Objects[i]))
			}
		}
	}
}

func newOrphan(of resourcetypes.Type, object *metav1.PartialObjectMetadata) Orphan {
	return Orphan{
		Resource: of.String(), APIVersion: of.GroupVersion().String(), Kind: of.Kind,
		Namespace: object.Namespace, Name: object.Name, UID: object.UID,
		CreationTimestamp: object.CreationTimestamp, Finalizers: object.Finalizers,
		gvr: of.GroupVersionResource,
	}
}

func (f *Finder) listNamespaces(ctx context.Context) (sets.Set[string], error) {
	names := sets.Set[string]{}
	namespaces := resourcetypes.Type{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), Verbs: []string{"list"},
	}
	contents := resourcetypes.List(ctx, f.Client, "", []resourcetypes.Type{namespaces}, resourcetypes.Unlimited)
	for _, content := range contents {
		if content.Err != nil {
			return nil, fmt.Errorf("failed to list namespaces, which is required to find orphans: %w", content.Err)
		}
		for i := range content.Objects {
			names.Insert(content.Objects[i].Name)
		}
	}
	return names, nil
}

// isMissing reports whether a namespace does not exist.
func (f *Finder) isMissing(ctx context.Context, namespace string) (bool, error) {
	_, err := f.Client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).
		Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}
