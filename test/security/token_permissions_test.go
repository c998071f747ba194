// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
)

// permission is one verb on one type or subresource, as RBAC grants it.
type permission struct {
	verb string
	// resource is the name of the type with its group, such as "roles.rbac.authorization.k8s.io".
	resource, subresource string
	// name is empty if the permission is for all objects.
	name string
	// namespace is empty if the permission is for all namespaces.
	namespace string
	// role is the name of the ClusterRole that grants it if the operator fills its rules, otherwise empty.
	role string
}

// fullResource returns the name of the type and the subresource in the table, such as "namespaces/status".
func (p permission) fullResource() string {
	if p.subresource == "" {
		return p.resource
	}
	name, group, hasGroup := strings.Cut(p.resource, ".")
	if hasGroup {
		group = "." + group
	}
	return name + "/" + p.subresource + group
}

// identity is a ServiceAccount whose token the attacker has.
type identity struct{ namespace, name string }

func (i identity) username() string { return "system:serviceaccount:" + i.namespace + ":" + i.name }

// permissionsOf returns the permissions that the bindings of a ServiceAccount grant, except those of all
// ServiceAccounts. It checks that a SelfSubjectRulesReview, the source of `kubectl auth can-i --list`, contains no
// others.
func permissionsOf(ctx context.Context, account identity, types map[string]resource, namespaces ...string) []permission {
	GinkgoHelper()
	found := boundPermissions(ctx, account, types)
	baseline := identity{systemNamespace, fixture} // It has no binding.
	for _, namespace := range namespaces {
		var granted, unbound []string
		for _, one := range found {
			if one.namespace == "" || one.namespace == namespace {
				granted = append(granted, one.key())
			}
		}
		for _, one := range sets.List(reviewed(ctx, account, namespace, types).Difference(reviewed(ctx, baseline, namespace, types))) {
			if !slices.Contains(granted, one) {
				unbound = append(unbound, one)
			}
		}
		Expect(unbound).To(BeEmpty(), "permissions of %s in %s that no binding grants", account.name, namespace)
	}
	return found
}

// filledRoles are the ClusterRoles whose rules the operator writes.
var filledRoles = []string{"nslifecycle-content", "nslifecycle-template-objects"}

// key identifies what the permission allows within a namespace.
func (p permission) key() string { return p.verb + " " + p.fullResource() + " " + p.name }

// boundPermissions returns the permissions of the roles that are bound to a ServiceAccount or to all in its namespace.
func boundPermissions(ctx context.Context, account identity, types map[string]resource) []permission {
	GinkgoHelper()
	isSubject := func(subject rbacv1.Subject) bool {
		return subject.Kind == rbacv1.ServiceAccountKind && subject.Namespace == account.namespace &&
			subject.Name == account.name || subject.Kind == rbacv1.UserKind && subject.Name == account.username() ||
			subject.Kind == rbacv1.GroupKind && subject.Name == "system:serviceaccounts:"+account.namespace
	}
	rbac := cluster.Admin.Clientset().RbacV1()
	var found []permission
	add := func(ref rbacv1.RoleRef, namespace string) {
		var rules []rbacv1.PolicyRule
		if ref.Kind == "Role" {
			role, err := rbac.Roles(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			rules = role.Rules
		} else {
			role, err := rbac.ClusterRoles().Get(ctx, ref.Name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			rules = role.Rules
		}
		for _, rule := range rules {
			Expect(rule.NonResourceURLs).To(BeEmpty(), ref.Name)
			for _, one := range expand(rule, types) {
				one.namespace = namespace
				if slices.Contains(filledRoles, ref.Name) {
					one.role = ref.Name
				}
				if !slices.Contains(found, one) {
					found = append(found, one)
				}
			}
		}
	}
	clusterBindings, err := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, binding := range clusterBindings.Items {
		if slices.ContainsFunc(binding.Subjects, isSubject) {
			add(binding.RoleRef, "")
		}
	}
	bindings, err := rbac.RoleBindings("").List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, binding := range bindings.Items {
		if slices.ContainsFunc(binding.Subjects, isSubject) {
			add(binding.RoleRef, binding.Namespace)
		}
	}
	Expect(found).NotTo(BeEmpty(), "no role is bound to %s", account.name)
	return found
}

// reviewed returns the keys of the permissions that a SelfSubjectRulesReview reports in a namespace.
func reviewed(ctx context.Context, account identity, namespace string, types map[string]resource) sets.Set[string] {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(account.config(ctx))
	Expect(err).NotTo(HaveOccurred())
	review, err := clientset.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	keys := sets.New[string]()
	for _, rule := range review.Status.ResourceRules {
		for _, one := range expand(rbacv1.PolicyRule{
			Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
		}, types) {
			keys.Insert(one.key())
		}
	}
	for _, rule := range review.Status.NonResourceRules {
		for _, url := range rule.NonResourceURLs {
			keys.Insert(strings.Join(rule.Verbs, ",") + " " + url)
		}
	}
	return keys
}

// apiVerbs are the verbs of requests, in the order in which the attacker tries them: first those that keep the object.
var apiVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// expand returns the permissions of a rule. A wildcard stands for the types that the API server serves, without
// subresources, and for the verbs of requests.
func expand(rule rbacv1.PolicyRule, types map[string]resource) []permission {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	verbs := rule.Verbs
	if slices.Contains(verbs, "*") {
		verbs = apiVerbs
	}
	var result []permission
	for _, name := range expandTypes(rule, types) {
		full, group, _ := strings.Cut(name, ".")
		main, subresource, _ := strings.Cut(full, "/")
		for _, verb := range verbs {
			for _, objectName := range names {
				result = append(result, permission{
					verb: verb, resource: schema.GroupResource{Group: group, Resource: main}.String(),
					subresource: subresource, name: objectName,
				})
			}
		}
	}
	return result
}

func expandTypes(rule rbacv1.PolicyRule, types map[string]resource) []string {
	if !slices.Contains(rule.APIGroups, "*") && !slices.Contains(rule.Resources, "*") {
		var names []string
		for _, group := range rule.APIGroups {
			for _, name := range rule.Resources {
				names = append(names, schema.GroupResource{Group: group, Resource: name}.String())
			}
		}
		return names
	}
	var names []string
	for name, one := range types {
		isGroup := slices.Contains(rule.APIGroups, "*") || slices.Contains(rule.APIGroups, one.version.Group)
		if isGroup && (slices.Contains(rule.Resources, "*") || slices.Contains(rule.Resources, one.Name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
