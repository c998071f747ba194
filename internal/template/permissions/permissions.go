// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"cmp"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

const (
	verbCreate = "create"
	verbPatch  = "patch"
	verbDelete = "delete"

	resourceServiceAccounts = "serviceaccounts"

	uncertainName = "an expression computes the name or the kind, and not every name is permitted"
	uncertainRole = "the Role is not in the template, and the ServiceAccount may hold its permissions"
)

// Permission is a request that must be allowed. Without a namespace, it must be allowed in every namespace.
type Permission struct {
	authorizationv1.ResourceAttributes
	// Uncertain is why the requests of the template can be allowed although this one is denied.
	Uncertain string
	// Instead are sufficient in place of this permission: users can grant what they hold themselves.
	Instead []Permission
	// DryRun is the manifest of an object for which this permission is required, unless the user holds the
	// permissions that the object grants. Only a dry run shows whether this is the case.
	DryRun *unstructured.Unstructured
}

// String describes the request.
func (p Permission) String() string {
	resource := schema.GroupResource{Group: p.Group, Resource: p.Resource}.String()
	if p.Subresource != "" {
		resource += "/" + p.Subresource
	}
	text := p.Verb + " " + resource
	if p.Name != "" {
		text += fmt.Sprintf(" %q", p.Name)
	}
	if p.Namespace != "" {
		text += fmt.Sprintf(" in namespace %q", p.Namespace)
	}
	return text
}

// SubjectOf returns the RBAC subject for a user name.
func SubjectOf(name string) rbacv1.Subject {
	if namespace, account, err := serviceaccount.SplitUsername(name); err == nil {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}
	}
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

// Grant is what one Role or ClusterRole must permit to a subject.
type Grant struct {
	Subject rbacv1.Subject
	// IsForOperator is true if the subject is the operator, and not the ServiceAccount of the template.
	IsForOperator bool
	// Namespace is the namespace of the Role; empty for a ClusterRole.
	Namespace   string
	Permissions []Permission
}

// Input is what the permissions depend on.
type Input struct {
	Spec *v1alpha1.NamespaceTemplateSpec
	// Previous is the revision that Namespaces still contain and that new ones get; nil if there is none.
	Previous *v1alpha1.NamespaceTemplateSpec
	// SystemNamespace is the namespace of the operator and the ServiceAccounts.
	SystemNamespace string
	// ResourceOf returns the resource of a namespaced kind.
	ResourceOf func(schema.GroupVersionKind) (schema.GroupVersionResource, error)
}

// For returns what the ServiceAccount of a template must be granted. It returns errors for kinds whose resources are
// unknown.
func For(in Input) (Grant, []error) {
	c := &collector{Input: in, held: maxHeld}
	c.grant.Subject = rbacv1.Subject{
		Kind: rbacv1.ServiceAccountKind, Namespace: in.SystemNamespace, Name: in.Spec.ServiceAccountName,
	}
	c.add(Permission{ResourceAttributes: authorizationv1.ResourceAttributes{
		Version: corev1.SchemeGroupVersion.Version, Verb: v1alpha1.VerbProvision, Resource: "namespaces",
	}})
	c.revision(in.Spec, false)
	if in.Previous != nil {
		// The ServiceAccount of a previous revision applies it, but that of the latest one prunes its objects.
		c.revision(in.Previous, in.Previous.ServiceAccountName != in.Spec.ServiceAccountName)
	}
	return c.grant, c.errs
}

// collector collects permissions.
type collector struct {
	Input
	grant Grant
	errs  []error
	// held is the number of permissions of Roles that can still be listed one by one.
	held int
}

func (c *collector) add(permission Permission) {
	for i := range c.grant.Permissions {
		known := &c.grant.Permissions[i]
		if known.ResourceAttributes != permission.ResourceAttributes {
			continue
		}
		// Two Roles with one name can have different rules.
		if len(known.Instead) > 0 && len(permission.Instead) > 0 {
			known.Instead = union(known.Instead, permission.Instead)
		} else {
			known.Instead = nil
			known.Uncertain = cmp.Or(known.Uncertain, permission.Uncertain)
		}
		if !grantsEqual(known.DryRun, permission.DryRun) {
			known.DryRun = nil
		}
		return
	}
	c.grant.Permissions = append(c.grant.Permissions, permission)
}

// union returns the permissions that are in either list.
func union(a, b []Permission) []Permission {
	all := slices.Clone(a)
	for _, permission := range b {
		if !slices.ContainsFunc(a, func(known Permission) bool {
			return known.ResourceAttributes == permission.ResourceAttributes
		}) {
			all = append(all, permission)
		}
	}
	return all
}

// grantsEqual reports whether the manifests of Roles or RoleBindings grant the same.
func grantsEqual(a, b *unstructured.Unstructured) bool {
	if a == nil || b == nil {
		return a == b
	}
	return apiequality.Semantic.DeepEqual(a.Object["rules"], b.Object["rules"]) &&
		apiequality.Semantic.DeepEqual(a.Object["roleRef"], b.Object["roleRef"])
}

