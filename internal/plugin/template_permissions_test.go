// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// printPermissions runs the command without a cluster.
func printPermissions(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Setenv("KUBECONFIG", os.DevNull)
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	root := New(streams)
	root.SetArgs(append([]string{"template", "permissions", "--server=https://127.0.0.1:1"}, args...))
	err = root.ExecuteContext(t.Context())
	return out.String(), errOut.String(), err
}

// decodeGrants decodes the printed objects, which must be valid and have different names, and returns the rules of each
// role by its kind and name.
func decodeGrants(t *testing.T, printed string) (accounts []string, rules map[string][]rbacv1.PolicyRule) {
	t.Helper()
	g := NewWithT(t)
	types := map[string]func() client.Object{
		"ServiceAccount":     func() client.Object { return &corev1.ServiceAccount{} },
		"Role":               func() client.Object { return &rbacv1.Role{} },
		"RoleBinding":        func() client.Object { return &rbacv1.RoleBinding{} },
		"ClusterRole":        func() client.Object { return &rbacv1.ClusterRole{} },
		"ClusterRoleBinding": func() client.Object { return &rbacv1.ClusterRoleBinding{} },
	}
	rules = map[string][]rbacv1.PolicyRule{}
	objects := map[string]bool{}
	for document := range strings.SplitSeq(strings.TrimPrefix(printed, "---\n"), "\n---\n") {
		var of metav1.TypeMeta
		g.Expect(yaml.Unmarshal([]byte(document), &of)).To(Succeed())
		g.Expect(types).To(HaveKey(of.Kind))
		object := types[of.Kind]()
		g.Expect(yaml.UnmarshalStrict([]byte(document), object)).To(Succeed())
		g.Expect(len(object.GetName())).To(BeNumerically("<=", 253))
		g.Expect(object.GetLabels()).To(HaveKeyWithValue("app.kubernetes.io/name", "nslifecycle"), "make undeploy deletes the object")
		key := of.Kind + " " + strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/")
		g.Expect(objects).NotTo(HaveKey(key))
		objects[key] = true
		switch object := object.(type) {
		case *corev1.ServiceAccount:
			accounts = append(accounts, key)
		case *rbacv1.Role:
			rules[key] = object.Rules
		case *rbacv1.ClusterRole:
			rules[key] = object.Rules
		}
	}
	for key := range rules {
		g.Expect(objects).To(HaveKey(strings.Replace(key, "Role ", "RoleBinding ", 1)))
	}
	g.Expect(objects).To(HaveLen(len(accounts) + 2*len(rules)))
	return accounts, rules
}

func rule(group, resources, names, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{group}, Resources: strings.Fields(resources), Verbs: strings.Fields(verbs),
		ResourceNames: append([]string(nil), strings.Fields(names)...),
	}
}

