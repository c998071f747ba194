// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// Account is a ServiceAccount with the permissions of a controller.
type Account struct {
	Name types.NamespacedName
	// Binding is the name of the ClusterRoleBinding. Permission is the resource that the account may
	// write, such as widgets/finalizers.
	Binding, Permission string
}

func (a *Account) text() string {
	return fmt.Sprintf(textServiceAccountMissing, a.Binding, a.Name, a.Permission)
}

// Controllers returns the ServiceAccounts that may write the finalizers or the status of custom
// resources like the given objects. Only controllers have these permissions: the default roles for
// users do not grant them. Rules for all API groups are ignored, because many identities have them.
func Controllers(facts *diagnosis.Facts, objects []diagnosis.RemainingObject) []Account {
	granting := map[string]string{}
	for i := range facts.ClusterRoles {
		if permission := controllerPermission(facts, &facts.ClusterRoles[i], objects); permission != "" {
			granting[facts.ClusterRoles[i].Name] = permission
		}
	}
	var accounts []Account
	for i := range facts.ClusterRoleBindings {
		binding := &facts.ClusterRoleBindings[i]
		permission, ok := granting[binding.RoleRef.Name]
		if !ok {
			continue
		}
		for _, subject := range binding.Subjects {
			if subject.Kind == rbacv1.ServiceAccountKind && facts.MayName(subject.Namespace) {
				name := types.NamespacedName{Namespace: subject.Namespace, Name: subject.Name}
				accounts = append(accounts, Account{name, binding.Name, permission})
			}
		}
	}
	return accounts
}

// controllerPermission returns the resource that a role allows to write, or "".
func controllerPermission(
	facts *diagnosis.Facts, role *rbacv1.ClusterRole, objects []diagnosis.RemainingObject,
) string {
	for _, rule := range role.Rules {
		if !containsAny(rule.Verbs, "update", "patch", rbacv1.VerbAll) {
			continue
		}
		for _, object := range objects {
			isCustom := slices.Contains(facts.CRDNames, object.Type.String())
			if !isCustom || !slices.Contains(rule.APIGroups, object.Group) {
				continue
			}
			for _, subresource := range []string{"/finalizers", "/status"} {
				resource := object.Resource + subresource
				if containsAny(rule.Resources, resource, "*"+subresource, rbacv1.ResourceAll) {
					return resource + "." + object.Group
				}
			}
		}
	}
	return ""
}

func containsAny(list []string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(list, name) })
}
