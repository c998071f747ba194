// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// awaitEffective adds the objects to the result that a new Namespace waits for.
func (p *pass) awaitEffective(ctx context.Context) {
	for _, selected := range p.Selected {
		for _, object := range selected.Objects {
			if object.Err != nil || !p.MustAwait(selected.Template) {
				continue
			}
			if err := p.checkEffective(ctx, object); err != nil {
				p.Await(selected, object, err, func() error {
					return p.confirmNotEffective(ctx, selected.Template, object.Manifest)
				})
			}
		}
	}
}

// confirmNotEffective returns an error unless the API server confirms that the Namespace waits for an object of the
// template: the deadline decides about a deletion. For RoleBindings, checkEffective has asked the API server.
func (p *pass) confirmNotEffective(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, manifest *unstructured.Unstructured,
) error {
	if err := p.confirm(ctx, tmpl, ""); err != nil {
		return err
	}
	if manifest.GroupVersionKind().GroupKind() != quotas.GroupKind() {
		return nil
	}
	var live corev1.ResourceQuotaList
	if err := p.Live.List(ctx, &live, client.InNamespace(p.Namespace.Name),
		client.MatchingFields{metav1.ObjectNameField: manifest.GetName()}); err != nil {
		return fmt.Errorf("failed to list ResourceQuota %q: %w", manifest.GetName(), err)
	}
	for i := range live.Items {
		if !isCounted(&live.Items[i]) {
			return nil
		}
	}
	return plan.ErrUnconfirmed
}
