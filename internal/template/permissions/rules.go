// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"cmp"
	"maps"
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

// ruleKey is what permissions that one rule grants have in common.
type ruleKey struct {
	group, resources, verbs, names string
}

// separator is in no string that the API server has decoded, because it is not valid UTF-8.
const separator = "\xff"

// Rules returns the rules that grant permissions, sorted. They grant nothing else.
func Rules(permissions []Permission) []rbacv1.PolicyRule {
	verbs := map[ruleKey]sets.Set[string]{}
	for _, permission := range explicit(permissions) {
		resource := permission.Resource
		if permission.Subresource != "" {
			resource += "/" + permission.Subresource
		}
		add(verbs, ruleKey{group: permission.Group, resources: resource, names: permission.Name}, permission.Verb)
	}
	names := map[ruleKey]sets.Set[string]{}
	for key, of := range verbs {
		if key.names != "" { // The verbs without a name include those with names.
			of = of.Difference(verbs[ruleKey{group: key.group, resources: key.resources}])
		}
		if of.Len() > 0 {
			add(names, ruleKey{group: key.group, resources: key.resources, verbs: join(of)}, key.names)
		}
	}
	resources := map[ruleKey]sets.Set[string]{}
	for key, of := range names {
		if of.Has("") {
			add(resources, ruleKey{group: key.group, verbs: key.verbs}, key.resources)
			of = of.Clone().Delete("")
		}
		if of.Len() > 0 {
			add(resources, ruleKey{group: key.group, verbs: key.verbs, names: join(of)}, key.resources)
		}
	}
	rules := make([]rbacv1.PolicyRule, 0, len(resources))
	for key, of := range resources {
		rule := rbacv1.PolicyRule{
			APIGroups: []string{key.group}, Resources: sets.List(of), Verbs: strings.Split(key.verbs, separator),
		}
		if key.names != "" {
			rule.ResourceNames = strings.Split(key.names, separator)
		}
		rules = append(rules, rule)
	}
	slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(slices.Compare(a.APIGroups, b.APIGroups), slices.Compare(a.Resources, b.Resources),
			slices.Compare(a.ResourceNames, b.ResourceNames), slices.Compare(a.Verbs, b.Verbs))
	})
	return rules
}

// explicit replaces permissions by those that are sufficient instead: `escalate` and `bind` would also permit
// to grant other permissions later.
func explicit(permissions []Permission) []Permission {
	var result []Permission
	for _, permission := range permissions {
		if len(permission.Instead) > 0 {
			result = append(result, permission.Instead...)
		} else {
			result = append(result, permission)
		}
	}
	return result
}

func add(to map[ruleKey]sets.Set[string], key ruleKey, value string) {
	if to[key] == nil {
		to[key] = sets.New[string]()
	}
	to[key].Insert(value)
}

func join(values sets.Set[string]) string {
	return strings.Join(slices.Sorted(maps.Keys(values)), separator)
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}