// revision adds what the metadata and the objects of a revision require.
func (c *collector) revision(spec *v1alpha1.NamespaceTemplateSpec, isDeletedOnly bool) {
	if spec.Metadata != nil {
		c.add(Permission{ResourceAttributes: authorizationv1.ResourceAttributes{
			Version: corev1.SchemeGroupVersion.Version, Verb: verbPatch, Resource: "namespaces",
		}})
	}
	policy := spec.ObjectRetentionPolicy
	removesAny := policy.WhenRemoved != v1alpha1.RetentionRetain ||
		policy.WhenDeselected == v1alpha1.RetentionDelete || policy.WhenDeleted == v1alpha1.RetentionDelete
	targets := c.targetsOf(spec)
	for _, target := range targets {
		if !isDeletedOnly {
			c.add(permissionTo(verbCreate, target.resource, target.name))
			c.add(permissionTo(verbPatch, target.resource, target.name))
		}
		hasImmutableFields := replaceable[target.kind.GroupKind()]
		if removesAny || hasImmutableFields != nil && hasImmutableFields(target.manifest) {
			c.add(permissionTo(verbDelete, target.resource, target.name))
		}
		if !isDeletedOnly {
			c.grantable(target, targets)
		}
	}
}

func permissionTo(verb string, resource schema.GroupVersionResource, name string) Permission {
	permission := Permission{ResourceAttributes: authorizationv1.ResourceAttributes{
		Group: resource.Group, Version: resource.Version, Resource: resource.Resource, Verb: verb, Name: name,
	}}
	if name == "" {
		permission.Uncertain = uncertainName
	}
	return permission
}

// target is an object in every Namespace.
type target struct {
	object   v1alpha1.TemplateObject
	kind     schema.GroupVersionKind
	resource schema.GroupVersionResource
	// name is empty if an expression computes it.
	name string
	// manifest is nil for a copy.
	manifest map[string]any
	// isExplicit is true if the object is a Role whose permissions are known. They are held then.
	isExplicit bool
	held       []Permission
}

// targetsOf returns the objects of a revision whose resources are known.
func (c *collector) targetsOf(spec *v1alpha1.NamespaceTemplateSpec) []target {
	targets := make([]target, 0, len(spec.Objects))
	for _, object := range spec.Objects {
		found := target{object: object}
		if object.SourceRef != nil {
			found.kind = corev1.SchemeGroupVersion.WithKind(object.SourceRef.Kind)
			found.name = object.SourceRef.Name
		} else if manifest, ok := template.ManifestOf(object); ok {
			found.kind, found.manifest = manifest.GroupVersionKind(), manifest.Object
			found.name, _ = render.Literal(manifest.GetName())
		} else {
			continue // The condition Valid reports it.
		}
		var err error
		if found.resource, err = c.ResourceOf(found.kind); err != nil {
			c.errs = append(c.errs, err)
			continue
		}
		if found.kind.GroupKind() == roleKind {
			found.held, found.isExplicit = c.heldBy(found.manifest)
		}
		targets = append(targets, found)
	}
	return targets
}

// replaceable has the kinds with immutable fields whose objects contain only configuration or permissions. It reports
// whether a manifest sets such a field.
var replaceable = map[schema.GroupKind]func(manifest map[string]any) bool{
	{Kind: "ConfigMap"}: func(manifest map[string]any) bool {
		_, ok := manifest["immutable"]
		return ok
	},
	{Kind: "ResourceQuota"}: func(manifest map[string]any) bool {
		spec, isMap := manifest["spec"].(map[string]any)
		return !isMap || spec["scopes"] != nil || spec["scopeSelector"] != nil
	},
	{Kind: "Secret"}:  always,
	{Kind: "Service"}: always,
	roleBindingKind:   always,
}

func always(map[string]any) bool { return true }

// MayReplace reports whether the operator may delete an object of a kind and create it again to change an immutable
// field. It never replaces an object of another kind, because the deletion can delete data or stop a program.
func MayReplace(kind schema.GroupKind) bool { return replaceable[kind] != nil }

// Impersonation returns what the operator must be granted to impersonate a ServiceAccount.
func Impersonation(operator rbacv1.Subject, systemNamespace, serviceAccount string) Grant {
	return impersonation(operator, authorizationv1.ResourceAttributes{
		Namespace: systemNamespace, Verb: "impersonate", Resource: resourceServiceAccounts, Name: serviceAccount,
	})
}

func impersonation(operator rbacv1.Subject, attributes authorizationv1.ResourceAttributes) Grant {
	return Grant{
		Subject: operator, IsForOperator: true, Namespace: attributes.Namespace,
		Permissions: []Permission{{ResourceAttributes: attributes}},
	}
}

// ConstrainedImpersonation returns what the operator must be granted instead for the requests that the account's grant
// is for (KEP-5284). The first grant is for the ServiceAccount.
func ConstrainedImpersonation(
	operator rbacv1.Subject, systemNamespace, serviceAccount string, account Grant,
) []Grant {
	ofAccount := impersonation(operator, authorizationv1.ResourceAttributes{
		Namespace: systemNamespace, Verb: "impersonate:serviceaccount", Group: authenticationv1.GroupName,
		Resource: resourceServiceAccounts, Name: serviceAccount,
	})
	requests := Grant{Subject: operator, IsForOperator: true}
	for _, permission := range account.Permissions {
		switch permission.Verb {
		case verbPatch, verbDelete: // The operator sends no other requests.
			permission.Verb = "impersonate-on:serviceaccount:" + permission.Verb
			requests.Permissions = append(requests.Permissions, permission)
		}
	}
	return []Grant{ofAccount, requests}
}
