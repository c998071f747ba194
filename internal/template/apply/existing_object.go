// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// resolveExisting returns a problem if an object exists that must not be adopted. It removes the managedFields of an
// object that the operator will override.
func (p *pass) resolveExisting(ctx context.Context, target target, object *plan.Object) error {
	adopt, current := target.template.Spec.Sync.AdoptionPolicy, object.Own.Current
	if object.Own.MustFind(object.Action, adopt) {
		found, err := p.existing(ctx, target.manifest.GroupVersionKind(), target.manifest.GetName())
		if err != nil {
			return err
		}
		if found != nil {
			current = &plan.Observed{UID: found.UID, IsCrowded: plan.IsCrowded(found.ManagedFields)}
		}
	}
	mustReset, err := object.Own.CheckExisting(target.manifest, current, object.Action, adopt)
	if err != nil || !mustReset {
		return err
	}
	return p.Writer.resetManagers(ctx, target)
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
func (p *pass) adoptEqual(
	ctx context.Context, target target, conflict error,
) (*metav1.PartialObjectMetadata, error) {
	current, err := p.Writer.previewUnchanged(ctx, target)
	switch {
	case dryrun.IsUnsupported(err):
		return nil, fmt.Errorf("%w; it is unknown whether the object is equal: %w", conflict, err)
	case err != nil:
		return nil, err
	}
	target.resourceVersion = current.GetResourceVersion()
	applied, err := p.Writer.preview(ctx, target)
	if err == nil && !plan.IsEqual(current, applied) {
		return nil, conflict
	}
	var response *metav1.PartialObjectMetadata
	if err == nil {
		response, _, err = p.Writer.apply(ctx, target, true, false)
	}
	if nsobject.IsConflict(err) {
		return nil, fmt.Errorf("%w: %w", plan.ErrUnconfirmed, err)
	}
	return response, err
}

// replace deletes an object and creates it again, after the API server has rejected its change as invalid: a right or
// a credential that the template no longer contains must not remain because a field is immutable.
func (p *pass) replace(
	ctx context.Context, target target, revision string, own plan.Ownership, rejected error,
) (response *metav1.PartialObjectMetadata, existed bool, err error) {
	kind, name := target.manifest.GroupVersionKind(), target.manifest.GetName()
	switch isValid, err := p.isValid(ctx, target); {
	case apierrors.IsForbidden(err): // For example, a quota of the users of the namespace has no space for another object.
		return nil, true, plan.Immutable(target.manifest, err.Error(), rejected)
	case err != nil:
		return nil, true, fmt.Errorf("%w; it is unknown whether only the change is invalid: %w", rejected, err)
	case !isValid:
		return nil, true, rejected
	}
	if err := own.CheckReplacement(target.manifest, rejected); err != nil {
		return nil, true, err
	}
	// The template in the cache can be older than the object.
	if err := p.confirm(ctx, target.template, revision); err != nil {
		return nil, true, err
	}
	account := target.template.Spec.ServiceAccountName
	isGone, err := p.Writer.delete(ctx, account, p.Namespace.Name, kind, name, own.Creation())
	switch {
	case nsobject.IsConflict(err):
		return nil, true, plan.Immutable(target.manifest, "another client has created it", rejected)
	case apierrors.IsForbidden(err):
		return nil, true, plan.Immutable(target.manifest, err.Error(), rejected)
	case err != nil:
		return nil, true, fmt.Errorf("failed to delete %s %q, which cannot be changed: %w", kind.Kind, name, err)
	case !isGone:
		return nil, true, template.Problemf(v1alpha1.ReasonObjectTerminating,
			"the earlier %s %q is being deleted", kind.Kind, name)
	}
	p.Recorder.Wrote(target.template.Name, plan.ActionDelete)
	return p.Writer.apply(ctx, target, true, false)
}

// isValid reports whether the API server would create the object of a manifest under another name. If so, it rejects
// only the change of the existing object. It returns an error if this is unknown, for example because of a quota.
func (p *pass) isValid(ctx context.Context, target target) (bool, error) {
	target.manifest = target.manifest.DeepCopy()
	target.manifest.SetName(plan.OtherName(p.Namespace.UID, target.manifest.GetName()))
	_, existed, err := p.Writer.apply(ctx, target, true, true)
	if apierrors.IsInvalid(err) {
		return false, nil
	}
	return !existed, err
}
