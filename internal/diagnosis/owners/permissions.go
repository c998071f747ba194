// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// Account is a ServiceAccount with the permissions of a controller.
type Account struct {
	Name types.NamespacedName
	// Binding is the name of the ClusterRoleBinding. Permission is the resource that the account may
	// write, such as widgets/finalizers.
	Binding, Permission string
}

func (a *Account) text() string {
	return fmt.Sprintf("ClusterRoleBinding %q refers to ServiceAccount %s, which may write %s but does not exist",
		a.Binding, a.Name, a.Permission)
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

// MaxChecked limits both the number of ServiceAccounts and the number of permissions to check.
const MaxChecked = 20

// ExternalFinalizers returns the overdue finalizers and namespace finalizers that Kubernetes itself
// does not remove, with the objects that have them.
func ExternalFinalizers(facts *diagnosis.Facts) map[string][]diagnosis.RemainingObject {
	result := map[string][]diagnosis.RemainingObject{}
	for finalizer, objects := range facts.OverdueByFinalizer() {
		if known, ok := Known(finalizer, objects); !ok || !known.IsBuiltIn() {
			result[finalizer] = objects
		}
	}
	for _, name := range append(facts.ExternalNamespaceFinalizers(), facts.Namespace.Finalizers...) {
		if _, ok := result[name]; !ok {
			result[name] = nil
		}
	}
	return result
}

// AccessReview is a request to check whether a ServiceAccount may change the objects of a type.
type AccessReview struct {
	ServiceAccount types.NamespacedName
	Type           resourcetypes.Type
}

// AccessReviewsNeeded returns the access reviews for the ServiceAccounts of possible owners.
func AccessReviewsNeeded(facts *diagnosis.Facts) []AccessReview {
	var reviews []AccessReview
	add := func(account types.NamespacedName, objects []diagnosis.RemainingObject) {
		for _, object := range objects {
			isDuplicate := slices.ContainsFunc(reviews, func(other AccessReview) bool {
				return other.ServiceAccount == account && other.Type.GroupVersionResource == object.GroupVersionResource
			})
			if !isDuplicate && len(reviews) < MaxChecked {
				reviews = append(reviews, AccessReview{account, object.Type})
			}
		}
	}
	for finalizer, all := range diagnosis.Sorted(ExternalFinalizers(facts)) {
		for _, objects := range GroupByOwner(finalizer, all) {
			for _, workload := range Find(facts, finalizer, objects).Workloads {
				add(workload.ServiceAccount, objects)
			}
		}
	}
	return reviews
}

// ServiceAccountsNeeded returns the ServiceAccounts of possible owners.
func ServiceAccountsNeeded(facts *diagnosis.Facts) []types.NamespacedName {
	names := InitializerAccounts(facts)
	for _, objects := range diagnosis.Sorted(ExternalFinalizers(facts)) {
		for _, account := range Controllers(facts, objects) {
			if !slices.Contains(names, account.Name) && len(names) < MaxChecked {
				names = append(names, account.Name)
			}
		}
	}
	return names
}
