// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

var (
	roleKind        = schema.GroupKind{Group: rbacv1.GroupName, Kind: kindRole}
	roleBindingKind = schema.GroupKind{Group: rbacv1.GroupName, Kind: kindRoleBinding}

	roles        = schema.GroupVersionResource{Group: rbacv1.GroupName, Version: "*", Resource: "roles"}
	clusterRoles = schema.GroupVersionResource{Group: rbacv1.GroupName, Version: "*", Resource: "clusterroles"}
)

const (
	kindRole        = "Role"
	kindRoleBinding = "RoleBinding"
	kindClusterRole = "ClusterRole"

	verbBind     = "bind"
	verbEscalate = "escalate"

	// maxHeld limits the permissions of the Roles in a template that are listed one by one. Roles with more
	// require `escalate`.
	maxHeld = 256
)

// heldBy returns the permissions that the rules of a Role grant, one by one. It returns false if an expression
// computes a rule, or if there are too many.
func (c *collector) heldBy(manifest map[string]any) ([]Permission, bool) {
	var decoded rbacv1.Role
	rules := map[string]any{"rules": manifest["rules"]}
	if !render.IsLiteral(rules) || runtime.DefaultUnstructuredConverter.FromUnstructured(rules, &decoded) != nil {
		return nil, false
	}
	count := 0
	for _, rule := range decoded.Rules {
		count += len(rule.APIGroups) * len(rule.Resources) * len(rule.Verbs) * max(1, len(rule.ResourceNames))
	}
	if count > c.held {
		return nil, false
	}
	c.held -= count
	held := make([]Permission, 0, count)
	for _, rule := range decoded.Rules {
		held = append(held, listed(rule)...)
	}
	return held, true
}

// listed returns the permissions that a rule grants, one by one.
func listed(rule rbacv1.PolicyRule) []Permission {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var permissions []Permission
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, subresource, _ := strings.Cut(resource, "/")
			for _, name := range names {
				for _, verb := range rule.Verbs {
					permissions = append(permissions, Permission{ResourceAttributes: authorizationv1.ResourceAttributes{
						Group: group, Resource: resource, Subresource: subresource, Name: name, Verb: verb,
					}})
				}
			}
		}
	}
	return permissions
}

// grantable adds what the API server requires of users who grant permissions: to hold them, or to have the verb
// `escalate` on the Role or `bind` on the role of the RoleBinding.
func (c *collector) grantable(object target, all []target) {
	switch object.kind.GroupKind() {
	case roleKind:
		permission := permissionTo(verbEscalate, roles, object.name)
		if !object.isExplicit && object.name != "" && render.IsLiteral(object.manifest["rules"]) {
			permission.DryRun = manifestOf(object, "rules", object.manifest["rules"])
		}
		c.require(permission, object)
	case roleBindingKind:
		kind, name := roleRefOf(object.manifest)
		if kind == "" {
			name = ""
		}
		if kind != kindRole {
			permission := permissionTo(verbBind, clusterRoles, name)
			if name != "" {
				permission.DryRun = manifestOf(object, "roleRef", map[string]any{
					"apiGroup": rbacv1.GroupName, "kind": kind, "name": name,
				})
			}
			c.add(permission)
		}
		if kind != kindClusterRole {
			permission, role := permissionTo(verbBind, roles, name), roleOf(object, name, all)
			if name != "" && !role.isExplicit {
				permission.Uncertain = uncertainRole
			}
			c.require(permission, role)
		}
	}
}

// require adds a permission that is required unless the permissions of a Role are held.
func (c *collector) require(permission Permission, role target) {
	permission.Instead = role.held
	if !role.isExplicit || len(role.held) > 0 { // A Role without rules can be created and bound by every user.
		c.add(permission)
	}
}

// manifestOf returns the manifest of an object with one field. The name is empty if an expression computes it.
func manifestOf(object target, key string, value any) *unstructured.Unstructured {
	manifest := &unstructured.Unstructured{Object: map[string]any{key: value}}
	manifest.SetGroupVersionKind(object.kind)
	manifest.SetName(object.name)
	return manifest.DeepCopy()
}

// roleOf returns the Role in the template that a RoleBinding refers to, if it exists whenever the RoleBinding does.
func roleOf(binding target, name string, all []target) target {
	var found []target
	for _, other := range all {
		if other.kind.GroupKind() == roleKind && (other.name == name || other.name == "") {
			found = append(found, other)
		}
	}
	isLate := func(of target) bool { return of.object.NamespaceState == v1alpha1.NamespaceStateInitialized }
	if name == "" || len(found) != 1 || found[0].object.IncludeWhen != binding.object.IncludeWhen ||
		isLate(found[0]) != isLate(binding) || found[0].object.ForEach != binding.object.ForEach {
		return target{}
	}
	return found[0]
}

// roleRefOf returns the kind and the name of the role of a RoleBinding; empty if an expression computes them.
func roleRefOf(manifest map[string]any) (kind, name string) {
	ref, _ := manifest["roleRef"].(map[string]any)
	kind, _ = ref["kind"].(string)
	name, _ = ref["name"].(string)
	kind, _ = render.Literal(kind)
	name, _ = render.Literal(name)
	return kind, name
}
