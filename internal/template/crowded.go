// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// maxManagers is the number of entries in the managedFields of an object from which the operator writes it only after
// it has removed them. The time that the API server takes for any other write grows faster than the square of the
// number: with 1,000 entries, which every user who can change the object can add, it exceeds the timeout of a request.
const maxManagers = 64

func isCrowded(entries []metav1.ManagedFieldsEntry) bool { return len(entries) > maxManagers }

// checkExisting returns a problem if an object exists that must not be adopted. It removes the managedFields of an
// object that the operator will override. The cache lacks objects without the label of a template; for them, it reads
// the metadata from the API server, but not in a new Namespace, in which users cannot write.
func (p *pass) checkExisting(ctx context.Context, target target, want desired, own ownership, decided Action) error {
	kind, name, adopt := want.manifest.GroupVersionKind(), want.manifest.GetName(), target.template.Spec.Sync.Adopt
	isNew, current := decided == ActionCreate, own.current
	if current == nil && (!p.isInitializing || isNew && adopt == v1alpha1.AdoptNever) {
		found, err := p.existing(ctx, kind, name)
		if err != nil {
			return err
		}
		if found != nil {
			current = &observed{uid: found.UID, isCrowded: isCrowded(found.ManagedFields)}
		}
	}
	switch {
	case current == nil:
		return nil
	case isNew && adopt == v1alpha1.AdoptNever && own.created != current.uid:
		return problemf(ReasonAlreadyExists, "%s %q exists already, and the template does not adopt objects", kind.Kind, name)
	case !current.isCrowded:
		return nil
	case isNew && adopt != v1alpha1.AdoptAlways:
		return problemf(ReasonConflict, "%s %q has more than %d entries in its managedFields: remove them", kind.Kind, name,
			maxManagers)
	}
	return p.Writer.resetManagers(ctx, target, want.manifest)
}

// existing returns the metadata of an object in the API server; nil if it does not exist. The ServiceAccounts of
// templates need no permission to read objects, so the operator uses its own.
func (p *pass) existing(
	ctx context.Context, kind schema.GroupVersionKind, name string,
) (*metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := p.Live.List(ctx, list, client.InNamespace(p.namespace.Name),
		client.MatchingFields{metav1.ObjectNameField: name})
	if err != nil {
		p.Writer.resetIfUnserved(err)
		return nil, fmt.Errorf("failed to list %s %q: %w", kind.Kind, name, err)
	}
	for i := range list.Items {
		if list.Items[i].Name == name {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}
