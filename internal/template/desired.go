// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// at returns a revision of a template, the latest if it is empty, and the template with the ServiceAccount of
// this revision.
func (p *pass) at(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, revision string,
) (*v1alpha1.NamespaceTemplate, *compiled, error) {
	program := p.Programs.latest(template)
	if revision != "" {
		var err error
		if program, err = p.Programs.get(ctx, template, revision); err != nil {
			return template, nil, err
		}
	}
	if program.account != template.Spec.ServiceAccountName {
		earlier := *template
		earlier.Spec.ServiceAccountName = program.account
		template = &earlier
	}
	return template, program, nil
}

// desired renders a revision of a template for the Namespace. Until the Namespace opens, objects that are created
// afterwards are omitted, and isPartial is true if there are any.
func (p *pass) desired(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, program *compiled,
) (want []desired, isPartial bool, err error) {
	if len(program.errors) > 0 {
		return nil, false, problemf(ReasonInvalidTemplate, "the template is invalid: %w", program.errors.ToAggregate())
	}
	account := &corev1.ServiceAccount{}
	key := client.ObjectKey{Namespace: p.SystemNamespace, Name: template.Spec.ServiceAccountName}
	switch err := p.ServiceAccounts.Get(ctx, key, account); {
	// The API server would allow the impersonation of a ServiceAccount that does not exist.
	case apierrors.IsNotFound(err):
		return nil, false, problemf(ReasonServiceAccountNotFound, "ServiceAccount %q does not exist in namespace %q",
			key.Name, key.Namespace)
	case err != nil:
		return nil, false, fmt.Errorf("failed to get ServiceAccount %q: %w", key, err)
	}
	parameters, err := render.ResolveParameters(program.parameters, p.namespace)
	if err != nil {
		return nil, false, err
	}
	objects, err := program.program.Render(ctx, render.Input{
		Namespace: p.namespace, Parameters: parameters,
		RequestedBy: p.namespace.Annotations[v1alpha1.AnnotationRequestedBy],
	})
	if err != nil {
		return nil, false, err
	}
	want = make([]desired, 0, len(objects))
	for _, object := range objects {
		switch {
		case object.When == v1alpha1.TemplateAfterOpen && p.isInitializing:
			isPartial = true
		case object.Copy != nil && object.Copy.Namespace == p.namespace.Name:
			// The namespace of the source contains the object itself.
			p.sources[keyOf(identityOf(*object.Copy, p.namespace.Name))] = true
		default:
			want = append(want, p.complete(ctx, template, object))
		}
	}
	if p.count += len(want); p.count > maxObjects {
		return nil, false, problemf(ReasonTooManyObjects,
			"the templates of the namespace contain more than %d objects", maxObjects)
	}
	return want, isPartial, nil
}

// complete returns a rendered object or a copy, and its hash.
func (p *pass) complete(ctx context.Context, template *v1alpha1.NamespaceTemplate, object render.Object) desired {
	want := desired{name: object.Name, manifest: object.Manifest, when: object.When, isLocked: object.Locked}
	if object.Copy == nil {
		want.content = ObjectContent(object.Manifest, object.Locked)
		return want
	}
	var source sourceContent
	// The watch of the source requires the same permission as that of the copy.
	resource := resourceOf(object.Copy).GroupResource()
	if want.err = p.permitWatch(ctx, template, resource, object.Copy.Name); want.err == nil {
		source, want.err = p.Sources.get(ctx, template, *object.Copy)
	}
	if want.err == nil {
		want.manifest, want.err = copyOf(source.object, p.namespace.Name)
	}
	if want.err != nil {
		want.manifest = identityOf(*object.Copy, p.namespace.Name)
		return want
	}
	want.content = hashOf(source.id, object.Locked)
	return want
}
