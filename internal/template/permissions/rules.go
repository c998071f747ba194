// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// namePrefix is the prefix of the names of RBAC objects for a template.
const namePrefix = "nslifecycle:template:"

// Objects returns the RBAC objects for a grant: a ClusterRole and a ClusterRoleBinding, or a Role and a
// RoleBinding. They contain all its permissions, so they can replace objects for an earlier revision.
func (g Grant) Objects(template string) []client.Object {
	name := namePrefix + template
	if g.IsForOperator {
		name += ":operator"
	}
	metadata := metav1.ObjectMeta{Namespace: g.Namespace, Name: name, Labels: map[string]string{
		internalv1alpha1.LabelName: internalv1alpha1.Name, v1alpha1.LabelPermissionsOf: template,
	}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Name: name}
	if g.Namespace != "" {
		ref.Kind = kindRole
		return []client.Object{
			&rbacv1.Role{TypeMeta: typeOf(kindRole), ObjectMeta: metadata, Rules: Rules(g.Permissions)},
			&rbacv1.RoleBinding{
				TypeMeta: typeOf(kindRoleBinding), ObjectMeta: metadata, RoleRef: ref, Subjects: []rbacv1.Subject{g.Subject},
			},
		}
	}
	ref.Kind = kindClusterRole
	return []client.Object{
		&rbacv1.ClusterRole{TypeMeta: typeOf(kindClusterRole), ObjectMeta: metadata, Rules: Rules(g.Permissions)},
		&rbacv1.ClusterRoleBinding{
			TypeMeta: typeOf("ClusterRoleBinding"), ObjectMeta: metadata, RoleRef: ref, Subjects: []rbacv1.Subject{g.Subject},
		},
	}
}

// ServiceAccount returns the ServiceAccount of a template.
func ServiceAccount(namespace, name string) client.Object {
	return &corev1.ServiceAccount{
		TypeMeta: metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: rbacv1.ServiceAccountKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
			internalv1alpha1.LabelName: internalv1alpha1.Name,
		}},
	}
}

// YAML returns objects of this package as YAML documents, each after a separator.
func YAML(objects []client.Object) string {
	var text strings.Builder
	for _, object := range objects {
		encoded, _ := yaml.Marshal(object) // Encoding these types cannot fail.
		text.WriteString("---\n" + string(encoded))
	}
	return text.String()
}

// ruleKey is a rule with one resource, one verb and at most one name.
type ruleKey struct {
	group, resource, verb, name string
}

// Rules returns the rules that grant permissions, sorted. They grant nothing else.
func Rules(permissions []Permission) []rbacv1.PolicyRule {
	granted := sets.Set[ruleKey]{}
	for _, permission := range permissions {
		sufficient := []Permission{permission}
		if len(permission.Instead) > 0 { // `escalate` and `bind` would also permit to grant other permissions later.
			sufficient = permission.Instead
		}
		for _, one := range sufficient {
			resource := one.Resource
			if one.Subresource != "" {
				resource += "/" + one.Subresource
			}
			granted.Insert(ruleKey{one.Group, resource, one.Verb, one.Name})
		}
	}
	var rules []rbacv1.PolicyRule
	for key := range granted {
		rule := rbacv1.PolicyRule{
			APIGroups: []string{key.group}, Resources: []string{key.resource}, Verbs: []string{key.verb},
		}
		if key.name != "" {
			if granted.Has(ruleKey{key.group, key.resource, key.verb, ""}) {
				continue // The rule for all names includes it.
			}
			rule.ResourceNames = []string{key.name}
		}
		rules = append(rules, rule)
	}
	rules = merge(rules, func(rule *rbacv1.PolicyRule) *[]string { return &rule.Verbs })
	rules = merge(rules, func(rule *rbacv1.PolicyRule) *[]string { return &rule.ResourceNames })
	rules = merge(rules, func(rule *rbacv1.PolicyRule) *[]string { return &rule.Resources })
	slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(slices.Compare(a.APIGroups, b.APIGroups), slices.Compare(a.Resources, b.Resources),
			slices.Compare(a.ResourceNames, b.ResourceNames), slices.Compare(a.Verbs, b.Verbs))
	})
	return rules
}

// merge merges rules that differ only in one field, unless it is empty: a rule without names is for all names.
func merge(rules []rbacv1.PolicyRule, field func(*rbacv1.PolicyRule) *[]string) []rbacv1.PolicyRule {
	var merged []rbacv1.PolicyRule
	indexes := map[string]int{}
	for _, rule := range rules {
		values := *field(&rule)
		*field(&rule) = nil
		key := fmt.Sprintf("%q %t", rule, len(values) > 0)
		index, ok := indexes[key]
		if !ok {
			index = len(merged)
			indexes[key] = index
			merged = append(merged, rule)
		}
		*field(&merged[index]) = append(*field(&merged[index]), values...)
	}
	for i := range merged {
		slices.Sort(*field(&merged[i]))
	}
	return merged
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}
