// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"errors"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

const system = "system"

func resourceOf(kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	if kind.Kind == "Unknown" {
		return schema.GroupVersionResource{}, errors.New("not served")
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural, nil
}

// specOf returns a spec with manifests in YAML.
func specOf(t *testing.T, manifests ...string) *v1alpha1.NamespaceTemplateSpec {
	t.Helper()
	spec := &v1alpha1.NamespaceTemplateSpec{ServiceAccountName: "account"}
	for _, manifest := range manifests {
		raw, err := yaml.YAMLToJSON([]byte(manifest))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		spec.Objects = append(spec.Objects, v1alpha1.TemplateObject{Template: &runtime.RawExtension{Raw: raw}})
	}
	return spec
}

const (
	configMap  = "{apiVersion: v1, kind: ConfigMap, metadata: {name: config}}"
	limitRange = "{apiVersion: v1, kind: LimitRange, metadata: {name: limits}}"
	role       = `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader},
		rules: [{apiGroups: [""], resources: [pods, pods/log], verbs: [get, list]}]}`
	bindingToRole = `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: team},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}}`
	bindingToAdmin = `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: team},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}}`
)

// keep is the removal without deletions.
var keep = v1alpha1.TemplateObjectRetentionPolicy{WhenRemoved: v1alpha1.RetentionRetain}

func TestFor(t *testing.T) {
	type change = func(*v1alpha1.NamespaceTemplateSpec)
	tests := map[string]struct {
		manifests []string
		change    change
		previous  change
		want      []string
	}{
		"a name": {
			manifests: []string{configMap},
			want:      []string{"create delete patch configmaps [config]"},
		},
		"a computed name": {
			manifests: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: 'x-${ns.name}'}}"},
			want:      []string{"create delete patch configmaps"},
		},
		"a computed name includes others": {
			manifests: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: 'x-${ns.name}'}}", configMap},
			want:      []string{"create delete patch configmaps"},
		},
		"nothing is deleted": {
			manifests: []string{configMap, limitRange},
			change:    func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ObjectRetentionPolicy = keep },
			want:      []string{"create patch configmaps [config]", "create patch limitranges [limits]"},
		},
		"deleted with the template": {
			manifests: []string{limitRange},
			change: func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.ObjectRetentionPolicy = v1alpha1.TemplateObjectRetentionPolicy{WhenRemoved: v1alpha1.RetentionRetain, WhenDeleted: v1alpha1.RetentionDelete}
			},
			want: []string{"create delete patch limitranges [limits]"},
		},
		"deleted in an unselected namespace": {
			manifests: []string{limitRange},
			change: func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.ObjectRetentionPolicy = v1alpha1.TemplateObjectRetentionPolicy{WhenRemoved: v1alpha1.RetentionRetain, WhenDeselected: v1alpha1.RetentionDelete}
			},
			want: []string{"create delete patch limitranges [limits]"},
		},
		"immutable fields": {
			manifests: []string{
				"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, immutable: true}",
				"{apiVersion: v1, kind: Secret, metadata: {name: b}, type: Opaque}",
				"{apiVersion: v1, kind: ResourceQuota, metadata: {name: c}, spec: {scopes: [BestEffort]}}",
				"{apiVersion: v1, kind: ResourceQuota, metadata: {name: d}, spec: {hard: {pods: 1}}}",
				"{apiVersion: example.com/v1, kind: Widget, metadata: {name: e}}",
				bindingToAdmin,
			},
			change: func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ObjectRetentionPolicy = keep },
			want: []string{
				"create delete patch configmaps [a]", "create delete patch resourcequotas [c]", "create patch resourcequotas [d]",
				"create delete patch secrets [b]", "create patch widgets.example.com [e]",
				"bind clusterroles.rbac.authorization.k8s.io [admin]", "create delete patch rolebindings.rbac.authorization.k8s.io [team]",
			},
		},
		"copies": {
			change: func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.ObjectRetentionPolicy = keep
				for _, kind := range []string{"Secret", "ConfigMap"} {
					spec.Objects = append(spec.Objects, v1alpha1.TemplateObject{SourceRef: &v1alpha1.TemplateSourceReference{Kind: kind, Name: "source"}})
				}
			},
			want: []string{"create patch configmaps [source]", "create delete patch secrets [source]"},
		},
		"a Role": {
			manifests: []string{role},
			want:      []string{"get list pods,pods/log", "create delete patch roles.rbac.authorization.k8s.io [reader]"},
		},
		"a Role without rules": {
			manifests: []string{"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader}}", bindingToRole},
			want: []string{
				"create delete patch rolebindings.rbac.authorization.k8s.io [team]", "create delete patch roles.rbac.authorization.k8s.io [reader]",
			},
		},
		"a Role with computed rules": {
			manifests: []string{"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader}, rules: '${variables.x}'}"},
			want:      []string{"create delete escalate patch roles.rbac.authorization.k8s.io [reader]"},
		},
		"a Role with too many rules": {
			manifests: []string{"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader}, rules: [{apiGroups: [" +
				strings.Repeat("a,", 17) + "], resources: [" + strings.Repeat("a,", 17) + "], verbs: [get]}]}"},
			want: []string{"create delete escalate patch roles.rbac.authorization.k8s.io [reader]"},
		},
		"a RoleBinding to a Role of the template": {
			manifests: []string{role, bindingToRole},
			want: []string{
				"get list pods,pods/log", "create delete patch rolebindings.rbac.authorization.k8s.io [team]",
				"create delete patch roles.rbac.authorization.k8s.io [reader]",
			},
		},
		"a RoleBinding to a Role that is sometimes excluded": {
			manifests: []string{role, bindingToRole},
			change:    func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Objects[0].IncludeWhen = "ns.name == 'a'" },
			want: []string{
				"get list pods,pods/log", "create delete patch rolebindings.rbac.authorization.k8s.io [team]",
				"bind create delete patch roles.rbac.authorization.k8s.io [reader]",
			},
		},
		"a Role and a RoleBinding for each element": {
			manifests: []string{strings.Replace(role, "name: reader", `name: "${item}"`, 1), strings.Replace(bindingToRole, "name: reader", `name: "${item}"`, 1)},
			change: func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Objects[0].ForEach, spec.Objects[1].ForEach = "list", "list"
			},
			want: []string{
				"get list pods,pods/log", "create delete patch rolebindings.rbac.authorization.k8s.io [team]",
				"bind create delete patch roles.rbac.authorization.k8s.io",
			},
		},
		"a RoleBinding to a Role that might be one of a list": {
			manifests: []string{strings.Replace(role, "name: reader", `name: "${item}"`, 1), bindingToRole},
			change:    func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Objects[0].ForEach = "list" },
			want: []string{
				"get list pods,pods/log", "create delete patch rolebindings.rbac.authorization.k8s.io [team]",
				"create delete patch roles.rbac.authorization.k8s.io", "bind roles.rbac.authorization.k8s.io [reader]",
			},
		},
		"a RoleBinding to another Role": {
			manifests: []string{bindingToRole},
			want: []string{
				"create delete patch rolebindings.rbac.authorization.k8s.io [team]", "bind roles.rbac.authorization.k8s.io [reader]",
			},
		},
		"a RoleBinding to a computed ClusterRole": {
			manifests: []string{`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: team},
				roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: '${params.role}'}}`},
			want: []string{
				"bind clusterroles.rbac.authorization.k8s.io", "create delete patch rolebindings.rbac.authorization.k8s.io [team]",
			},
		},
		"a RoleBinding to a computed role": {
			manifests: []string{`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: team}, roleRef: '${variables.ref}'}`},
			want: []string{
				"bind clusterroles,roles.rbac.authorization.k8s.io", "create delete patch rolebindings.rbac.authorization.k8s.io [team]",
			},
		},
		"the previous revision": {
			manifests: []string{configMap},
			change:    func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ObjectRetentionPolicy = keep },
			previous:  func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Objects = specOf(t, limitRange).Objects },
			want:      []string{"create patch configmaps [config]", "create delete patch limitranges [limits]"},
		},
		"the previous revision with another ServiceAccount": {
			manifests: []string{configMap},
			previous: func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Objects, spec.ServiceAccountName = specOf(t, limitRange).Objects, "other"
			},
			want: []string{"create delete patch configmaps [config]", "delete limitranges [limits]"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := Input{Spec: specOf(t, test.manifests...), SystemNamespace: system, ResourceOf: resourceOf}
			if test.change != nil {
				test.change(in.Spec)
			}
			if test.previous != nil {
				in.Previous = specOf(t)
				in.Previous.ServiceAccountName = in.Spec.ServiceAccountName
				test.previous(in.Previous)
			}
			grant, errs := For(in)
			g.Expect(errs).To(BeEmpty())
			g.Expect(textOf(grant.Permissions)).To(ConsistOf(append(test.want, "provision namespaces")))
		})
	}
}

