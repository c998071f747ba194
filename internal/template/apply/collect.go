// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// collect reads what the templates contain, and what the Namespace contains of them. It returns the first error that
// concerns the whole pass, after it has started all watches that the next pass needs.
func (p *pass) collect(ctx context.Context, templates []*v1alpha1.NamespaceTemplate) error {
	var errs []error
	for _, tmpl := range templates {
		selected := p.Add(tmpl)
		mustApply, err := p.chooseRevision(selected)
		if err == nil && mustApply {
			err = p.render(ctx, selected)
		}
		if err != nil {
			p.Keep(selected)
			errs = append(errs, p.fail(selected, "", err))
		}
		for _, object := range selected.Objects {
			if object.Err != nil {
				continue
			}
			if object.Err = p.prepareObject(ctx, selected, object); object.Err != nil {
				errs = append(errs, p.fail(selected, object.Name, object.Err))
			}
		}
	}
	return cmp.Or(errs...)
}

// render determines the objects of the revision of a template that the Namespace gets.
func (p *pass) render(ctx context.Context, selected *plan.Selected) error {
	program := p.Programs.latest(selected.Template)
	if revision := selected.Outcome.Revision; revision != "" {
		var err error
		if program, err = p.Programs.get(ctx, selected.Template, revision); err != nil {
			return err
		}
	}
	if program.account != selected.Template.Spec.ServiceAccountName {
		earlier := *selected.Template
		earlier.Spec.ServiceAccountName = program.account
		selected.Template = &earlier
	}
	if len(program.errors) > 0 {
		return template.Problemf(v1alpha1.ReasonInvalidTemplate, "the template is invalid: %w", program.errors.ToAggregate())
	}
	account := &corev1.ServiceAccount{}
	key := client.ObjectKey{Namespace: p.SystemNamespace, Name: program.account}
	switch err := p.ServiceAccounts.Get(ctx, key, account); {
	// The API server would allow the impersonation of a ServiceAccount that does not exist.
	case apierrors.IsNotFound(err):
		return template.Problemf(v1alpha1.ReasonServiceAccountNotFound,
			"ServiceAccount %q does not exist in namespace %q", key.Name, key.Namespace)
	case err != nil:
		return fmt.Errorf("failed to get ServiceAccount %q: %w", key, err)
	}
	parameters, err := render.ResolveParameters(program.parameters, p.Namespace)
	if err != nil {
		return err
	}
	objects, err := program.program.Render(ctx, render.Input{
		Namespace: p.Namespace, Parameters: parameters,
		RequestedBy: p.Namespace.Annotations[v1alpha1.AnnotationRequestedBy],
	})
	if err != nil {
		return err
	}
	return p.Contain(selected, program.contents, p.metadata(program), objects)
}

// prepareObject reads the source of an object that is a copy, and the metadata of the object in the Namespace. It
// permits and starts the watch of its kind if necessary.
func (p *pass) prepareObject(ctx context.Context, selected *plan.Selected, object *plan.Object) error {
	if object.IsMetadata() {
		return p.Decide(selected, object, p.observeMetadata(object.Key()))
	}
	if object.IsCopy {
		if err := p.copy(ctx, object); err != nil {
			return err
		}
	}
	kind, name := object.Manifest.GroupVersionKind(), object.Manifest.GetName()
	resource, err := p.Writer.ResourceOf(kind)
	if err != nil {
		return err
	}
	if err := p.permitWatch(ctx, selected.Template, "patch", resource.GroupResource(), name); err != nil {
		return err
	}
	if err := p.Objects.ensure(ctx, kind); err != nil {
		return err
	}
	current, err := p.Objects.get(kind, p.Namespace.Name, name)
	if err != nil {
		return err
	}
	return p.Decide(selected, object, current)
}

// copy sets the content of an object that is a copy.
func (p *pass) copy(ctx context.Context, object *plan.Object) error {
	source, err := p.Sources.get(ctx, v1alpha1.TemplateSourceReference{
		Kind: object.Manifest.GetKind(), Name: object.Manifest.GetName(),
	})
	if err != nil {
		return err
	}
	metadata := object.Manifest.Object["metadata"]
	manifest, err := copyOf(source, metadata)
	if err != nil {
		return err
	}
	object.Manifest, object.Content = manifest, template.HashOf(contentID(source), metadata, object.IsLocked)
	return nil
}
