// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// orphan is an object whose namespace does not exist.
type orphan struct {
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
func (o orphan) String() string { return o.Resource + "/" + printable.Name(o.Name) }

// orphanResult is the result of a search.
type orphanResult struct {
	// orphans are sorted by namespace and type.
	orphans []orphan
	// unread contains the sorted errors of failed reads. Objects that could not be read might be
	// orphans.
	unread []string
}

// orphanFinder finds and deletes orphans. An object is an orphan if it exists both before and after its namespace is
// found missing, with the same UID. Objects that are deleted together with their namespace do not exist afterwards, and
// objects in a new namespace with the same name have another UID.
type orphanFinder struct {
	discoverer resourcetypes.Discoverer
	client     metadata.Interface
	// namespace limits the search to one namespace. If it is empty, the search includes all namespaces.
	namespace string
}

// find finds the orphans. It fails if the namespaces cannot be listed.
func (f *orphanFinder) find(ctx context.Context) (*orphanResult, error) {
	discovered, err := resourcetypes.Discover(ctx, f.discoverer)
	if err != nil {
		return nil, err
	}
	result := &orphanResult{}
	if err := discovered.Err(); err != nil {
		result.unread = append(result.unread, "discovery: "+err.Error())
	}
	contents := resourcetypes.List(ctx, f.client, f.namespace, storedTypes(discovered.Types), resourcetypes.Unlimited)
	// List the namespaces after the objects, so that the namespaces of all listed objects are
	// included.
	existing, err := f.listNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	candidates := newOrphanCandidates(contents, existing)
	for _, content := range contents {
		if content.Err != nil {
			result.unread = append(result.unread, content.Err.Error())
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(candidates.types)) {
		f.confirm(ctx, namespace, candidates, result)
	}
	slices.Sort(result.unread)
	return result, ctx.Err()
}

// storedTypes returns the resource types of stored objects, without those whose objects another type contains.
// It excludes types that cannot be deleted, because an API server computes their objects.
func storedTypes(all []resourcetypes.Type) []resourcetypes.Type {
	return slices.DeleteFunc(resourcetypes.Distinct(all), func(one resourcetypes.Type) bool {
		return !one.Can("list") || !one.Can("delete")
	})
}

// countOrphans returns the numbers of orphans and of their namespaces as text.
func countOrphans(orphans []orphan) (objects, namespaces string) {
	names := sets.Set[string]{}
	for i := range orphans {
		names.Insert(orphans[i].Namespace)
	}
	return printable.Count(len(orphans), "object"), printable.Count(names.Len(), "namespace")
}

// orphanCandidates are objects that might be orphans because their namespace was not listed.
type orphanCandidates struct {
	uids sets.Set[types.UID]
	// types are the resource types of the candidates, by namespace.
	types map[string][]resourcetypes.Type
}

func newOrphanCandidates(contents []resourcetypes.Content, existing sets.Set[string]) *orphanCandidates {
	found := &orphanCandidates{uids: sets.Set[types.UID]{}, types: map[string][]resourcetypes.Type{}}
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
func (f *orphanFinder) confirm(
	ctx context.Context, namespace string, candidates *orphanCandidates, result *orphanResult,
) {
	missing, err := f.isMissing(ctx, namespace)
	if err != nil {
		result.unread = append(result.unread, fmt.Sprintf("failed to get namespace %q: %v", namespace, err))
		return
	}
	if !missing {
		return
	}
	contents := resourcetypes.List(ctx, f.client, namespace, candidates.types[namespace], resourcetypes.Unlimited)
	for _, content := range contents {
		if content.Err != nil {
			result.unread = append(result.unread, fmt.Sprintf("namespace %q: %v", namespace, content.Err))
		}
		for i := range content.Objects {
			if candidates.uids.Has(content.Objects[i].UID) {
				result.orphans = append(result.orphans, newOrphan(content.Type, &content.Objects[i]))
			}
		}
	}
}

func newOrphan(of resourcetypes.Type, object *metav1.PartialObjectMetadata) orphan {
	return orphan{
		Resource: of.String(), APIVersion: of.GroupVersion().String(), Kind: of.Kind,
		Namespace: object.Namespace, Name: object.Name, UID: object.UID,
		CreationTimestamp: object.CreationTimestamp, Finalizers: object.Finalizers,
		gvr: of.GroupVersionResource,
	}
}

func (f *orphanFinder) listNamespaces(ctx context.Context) (sets.Set[string], error) {
	names := sets.Set[string]{}
	namespaces := resourcetypes.Type{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), Verbs: []string{"list"},
	}
	contents := resourcetypes.List(ctx, f.client, "", []resourcetypes.Type{namespaces}, resourcetypes.Unlimited)
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

func (f *orphanFinder) isMissing(ctx context.Context, namespace string) (bool, error) {
	_, err := f.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).
		Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// delete deletes an orphan unless its namespace exists again.
func (f *orphanFinder) delete(ctx context.Context, of *orphan) (orphanOutcome, error) {
	missing, err := f.isMissing(ctx, of.Namespace)
	if err != nil {
		return "", fmt.Errorf("failed to get namespace %q: %w", of.Namespace, err)
	}
	if !missing {
		return outcomeSkipped, nil
	}
	objects := f.client.Resource(of.gvr).Namespace(of.Namespace)
	err = objects.Delete(ctx, of.Name, metav1.DeleteOptions{
		Preconditions:     metav1.NewUIDPreconditions(string(of.UID)),
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	switch {
	case isNamespaceNotFound(err, of.Namespace):
		return outcomeRejected, nil
	case nsobject.IsNotFound(err), nsobject.IsConflict(err):
		return outcomeNotFound, nil
	case err != nil:
		return "", fmt.Errorf("failed to delete %s in namespace %q: %w", of, of.Namespace, err)
	}
	finalizers := of.Finalizers
	remaining, err := objects.Get(ctx, of.Name, metav1.GetOptions{})
	if err == nil {
		finalizers = remaining.Finalizers
	}
	switch {
	case apierrors.IsNotFound(err), err == nil && remaining.UID != of.UID:
		return outcomeDeleted, nil
	case len(finalizers) > 0:
		return outcomeHeld, nil
	case apierrors.IsForbidden(err):
		return outcomeUnknown, nil
	case err != nil:
		return "", fmt.Errorf("failed to verify the deletion of %s in namespace %q: %w", of, of.Namespace, err)
	}
	return outcomeTerminating, nil
}

// isNamespaceNotFound reports whether the API server rejected a request because the namespace, not
// the object, does not exist.
func isNamespaceNotFound(err error, namespace string) bool {
	return err != nil && strings.Contains(err.Error(), fmt.Sprintf("namespaces %q not found", namespace))
}

// orphanOutcome is the result of deleting an orphan.
type orphanOutcome string

// Outcomes.
const (
	outcomeDeleted     orphanOutcome = "deleted"
	outcomeNotFound    orphanOutcome = "already deleted"
	outcomeHeld        orphanOutcome = "terminating, has finalizers"
	outcomeTerminating orphanOutcome = "terminating"
	// outcomeUnknown: the deletion was accepted, but the user is not allowed to get the object.
	outcomeUnknown  orphanOutcome = "deletion requested"
	outcomeSkipped  orphanOutcome = "skipped, its namespace exists"
	outcomeRejected orphanOutcome = "rejected, its namespace does not exist"
)