// textOf returns the rules for permissions, each in one line.
func textOf(permissions []Permission) []string {
	var lines []string
	for _, rule := range Rules(permissions) {
		line := strings.Join(rule.Verbs, " ") + " " + strings.Join(rule.Resources, ",")
		if rule.APIGroups[0] != "" {
			line += "." + rule.APIGroups[0]
		}
		if len(rule.ResourceNames) > 0 {
			line += " [" + strings.Join(rule.ResourceNames, ",") + "]"
		}
		lines = append(lines, line)
	}
	return lines
}

func TestForUnknownKinds(t *testing.T) {
	g := NewWithT(t)
	spec := specOf(t, "{apiVersion: v1, kind: Unknown, metadata: {name: a}}", configMap)
	spec.Objects = append(spec.Objects, v1alpha1.TemplateObject{})
	grant, errs := For(Input{Spec: spec, SystemNamespace: system, ResourceOf: resourceOf})
	g.Expect(errs).To(HaveLen(1))
	g.Expect(textOf(grant.Permissions)).To(HaveLen(2))
}

// Two Roles with one name exclude each other, and each requires its own permissions.
func TestForAlternatives(t *testing.T) {
	g := NewWithT(t)
	other := strings.ReplaceAll(role, "get, list", "watch")
	grant, _ := For(Input{Spec: specOf(t, role, other), SystemNamespace: system, ResourceOf: resourceOf})
	g.Expect(textOf(grant.Permissions)).To(ContainElement("get list watch pods,pods/log"))
	grant, _ = For(Input{Spec: specOf(t, role, other, bindingToRole), SystemNamespace: system, ResourceOf: resourceOf})
	g.Expect(textOf(grant.Permissions)).To(ContainElement("bind create delete patch roles.rbac.authorization.k8s.io [reader]"))
	grant, _ = For(Input{Spec: specOf(t, role, bindingToRole, bindingToRole), SystemNamespace: system, ResourceOf: resourceOf})
	for _, permission := range grant.Permissions {
		g.Expect(len(permission.Instead)).To(BeElementOf(0, 4), "the same permissions are not repeated")
	}
	computed := strings.ReplaceAll(role, "get, list", "'${params.verb}'")
	grant, _ = For(Input{Spec: specOf(t, role, computed), SystemNamespace: system, ResourceOf: resourceOf})
	g.Expect(textOf(grant.Permissions)).To(ContainElement("create delete escalate patch roles.rbac.authorization.k8s.io [reader]"))
}

