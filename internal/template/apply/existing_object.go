// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// resolveExisting returns a problem if an object exists that must not be adopted. It removes claims of other clients to
// fields that the operator will override or remove. The target then has the version of the object without them.
func (p *pass) resolveExisting(ctx context.Context, target *target, object *plan.Object) error {
	adopt := target.template.Spec.Sync.AdoptionPolicy
	if !object.Own.MustFind(object.Action, adopt) {
		return nil
	}
	found, err := p.existing(ctx, target.manifest.GroupVersionKind(), target.manifest.GetName())
	if err != nil {
		return err
	}
	var current *plan.Observed
	if found != nil {
		current = observe(&found.ObjectMeta)
	}
	mustReset, err := object.Own.CheckExisting(target.manifest, current, object.Action, adopt)
	switch {
	case err != nil:
		return err
	case mustReset:
		_, err := p.Writer.setManagers(ctx, *target, plan.OwnClaims(found.ManagedFields, target.template.Name), "")
		return err
	case current != nil && current.IsShared && object.Action == plan.ActionUpdate:
		return p.disown(ctx, target, object.Own, found)
	}
	return nil
}

// disown removes the claims of other clients to fields that the template drops, so that the API server removes the
// fields when the template is applied.
func (p *pass) disown(
	ctx context.Context, target *target, own plan.Ownership, found *metav1.PartialObjectMetadata,
) error {
	preview, _, err := p.Writer.preview(ctx, *target)
	switch {
	case apierrors.IsInvalid(err), dryrun.IsUnsupported(err):
		return nil // The object is replaced, or the error is that of the change itself; without a preview, claims remain.
	case err != nil:
		return err
	}
	managers, err := plan.Disown(
		found.ManagedFields, preview.GetManagedFields(), target.template.Name, own.Recorded == nil)
	if err != nil || managers == nil {
		return err
	}
	target.resourceVersion, err = p.Writer.setManagers(ctx, *target, managers, found.ResourceVersion)
	if nsobject.IsConflict(err) {
		return fmt.Errorf("%w: %w", plan.ErrUnconfirmed, err)
	}
	return err
}

// setManagers replaces the managedFields of an object, if it exists; in any version if resourceVersion is empty. It
// returns the new version.
func (w *Writer) setManagers(
	ctx context.Context, target target, managers []metav1.ManagedFieldsEntry, resourceVersion string,
) (string, error) {
	prepared, err := w.prepare(target)
	if err != nil {
		return "", err
	}
	if len(managers) == 0 { // The API server ignores an empty list.
		managers = []metav1.ManagedFieldsEntry{{}}
	}
	changes := map[string]any{"managedFields": managers}
	if resourceVersion != "" {
		changes["resourceVersion"] = resourceVersion
	}
	body, err := json.Marshal(map[string]any{"metadata": changes})
	if err != nil {
		return "", fmt.Errorf("failed to encode the managedFields of %s %q: %w",
			target.manifest.GetKind(), target.manifest.GetName(), err)
	}
	response, err := prepared.metadata.Resource(prepared.resource).Namespace(prepared.namespace).
		Patch(ctx, prepared.name, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case nsobject.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("failed to change the managedFields of %s %q: %w",
			target.manifest.GetKind(), target.manifest.GetName(), err)
	}
	return response.ResourceVersion, nil
}

// existing returns the metadata of an object in the API server; nil if it does not exist. The ServiceAccounts of
// templates need no permission to read objects, so the operator uses its own.
func (p *pass) existing(
	ctx context.Context, kind schema.GroupVersionKind, name string,
) (*metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := p.Live.List(ctx, list, client.InNamespace(p.Namespace.Name),
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

// adoptEqual adopts an object of another field manager if only the keys of the operator would change, for example
// because a backup of an object contains those of an earlier Namespace. Otherwise, it returns the conflict. The version
// that is compared is the version that is changed.
func (p *pass) adoptEqual(ctx context.Context, target target, conflict error) (applied, error) {
	current, err := p.Writer.previewUnchanged(ctx, target)
	switch {
	case dryrun.IsUnsupported(err):
		return applied{}, fmt.Errorf("%w; it is unknown whether the object is equal: %w", conflict, err)
	case err != nil:
		return applied{}, err
	}
	target.resourceVersion = current.GetResourceVersion()
	preview, _, err := p.Writer.preview(ctx, target)
	if err == nil && !plan.IsEqual(current, preview) {
		return applied{}, conflict
	}
	var response applied
	if err == nil {
		response, err = p.Writer.apply(ctx, target, true, false)
	}
	if nsobject.IsConflict(err) {
		return applied{}, fmt.Errorf("%w: %w", plan.ErrUnconfirmed, err)
	}
	return response, err
}

// replace deletes an object and creates it again, after the API server has rejected its change as invalid: a right or
// a credential that the template no longer contains must not remain because a field is immutable.
func (p *pass) replace(
	ctx context.Context, target target, revision string, own plan.Ownership, rejected error,
) (applied, error) {
	kind, name := target.manifest.GroupVersionKind(), target.manifest.GetName()
	target.resourceVersion = "" // The new object has none.
	switch isValid, err := p.isValid(ctx, target); {
	case apierrors.IsForbidden(err): // For example, a quota of the users of the namespace has no space for another object.
		return applied{}, plan.Immutable(target.manifest, err.Error(), rejected)
	case err != nil:
		return applied{}, fmt.Errorf("%w; it is unknown whether only the change is invalid: %w", rejected, err)
	case !isValid:
		return applied{}, rejected
	}
	if err := own.CheckReplacement(target.manifest, rejected); err != nil {
		return applied{}, err
	}
	// The template in the cache can be older than the object.
	if err := p.confirm(ctx, target.template, revision); err != nil {
		return applied{}, err
	}
	owner := target.template.Name
	if own.Recorded == nil && own.Created == "" { // The object moves from another template.
		owner = p.State.Other(template.KeyOf(target.manifest), owner)
	}
	isGone, kept, err := p.deleteMarked(ctx, target.template, owner, kind, name, own.Creation())
	switch {
	case errors.Is(err, plan.ErrUnconfirmed):
		return applied{}, err
	case kept != "":
		return applied{}, plan.Immutable(target.manifest, kept, rejected)
	case apierrors.IsForbidden(err):
		return applied{}, plan.Immutable(target.manifest, err.Error(), rejected)
	case err != nil:
		return applied{}, fmt.Errorf("failed to delete %s %q, which cannot be changed: %w", kind.Kind, name, err)
	case !isGone:
		return applied{}, template.Problemf(v1alpha1.ReasonObjectTerminating,
			"the earlier %s %q is being deleted", kind.Kind, name)
	}
	return p.Writer.apply(ctx, target, true, false)
}

// isValid reports whether the API server would create the object of a manifest under another name. If so, it rejects
// only the change of the existing object. It returns an error if this is unknown, for example because of a quota.
func (p *pass) isValid(ctx context.Context, target target) (bool, error) {
	target.manifest = target.manifest.DeepCopy()
	target.manifest.SetName(plan.OtherName(p.Namespace.UID, target.manifest.GetName()))
	response, err := p.Writer.apply(ctx, target, true, true)
	if apierrors.IsInvalid(err) {
		return false, nil
	}
	return !response.existed, err
}