func TestTemplatePermissions(t *testing.T) {
	const (
		rbac = rbacv1.GroupName
		all  = "create delete patch"
	)
	provision := rule("", "namespaces", "", "provision")
	impersonate := func(account string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{rule("", "serviceaccounts", account, "impersonate")}
	}
	tests := map[string]struct {
		file     string
		accounts []string
		rules    map[string][]rbacv1.PolicyRule
	}{
		"a quota, limits, a NetworkPolicy and a RoleBinding": {
			file: "templates/baseline.yaml", accounts: []string{"ServiceAccount lifecycle/nslifecycle-provisioner"},
			rules: map[string][]rbacv1.PolicyRule{
				"Role lifecycle/nslifecycle:template:baseline:operator": impersonate("nslifecycle-provisioner"),
				"ClusterRole nslifecycle:template:baseline": {
					rule("", "limitranges resourcequotas", "baseline", all), provision,
					rule("networking.k8s.io", "networkpolicies", "deny-ingress", all),
					rule(rbac, "clusterroles", "admin", "bind"), rule(rbac, "rolebindings", "creator", all),
				},
			},
		},
		"a copy": {
			file: "templates/pull-secret.yaml", accounts: []string{"ServiceAccount lifecycle/pull-secret"},
			rules: map[string][]rbacv1.PolicyRule{
				"Role lifecycle/nslifecycle:template:pull-secret:operator": impersonate("pull-secret"),
				"ClusterRole nslifecycle:template:pull-secret": {
					provision, rule("", "secrets", "regcred", all), rule("", "serviceaccounts", "default", "create patch"),
				},
			},
		},
		"several templates with one ServiceAccount": {
			file: "self-service/templates.yaml", accounts: []string{"ServiceAccount lifecycle/self-service"},
			rules: map[string][]rbacv1.PolicyRule{
				"Role lifecycle/nslifecycle:template:self-service:operator": impersonate("self-service"),
				"ClusterRole nslifecycle:template:self-service": {
					rule("", "limitranges", "defaults", all), provision,
					rule(rbac, "clusterroles", "admin", "bind"), rule(rbac, "rolebindings", "creator", all),
				},
				"Role lifecycle/nslifecycle:template:small:operator":  impersonate("self-service"),
				"ClusterRole nslifecycle:template:small":              {provision, rule("", "resourcequotas", "size", all)},
				"Role lifecycle/nslifecycle:template:medium:operator": impersonate("self-service"),
				"ClusterRole nslifecycle:template:medium":             {provision, rule("", "resourcequotas", "size", all)},
				"Role lifecycle/nslifecycle:template:large:operator":  impersonate("self-service"),
				"ClusterRole nslifecycle:template:large":              {provision, rule("", "resourcequotas", "size", all)},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			stdout, stderr, err := printPermissions(t, "-f", filepath.Join("..", "..", "config", "samples", test.file),
				"--system-namespace=lifecycle")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(stderr).To(BeEmpty())
			accounts, rules := decodeGrants(t, stdout)
			g.Expect(accounts).To(Equal(test.accounts))
			g.Expect(rules).To(Equal(test.rules))
		})
	}
}

func TestTemplatePermissionsWithoutCluster(t *testing.T) {
	const template = `apiVersion: nslifecycle.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: NAME}
spec:
  serviceAccountName: account
  objects:
  - name: object
    template: OBJECT
---
`
	binding := strings.NewReplacer("NAME", strings.Repeat("x", 63), "OBJECT", `{apiVersion: rbac.authorization.k8s.io/v1,
      kind: RoleBinding, metadata: {name: a}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "${ns.name}"}}`).
		Replace(template)
	widget := strings.NewReplacer("NAME", "widgets", "OBJECT", `{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}`).
		Replace(template)
	tests := map[string]struct {
		content string
		err     string
	}{
		"the default namespace": {binding, ""},
		"an unknown kind":       {binding + widget, "Widget"},
		"no template":           {"apiVersion: v1\nkind: Namespace\n", "contains no NamespaceTemplate"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			file := filepath.Join(t.TempDir(), "template.yaml")
			g.Expect(os.WriteFile(file, []byte(test.content), 0o600)).To(Succeed())
			stdout, stderr, err := printPermissions(t, "-f", file)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				g.Expect(stdout).To(BeEmpty(), "an incomplete output could be applied")
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(stderr).To(ContainSubstring("The objects are for namespace nslifecycle-system"))
			accounts, _ := decodeGrants(t, stdout)
			g.Expect(accounts).To(Equal([]string{"ServiceAccount nslifecycle-system/account"}))
		})
	}
}

// An API server that answers has another namespace than the default one, or the user asks the wrong one.
func TestTemplatePermissionsRequireSystemNamespace(t *testing.T) {
	file := filepath.Join("..", "..", "config", "samples", "templates", "baseline.yaml")
	for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusServiceUnavailable} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			g := NewWithT(t)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
			defer server.Close()
			stdout, _, err := printPermissions(t, "-f", file, "--server="+server.URL)
			g.Expect(err).To(MatchError(ContainSubstring("use --system-namespace to set it")))
			g.Expect(stdout).To(BeEmpty())
		})
	}
}
