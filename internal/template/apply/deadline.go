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
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// awaitEffective adds the objects to the result that a new Namespace waits for, and applies the deadlines. It adds the
// RoleBindings of an initialized Namespace that grant nothing. It returns errors that concern the whole pass.
func (p *pass) awaitEffective(ctx context.Context) error {
	for _, selected := range p.Selected {
		p.Expire(selected, func(found template.Problem) error { return p.confirmProblem(ctx, selected.Template, found) })
		for _, object := range selected.Objects {
			if err := p.awaitObject(ctx, selected, object); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pass) awaitObject(ctx context.Context, selected *plan.Selected, object *plan.Object) error {
	switch {
	case object.Err != nil:
	case !p.IsInitializing:
		if object.Err = p.checkRole(ctx, object); object.Err != nil {
			return p.fail(selected, object.Name, object.Err)
		}
	case p.MustAwait(selected.Template):
		if err := p.checkEffective(ctx, object); err != nil {
			p.Await(selected, object, err, func() error {
				return p.confirmNotEffective(ctx, selected.Template, object.Manifest)
			})
		}
	}
	return nil
}

// confirmProblem returns an error unless the API server confirms that a template has a problem: the deadline decides
// about a deletion. The API server itself has refused an object; only the ServiceAccount is read from a cache.
func (p *pass) confirmProblem(ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, found template.Problem) error {
	if err := p.confirm(ctx, tmpl, ""); err != nil || found.Reason != v1alpha1.ReasonServiceAccountNotFound {
		return err
	}
	var accounts corev1.ServiceAccountList
	if err := p.Live.List(ctx, &accounts, client.InNamespace(p.SystemNamespace),
		client.MatchingFields{metav1.ObjectNameField: tmpl.Spec.ServiceAccountName}); err != nil {
		return fmt.Errorf("failed to list ServiceAccount %q: %w", tmpl.Spec.ServiceAccountName, err)
	}
	if len(accounts.Items) > 0 {
		return plan.ErrUnconfirmed
	}
	return nil
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