// A second RoleBinding can exist without the Role of the template.
func TestForAlternativeRoleBindings(t *testing.T) {
	g := NewWithT(t)
	another := strings.ReplaceAll(bindingToRole, "name: team", "name: another")
	spec := specOf(t, role, bindingToRole, another)
	spec.Objects[0].IncludeWhen, spec.Objects[1].IncludeWhen = "ns.name == 'a'", "ns.name == 'a'"
	for range 2 {
		grant, _ := For(Input{Spec: spec, SystemNamespace: system, ResourceOf: resourceOf})
		index := slices.IndexFunc(grant.Permissions, func(p Permission) bool { return p.Verb == "bind" })
		g.Expect(index).To(BeNumerically(">=", 0))
		g.Expect(grant.Permissions[index].Instead).To(BeEmpty())
		g.Expect(grant.Permissions[index].Uncertain).NotTo(BeEmpty())
		slices.Reverse(spec.Objects)
	}
}

// Any string can be a verb, a resource or a name in a Role.
func TestRulesWithLineBreaks(t *testing.T) {
	g := NewWithT(t)
	hostile := strings.NewReplacer("get, list", `"get\n*"`, "pods, pods/log", `"pods\n*"`).Replace(role)
	grant, _ := For(Input{Spec: specOf(t, hostile), SystemNamespace: system, ResourceOf: resourceOf})
	g.Expect(Rules(grant.Permissions)).To(ContainElement(rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"pods\n*"}, Verbs: []string{"get\n*"},
	}))
}

