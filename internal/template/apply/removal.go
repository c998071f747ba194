// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// remove deletes the objects of a removal.
func (p *pass) remove(ctx context.Context, removal *plan.Removal) {
	if len(removal.Objects) == 0 {
		return
	}
	unconfirmed := p.confirm(ctx, removal.Template, removal.Revision)
	for _, object := range removal.Objects {
		isReplaced, err := false, unconfirmed
		if err == nil {
			isReplaced, err = p.removeObject(ctx, removal.Template, object)
		}
		p.Removed(removal, object, isReplaced, err)
	}
}

// removeObject deletes an object that the operator has created. It returns an error unless the object does not exist
// any more. It reports whether another client has created another one instead. The label of the object does not matter,
// since its users can remove it.
func (p *pass) removeObject(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, object template.ObjectState,
) (isReplaced bool, err error) {
	if template.IsMetadata(object.Kind) {
		return p.removeMetadata(ctx, tmpl, object)
	}
	resource, err := p.Writer.ResourceOf(object.Kind.WithVersion(""))
	if err != nil {
		if template.ToProblem("", "", err).Reason == v1alpha1.ReasonKindNotFound {
			err = p.Writer.confirmUnserved(ctx, object.Kind)
		}
		return false, err
	}
	kind, account := object.Kind.WithVersion(resource.Version), tmpl.Spec.ServiceAccountName
	isGone, err := p.Writer.delete(ctx, account, p.Namespace.Name, kind, object.Name, object.UID)
	switch {
	case nsobject.IsConflict(err):
		if err := p.permitWatch(ctx, tmpl, resource.GroupResource(), object.Name); err != nil {
			return false, err
		}
		current, err := p.existing(ctx, kind, object.Name)
		if err == nil && current != nil && current.UID == object.UID {
			err = plan.ErrUnconfirmed
		}
		return current != nil, err
	case err != nil:
		return false, err
	case !isGone:
		return false, template.Problemf(v1alpha1.ReasonObjectTerminating, "it is being deleted")
	}
	p.Recorder.Wrote(tmpl.Name, plan.ActionDelete)
	return false, nil
}

// confirm reads the Namespace and the template from the API server. It returns an error unless they are
// as in the cache, and the revision is one that Namespaces must contain now.
func (p *pass) confirm(ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, revision string) error {
	namespace := &corev1.Namespace{}
	if err := p.Live.Get(ctx, client.ObjectKeyFromObject(p.Namespace), namespace); err != nil {
		return fmt.Errorf("failed to get namespace %q: %w", p.Namespace.Name, err)
	}
	live := &v1alpha1.NamespaceTemplate{}
	if err := p.Live.Get(ctx, client.ObjectKeyFromObject(tmpl), live); err != nil {
		return fmt.Errorf("failed to get NamespaceTemplate %q: %w", tmpl.Name, err)
	}
	if !p.IsConfirmed(namespace, live, tmpl, revision, p.Records.Rollout(tmpl.UID).Current) {
		return plan.ErrUnconfirmed
	}
	return nil
}
