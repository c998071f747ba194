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

	"github.com/nslifecycle/nslifecycle/internal/inventory"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// What became of an orphan that was to be deleted.
const (
	outcomeDeleted = "deleted"
	outcomeGone    = "had gone already"
	outcomeHeld    = "marked as deleted, and held by its finalizers"
	outcomeHome    = "left alone, since its namespace exists now"
	outcomeRefused = "refused, since its namespace does not exist"
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

// String returns type and name as kubectl writes them.
func (o orphan) String() string { return o.Resource + "/" + printable.Name(o.Name) }

// orphans is what a search has found, sorted.
type orphans struct {
	orphans []orphan
	// unread says where there may be more.
	unread []string
}

// orphanSearch looks for orphans.
type orphanSearch struct {
	discoverer inventory.Discoverer
	client     metadata.Interface
}

func (s *session) newOrphanSearch() (*orphanSearch, error) {
	discoverer, client, err := s.contentClients()
	if err != nil {
		return nil, err
	}
	return &orphanSearch{discoverer: discoverer, client: client}, nil
}

// run searches the cluster. An object is an orphan if it was there, then its namespace was
// not, and then it was there still, by its UID: so it did not merely go with its namespace,
// and it was not made for a new one. It fails where the namespaces cannot be listed: no
// object could be called an orphan then.
func (s *orphanSearch) run(ctx context.Context) (*orphans, error) {
	discovered, err := inventory.Discover(ctx, s.discoverer)
	if err != nil {
		return nil, err
	}
	result := &orphans{}
	if err := discovered.Err(); err != nil {
		result.unread = append(result.unread, fmt.Sprintf("types are not known: %v", err))
	}
	candidates := inventory.List(ctx, s.client, "", storedTypes(discovered.Types), inventory.Unlimited)
	// After the objects: a namespace that was created in between is one that exists.
	existing, err := s.listNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	suspects := newSuspects(candidates, existing)
	for _, content := range candidates {
		if content.Err != nil {
			result.unread = append(result.unread, content.Err.Error())
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(suspects.types)) {
		s.confirm(ctx, namespace, suspects, result)
	}
	slices.Sort(result.unread)
	return result, ctx.Err()
}

// suspects are the objects that were in none of the namespaces which exist.
type suspects struct {
	uids sets.Set[types.UID]
	// types are those of the suspects in each missing namespace, in their order.
	types map[string][]inventory.Type
}

func newSuspects(candidates []inventory.Content, existing sets.Set[string]) *suspects {
	found := &suspects{uids: sets.Set[types.UID]{}, types: map[string][]inventory.Type{}}
	for _, content := range candidates {
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

// confirm adds the suspects of one namespace that are orphans.
func (s *orphanSearch) confirm(ctx context.Context, namespace string, suspects *suspects, result *orphans) {
	isMissing, err := s.isMissing(ctx, namespace)
	if err != nil {
		result.unread = append(result.unread, fmt.Sprintf("whether namespace %q exists is not known: %v", namespace, err))
		return
	}
	if !isMissing {
		return
	}
	for _, content := range inventory.List(ctx, s.client, namespace, suspects.types[namespace], inventory.Unlimited) {
		if content.Err != nil {
			result.unread = append(result.unread, fmt.Sprintf("in namespace %q: %v", namespace, content.Err))
		}
		for i := range content.Objects {
			if suspects.uids.Has(content.Objects[i].UID) {
				result.orphans = append(result.orphans, newOrphan(content.Type, &content.Objects[i]))
			}
		}
	}
}

func newOrphan(of inventory.Type, object *metav1.PartialObjectMetadata) orphan {
	return orphan{
		Resource: of.String(), APIVersion: of.GroupVersion().String(), Kind: of.Kind,
		Namespace: object.Namespace, Name: object.Name, UID: object.UID,
		CreationTimestamp: object.CreationTimestamp, Finalizers: object.Finalizers,
		gvr: of.GroupVersionResource,
	}
}

func (s *orphanSearch) listNamespaces(ctx context.Context) (sets.Set[string], error) {
	names := sets.Set[string]{}
	listed := inventory.Type{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), Verbs: []string{"list"},
	}
	for _, content := range inventory.List(ctx, s.client, "", []inventory.Type{listed}, inventory.Unlimited) {
		if content.Err != nil {
			return nil, fmt.Errorf("without the namespaces nothing can be called an orphan: %w", content.Err)
		}
		for i := range content.Objects {
			names.Insert(content.Objects[i].Name)
		}
	}
	return names, nil
}

// isMissing asks for one namespace.
func (s *orphanSearch) isMissing(ctx context.Context, namespace string) (bool, error) {
	_, err := s.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).
		Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// delete deletes one orphan, unless its namespace exists by now.
func (s *orphanSearch) delete(ctx context.Context, one *orphan) (outcome string, err error) {
	isMissing, err := s.isMissing(ctx, one.Namespace)
	if err != nil {
		return "", fmt.Errorf("asking whether namespace %q exists: %w", one.Namespace, err)
	}
	if !isMissing {
		return outcomeHome, nil
	}
	objects := s.client.Resource(one.gvr).Namespace(one.Namespace)
	err = objects.Delete(ctx, one.Name, metav1.DeleteOptions{
		Preconditions:     metav1.NewUIDPreconditions(string(one.UID)),
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	switch {
	case isNamespaceRefusal(err, one.Namespace):
		return outcomeRefused, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return outcomeGone, nil
	case err != nil:
		return "", fmt.Errorf("deleting %s in namespace %q: %w", one, one.Namespace, err)
	}
	left, err := objects.Get(ctx, one.Name, metav1.GetOptions{})
	if err == nil && left.UID == one.UID {
		return outcomeHeld, nil
	}
	return outcomeDeleted, nil
}

// isNamespaceRefusal tells whether a request was refused since the namespace is missing,
// and not the object.
func isNamespaceRefusal(err error, namespace string) bool {
	return err != nil && strings.Contains(err.Error(), fmt.Sprintf("namespaces %q not found", namespace))
}

func countNamespaces(orphans []orphan) int {
	names := sets.Set[string]{}
	for i := range orphans {
		names.Insert(orphans[i].Namespace)
	}
	return names.Len()
}