func TestForDryRun(t *testing.T) {
	rules := func(count int) string {
		return "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader}, rules: [{apiGroups: [" +
			strings.Repeat("a,", count) + "], resources: [" + strings.Repeat("a,", count) + "], verbs: [get]}]}"
	}
	another := strings.ReplaceAll(bindingToAdmin, "name: team", "name: another")
	tests := map[string]struct {
		manifests []string
		verb      string
		want      bool
	}{
		"a Role with too many rules":        {[]string{rules(17)}, "escalate", true},
		"two Roles that exclude each other": {[]string{rules(17), rules(18)}, "escalate", false},
		"a Role with few rules":             {[]string{rules(1)}, "escalate", false},
		"a RoleBinding":                     {[]string{bindingToAdmin}, "bind", true},
		"two RoleBindings":                  {[]string{bindingToAdmin, another}, "bind", true},
		"a RoleBinding to a Role":           {[]string{bindingToRole}, "bind", false},
		"a computed name":                   {[]string{strings.ReplaceAll(bindingToAdmin, "admin", "'${params.role}'")}, "bind", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			grant, _ := For(Input{Spec: specOf(t, test.manifests...), SystemNamespace: system, ResourceOf: resourceOf})
			index := slices.IndexFunc(grant.Permissions, func(p Permission) bool { return p.Verb == test.verb })
			g.Expect(index).To(BeNumerically(">=", 0))
			g.Expect(grant.Permissions[index].DryRun != nil).To(Equal(test.want))
		})
	}
}

func TestImpersonation(t *testing.T) {
	g := NewWithT(t)
	operator := SubjectOf("system:serviceaccount:system:operator")
	g.Expect(operator).To(Equal(rbacv1.Subject{Kind: "ServiceAccount", Namespace: system, Name: "operator"}))
	g.Expect(SubjectOf("alice")).To(Equal(rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "alice"}))
	plain := Impersonation(operator, system, "account")
	g.Expect(textOf(plain.Permissions)).To(Equal([]string{"impersonate serviceaccounts [account]"}))
	g.Expect(plain.Namespace).To(Equal(system))

	spec := specOf(t, role)
	spec.Objects = append(spec.Objects, v1alpha1.TemplateObject{SourceRef: &v1alpha1.TemplateSourceReference{Kind: "Secret", Name: "source"}})
	account, _ := For(Input{Spec: spec, SystemNamespace: system, ResourceOf: resourceOf})
	grants := ConstrainedImpersonation(operator, system, "account", account)
	want := map[string][]string{
		system: {"impersonate:serviceaccount serviceaccounts.authentication.k8s.io [account]"},
		"": {
			"impersonate-on:serviceaccount:delete impersonate-on:serviceaccount:patch secrets [source]",
			"impersonate-on:serviceaccount:delete impersonate-on:serviceaccount:patch roles.rbac.authorization.k8s.io [reader]",
		},
	}
	g.Expect(grants).To(HaveLen(len(want)))
	for _, grant := range grants {
		g.Expect(textOf(grant.Permissions)).To(Equal(want[grant.Namespace]))
		g.Expect(grant.Subject).To(Equal(operator))
		g.Expect(grant.Objects("team")[0].GetName()).To(Equal("nslifecycle:template:team:operator"))
	}
}

func TestObjects(t *testing.T) {
	g := NewWithT(t)
	grant := Grant{Subject: SubjectOf("alice"), Permissions: []Permission{
		{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "create", Resource: "configmaps"}},
	}}
	for namespace, kinds := range map[string][]string{"": {"ClusterRole", "ClusterRoleBinding"}, "origin": {"Role", "RoleBinding"}} {
		grant.Namespace = namespace
		objects := grant.Objects("team")
		g.Expect(objects).To(HaveLen(2))
		for i, object := range objects {
			g.Expect(object.GetObjectKind().GroupVersionKind()).To(Equal(rbacv1.SchemeGroupVersion.WithKind(kinds[i])))
			g.Expect(object.GetNamespace()).To(Equal(namespace))
			g.Expect(object.GetName()).To(Equal("nslifecycle:template:team"))
		}
	}
}
