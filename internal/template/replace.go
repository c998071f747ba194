// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/nswrite"
)

// replace deletes an object and creates it again, after the API server has rejected its change as invalid: a right or
// a credential that the template no longer contains must not remain because a field is immutable.
func (p *pass) replace(
	ctx context.Context, target target, revision string, want desired, own ownership, rejected error,
) (response *metav1.PartialObjectMetadata, existed bool, err error) {
	kind, name := want.manifest.GroupVersionKind(), want.manifest.GetName()
	switch isValid, err := p.isValid(ctx, target, want.manifest); {
	case apierrors.IsForbidden(err): // For example, a quota of the users of the namespace has no space for another object.
		return nil, true, immutable(want.manifest, err.Error(), rejected)
	case err != nil:
		return nil, true, fmt.Errorf("%w; it is unknown whether only the change is invalid: %w", rejected, err)
	case !isValid:
		return nil, true, rejected
	}
	isAllowed, reason := own.mayReplace(kind.GroupKind())
	if isAllowed && !namesField(rejected) {
		// The name that isValid uses can matter to an admission policy, which then also rejects the new object.
		isAllowed, reason = false, "an admission policy or webhook rejects the change"
	}
	if !isAllowed {
		return nil, true, immutable(want.manifest, reason, rejected)
	}
	// The template in the cache can be older than the object.
	if err := p.confirm(ctx, target.template, revision); err != nil {
		return nil, true, err
	}
	object := ObjectState{APIVersion: want.manifest.GetAPIVersion(), Kind: kind.Kind, ObjectName: name}
	account := target.template.Spec.ServiceAccountName
	isGone, err := p.Writer.delete(ctx, account, p.namespace.Name, object, own.creation())
	switch {
	case nswrite.IsConflict(err):
		return nil, true, immutable(want.manifest, "another client has created it", rejected)
	case apierrors.IsForbidden(err):
		return nil, true, immutable(want.manifest, err.Error(), rejected)
	case err != nil:
		return nil, true, fmt.Errorf("failed to delete %s %q, which cannot be changed: %w", kind.Kind, name, err)
	case !isGone:
		return nil, true, problemf(ReasonTerminating, "the earlier %s %q is being deleted", kind.Kind, name)
	}
	p.Recorder.Wrote(target.template.Name, ActionDelete)
	return p.Writer.apply(ctx, target, want.manifest, metav1.PatchOptions{Force: ptr.To(true)})
}

func immutable(manifest *unstructured.Unstructured, reason string, rejected error) error {
	return problemf(ReasonFieldImmutable, "%s %q cannot be changed, and is not replaced, because %s; the operator "+
		"creates it again after you delete it: %w", manifest.GetKind(), manifest.GetName(), reason, rejected)
}

// namesField reports whether the API server has rejected the value of a field. Admission policies name none.
func namesField(rejected error) bool {
	var status apierrors.APIStatus
	return errors.As(rejected, &status) && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
}

// isValid reports whether the API server would create the object of a manifest under another name. If so, it rejects
// only the change of the existing object. It returns an error if this is unknown, for example because of a quota.
func (p *pass) isValid(ctx context.Context, target target, manifest *unstructured.Unstructured) (bool, error) {
	const maxName = 39 // The names of some kinds are limited to 52 characters, and a hash has 12.
	other, name := manifest.DeepCopy(), manifest.GetName()
	other.SetName(name[:min(len(name), maxName)] + "x" + hashOf(p.namespace.UID, name))
	options := metav1.PatchOptions{Force: ptr.To(true), DryRun: []string{metav1.DryRunAll}}
	_, existed, err := p.Writer.apply(ctx, target, other, options)
	if apierrors.IsInvalid(err) {
		return false, nil
	}
	return !existed, err
}
