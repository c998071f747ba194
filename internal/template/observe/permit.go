// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// The operator watches the objects of templates with its own permissions, which a ClusterRole grants for the types that
// templates contain.
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=nslifecycle-template-objects,verbs=get;update;escalate
// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,verbs=list
// The ServiceAccounts of templates, and of objects in templates.
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=list;watch
// The permissions of RoleBindings in templates.
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles;roles,verbs=list

// WatchPermissions is the ClusterRole with the types that the operator may watch.
type WatchPermissions interface {
	Has(ctx context.Context, resource schema.GroupResource) bool
	Add(ctx context.Context, resource schema.GroupResource) error
}

// Permissions let the operator watch the types of objects.
type Permissions struct {
	WatchPermissions
	// Client sends SubjectAccessReviews.
	Client client.Client
	// SystemNamespace is the namespace of the ServiceAccounts of templates.
	SystemNamespace string
}

// Permit lets the operator watch the type of an object, if the ServiceAccount of the template has a verb for it.
// Otherwise, an author whose template is not authorized could extend the permissions of the operator.
func (p *Permissions) Permit(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, verb string, resource schema.GroupResource,
	namespace, name string,
) error {
	if p.Has(ctx, resource) {
		return nil
	}
	account := tmpl.Spec.ServiceAccountName
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: p.SystemNamespace, Name: account}
	isAllowed, err := review(ctx, p.Client, subject, &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: verb, Group: resource.Group, Resource: resource.Resource, Name: name,
	})
	switch {
	case err != nil:
		return err
	case !isAllowed:
		return template.Problemf(v1alpha1.ReasonForbidden,
			"ServiceAccount %q cannot %s %s %q in namespace %q", account, verb, resource, name, namespace)
	}
	return p.Add(ctx, resource)
}
