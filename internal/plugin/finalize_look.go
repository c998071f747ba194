// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/internal/inventory"
)

// forcer reads and writes what finalize needs, for one namespace.
type forcer struct {
	name       string
	config     *rest.Config
	namespaces corev1client.NamespaceInterface
	metadata   metadata.Interface
	discoverer inventory.Discoverer
}

func (s *session) newForcer(name string) (*forcer, error) {
	config, err := s.restConfig()
	if err != nil {
		return nil, err
	}
	namespaces, err := s.namespaces()
	if err != nil {
		return nil, err
	}
	discoverer, objects, err := s.contentClients()
	if err != nil {
		return nil, err
	}
	return &forcer{
		name: name, config: config, namespaces: namespaces, metadata: objects, discoverer: discoverer,
	}, nil
}

// look reads the Namespace and the metadata of everything in it. It leaves the diagnosis
// to the caller.
func (f *forcer) look(ctx context.Context) (*predicament, error) {
	namespace, err := f.namespaces.Get(ctx, f.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no namespace %q", f.name)
	case err != nil:
		return nil, fmt.Errorf("reading namespace %q: %w", f.name, err)
	}
	facts := &predicament{namespace: namespace}
	discovered, err := inventory.Discover(ctx, f.discoverer)
	if err != nil {
		facts.unread = append(facts.unread, err.Error())
		return facts, nil
	}
	if err := discovered.Err(); err != nil {
		facts.unread = append(facts.unread, "discovery of "+err.Error())
	}
	facts.add(inventory.List(ctx, f.metadata, f.name, discovered.Types, inventory.Unlimited))
	return facts, ctx.Err()
}

// add takes in what was listed. Objects that are served by two groups count once, and
// those that cannot be deleted are no objects of anybody's, such as the metrics of pods.
func (p *predicament) add(contents []inventory.Content) {
	seen := map[types.UID]bool{}
	for _, content := range contents {
		if !content.Type.Can("delete") && !content.Type.Can("deletecollection") {
			continue
		}
		if content.Err != nil {
			p.unread = append(p.unread, content.Err.Error())
		}
		for _, object := range content.Objects {
			if seen[object.UID] {
				continue
			}
			seen[object.UID] = true
			p.remnants = append(p.remnants, remnant{
				Resource: content.Type.String(), Kind: content.Type.Kind, Name: object.Name, UID: object.UID,
				ResourceVersion: object.ResourceVersion, Finalizers: object.Finalizers,
				IsTerminating: object.DeletionTimestamp != nil, served: content.Type,
			})
		}
	}
	slices.SortFunc(p.remnants, compareRemnants)
}

// whatChanged returns what is not any more as a plan shows it. Only what the removal is
// about counts: the Namespace, the objects that would lose a finalizer, and the orphans.
func whatChanged(planned *plan, now *predicament) []string {
	if now.namespace.UID != planned.UID {
		return []string{fmt.Sprintf("the Namespace was created anew at %s",
			now.namespace.CreationTimestamp.UTC().Format(time.RFC3339))}
	}
	var changes []string
	// Its conditions change while others finish, which is nothing to who frees an object.
	if planned.Removal.Finalizer == "" && now.namespace.ResourceVersion != planned.ResourceVersion {
		changes = append(changes, "the Namespace was written to")
	}
	present := map[types.UID]*remnant{}
	for i := range now.remnants {
		present[now.remnants[i].UID] = &now.remnants[i]
	}
	concerned := slices.Concat(planned.Targets, planned.Orphans)
	shown := map[types.UID]bool{}
	for i := range concerned {
		shown[concerned[i].UID] = true
		switch object := present[concerned[i].UID]; {
		case object == nil:
			changes = append(changes, concerned[i].String()+" is gone")
		case object.ResourceVersion != concerned[i].ResourceVersion && !isEvent(object):
			changes = append(changes, object.String()+" was written to")
		}
	}
	if !planned.endsDeletion() {
		return changes
	}
	// Whatever is new, or cannot be seen any more, would be orphaned without anybody's
	// knowing.
	for i := range now.remnants {
		if !shown[now.remnants[i].UID] {
			changes = append(changes, now.remnants[i].String()+" is new")
		}
	}
	for _, unread := range now.unread {
		if !slices.Contains(planned.Unread, unread) {
			changes = append(changes, "something cannot be read any more: "+unread)
		}
	}
	return changes
}

// isEvent tells whether an object is an Event. They are counted up all the time, and
// nobody misses the last one.
func isEvent(object *remnant) bool {
	return object.Resource == "events" || object.Resource == "events.events.k8s.io"
}
