// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
		kept, err := "", unconfirmed
		if err == nil {
			kept, err = p.removeObject(ctx, removal.Template, object)
		}
		p.Removed(removal, object, kept, err)
	}
}

// removeObject deletes an object that the operator has created. It returns an error unless the object does not exist
// any more, or why the object is kept.
func (p *pass) removeObject(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, object template.ObjectState,
) (kept string, err error) {
	if template.IsMetadata(object.Kind) {
		return p.removeMetadata(ctx, tmpl, object)
	}
	resource, err := p.Writer.ResourceOf(object.Kind.WithVersion(""))
	if err != nil {
		if template.ToProblem("", "", err).Reason == v1alpha1.ReasonKindNotFound {
			err = p.Writer.confirmUnserved(ctx, object.Kind)
		}
		return "", err
	}
	if err := p.permitWatch(ctx, tmpl, "delete", resource.GroupResource(), object.Name); err != nil {
		return "", err
	}
	kind := object.Kind.WithVersion(resource.Version)
	isGone, kept, err := p.deleteMarked(ctx, tmpl, tmpl.Name, kind, object.Name, object.UID)
	switch {
	case err != nil, kept != "":
		return kept, err
	case !isGone:
		return "", template.Problemf(v1alpha1.ReasonObjectTerminating, "it is being deleted")
	}
	return "", nil
}

// deleteMarked deletes an object with a UID with the permissions of a template, if the object in the API server proves
// that the operator has written it for its owner, which is a template. Otherwise, it returns why the object is kept. It
// reports whether the object does not exist any more.
func (p *pass) deleteMarked(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, owner string, kind schema.GroupVersionKind, name string,
	uid types.UID,
) (isGone bool, kept string, err error) {
	current, err := p.existing(ctx, kind, name)
	if err != nil || current == nil {
		return current == nil, "", err
	}
	if kept := plan.CheckMark(owner, p.Namespace.UID, uid, &current.ObjectMeta); kept != "" {
		return false, kept, nil
	}
	preconditions := metav1.Preconditions{UID: &uid}
	if current.ResourceVersion != "" { // Some aggregated API servers assign none.
		preconditions.ResourceVersion = &current.ResourceVersion
	}
	isGone, err = p.Writer.delete(ctx, tmpl.Spec.ServiceAccountName, p.Namespace.Name, kind, name, preconditions)
	if nsobject.IsConflict(err) {
		err = plan.ErrUnconfirmed
	}
	if err == nil && isGone {
		p.Recorder.Wrote(tmpl.Name, plan.ActionDelete)
	}
	return isGone, "", err
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
