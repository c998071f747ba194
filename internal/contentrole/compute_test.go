// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package contentrole

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

var allVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

type types struct{ Discovery }

func discovered() types {
	return types{Discovery{FailedGroups: sets.New[string](), Servers: map[schema.GroupVersion]Server{}}}
}

// with adds a type that is named by resource.version.group.
func (t types) with(name string, server Server, isNamespaced bool, verbs ...string) types {
	parts := strings.SplitN(name, ".", 3)
	one := schema.GroupVersionResource{Group: parts[2], Version: parts[1], Resource: parts[0]}
	if verbs == nil {
		verbs = allVerbs
	}
	t.Resources = append(t.Resources, Resource{one, isNamespaced, verbs})
	if server != ServerUnknown {
		t.Servers[one.GroupVersion()] = server
	}
	return t
}

func (t types) failing(group string) types {
	t.FailedGroups.Insert(group)
	return t
}

func everything(schema.GroupResource) bool { return true }

func textOf(rules []rbacv1.PolicyRule) []string {
	lines := []string{}
	for _, rule := range rules {
		lines = append(lines, strings.Join([]string{
			strings.Join(rule.Verbs, ","), strings.Join(rule.Resources, ","), strings.Join(rule.APIGroups, ","),
		}, " "))
	}
	return lines
}

func rule(verbs, resources, group string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		Verbs: strings.Split(verbs, ","), Resources: strings.Split(resources, ","), APIGroups: []string{group},
	}
}

func TestCompute(t *testing.T) {
	const plain, collections = "delete,list,watch", "delete,deletecollection,list,watch"
	gadgets := rule(plain, "gadgets", "example.com")
	for name, test := range map[string]struct {
		current []rbacv1.PolicyRule
		found   types
		want    []string
		refused map[string]string
	}{
		"types of kube-apiserver, sorted, without deletecollection": {
			found: discovered().with("secrets.v1.", ServerLocal, true).with("deployments.v1.apps", ServerLocal, true).
				with("configmaps.v1.", ServerLocal, true).with("widgets.v1.example.com", ServerLocal, true),
			want: []string{plain + " configmaps,secrets ", plain + " deployments apps", plain + " widgets example.com"},
		},
		"a type in two versions": {
			found: discovered().with("widgets.v2.example.com", ServerLocal, true).with("widgets.v1.example.com", ServerLocal, true),
			want:  []string{plain + " widgets example.com"},
		},
		"deletecollection for an aggregated server and for types without list": {
			found: discovered().with("widgets.v1.example.com", ServerAggregated, true).with("gadgets.v1.example.org", ServerLocal, true).
				with("secrets.v1.", ServerLocal, true, "delete", "deletecollection").
				with("tickets.v1.example.org", ServerLocal, true, "delete", "deletecollection"),
			want: []string{plain + " secrets ", collections + " widgets example.com", plain + " gadgets example.org",
				collections + " tickets example.org"},
		},
		"types that cannot be deleted": {
			found: discovered().with("pods.v1beta1.metrics.k8s.io", ServerAggregated, true, "get", "list"),
			want:  []string{},
		},
		"a cluster-scoped type": {
			found: discovered().with("nodes.v1.", ServerLocal, false).with("pods.v1.", ServerLocal, true),
			want:  []string{plain + " pods "},
		},
		"a CRD's type that an aggregated server shows as namespaced": {
			found: discovered().with("widgets.v1.example.com", ServerLocal, false).with("widgets.v9.example.com", ServerAggregated, true),
			want:  []string{}, refused: map[string]string{"widgets.example.com": refusedScope},
		},
		"a type of kube-apiserver that an aggregated server shows as namespaced": {
			found: discovered().with("roles.v1.rbac.authorization.k8s.io", ServerLocal, true).
				with("clusterroles.v2.rbac.authorization.k8s.io", ServerAggregated, true),
			want:    []string{plain + " roles rbac.authorization.k8s.io"},
			refused: map[string]string{"clusterroles.rbac.authorization.k8s.io": refusedServer},
		},
		"an aggregated server in the groups without a dot": {
			found: discovered().with("nodes.v2.", ServerAggregated, true).with("things.v1.things", ServerAggregated, true).
				with("others.v1.others", ServerUnknown, true),
			want: []string{}, refused: map[string]string{
				"nodes": refusedServer, "things.things": refusedServer, "others.others": refusedServer,
			},
		},
		"an aggregated server in a group of its own": {
			found: discovered().with("instances.v1.servicecatalog.k8s.io", ServerAggregated, true),
			want:  []string{plain + " instances servicecatalog.k8s.io"},
		},
		"an aggregated server while another version fails": {
			found: discovered().with("widgets.v9.example.com", ServerAggregated, true).failing("example.com"),
			want:  []string{}, refused: map[string]string{"widgets.example.com": refusedUnknown},
		},
		"kube-apiserver while another version fails": {
			found: discovered().with("widgets.v1.example.com", ServerLocal, true).failing("example.com"),
			want:  []string{plain + " widgets example.com"},
		},
		"admission policies and webhooks": {
			found: discovered().with("policies.v1.admissionregistration.k8s.io", ServerLocal, true),
			want:  []string{}, refused: map[string]string{"policies.admissionregistration.k8s.io": refusedReserved},
		},
		"names that RBAC would interpret": {
			found: discovered().with("*.v1.example.com", ServerAggregated, true).with("a/b.v1.example.com", ServerAggregated, true).
				with("things.v1.*", ServerAggregated, true).with("UPPER.v1.example.com", ServerAggregated, true),
			want: []string{}, refused: map[string]string{
				"*.example.com": refusedName, "a/b.example.com": refusedName, "things.*": refusedName, "UPPER.example.com": refusedName,
			},
		},
		"a type that discovery no longer shows": {
			current: []rbacv1.PolicyRule{gadgets}, found: discovered().with("pods.v1.", ServerLocal, true),
			want: []string{plain + " pods ", plain + " gadgets example.com"},
		},
		"a type that has become cluster-scoped": {
			current: []rbacv1.PolicyRule{gadgets}, found: discovered().with("gadgets.v1.example.com", ServerLocal, false),
			want: []string{},
		},
		"rules of other clients": {
			current: []rbacv1.PolicyRule{
				rule("*", "*", "*"), rule("delete,list,watch", "*", "example.com"), rule("get", "secrets", ""),
				rule("delete,list,watch", "policies", "admissionregistration.k8s.io"),
				{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}},
				{Verbs: []string{"delete", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"a"}},
				rule(collections, "pods", "apps"), gadgets,
			},
			found: discovered(), want: []string{plain + " pods apps", plain + " gadgets example.com"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			rules, refused := content.Compute(test.current, test.found.Discovery, everything)
			g.Expect(textOf(rules)).To(Equal(test.want))
			reasons := map[string]string{}
			for one, reason := range refused {
				reasons[one.String()] = reason
			}
			if test.refused == nil {
				test.refused = map[string]string{}
			}
			g.Expect(reasons).To(Equal(test.refused))
			again, _ := content.Compute(rules, test.found.Discovery, everything)
			g.Expect(again).To(Equal(rules))
			if len(test.refused) == 0 {
				g.Expect(content.isOutdated(rules, test.found.Discovery, everything)).To(BeFalse())
			}
		})
	}
}

func TestComputeTemplateObjects(t *testing.T) {
	g := NewWithT(t)
	found := discovered().with("secrets.v1.", ServerLocal, true).with("widgets.v1.example.com", ServerAggregated, true)
	rules, _ := objects.Compute(nil, found.Discovery, func(one schema.GroupResource) bool { return one.Resource == "widgets" })
	g.Expect(textOf(rules)).To(Equal([]string{"list,watch widgets example.com"}))
}

// TestLimits verifies that an aggregated API server cannot fill the role, and that the types of kube-apiserver come
// first.
func TestLimits(t *testing.T) {
	g := NewWithT(t)
	var current []rbacv1.PolicyRule
	// Each time, the server shows other types.
	for round := range 3 {
		found := discovered().with("zebras.v1.zoo.example.com", ServerLocal, true)
		for i := range 100_000 {
			found = found.with(fmt.Sprintf("t%d-%d.v1.example.com", round, i), ServerAggregated, true)
		}
		rules, refused := content.Compute(current, found.Discovery, everything)
		g.Expect(content.parse(rules)).To(HaveLen(maxTypesPerGroup + 1))
		g.Expect(slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return rule.Resources[0] == "zebras" })).To(BeTrue())
		g.Expect(refused).To(HaveKeyWithValue(
			schema.GroupResource{Group: "example.com", Resource: fmt.Sprintf("t%d-%d", round, 99_999)}, refusedTooMany))
		current = rules
	}
	many := discovered()
	for i := range 2 * maxTypes {
		many = many.with(fmt.Sprintf("t%d.v1.g%d.example.com", i, i), ServerAggregated, true)
	}
	many = many.with("pods.v1.", ServerLocal, true)
	rules, _ := content.Compute(current, many.Discovery, everything)
	g.Expect(content.parse(rules)).To(HaveLen(maxTypes))
	g.Expect(rules[0].Resources).To(Equal([]string{"pods"}))

	long := discovered()
	for i := range maxTypes {
		group := strings.Repeat(strings.Repeat("a", 60)+".", 3) + fmt.Sprintf("g%d.example.com", i)
		long = long.with("things.v1."+group, ServerAggregated, true)
	}
	rules, _ = content.Compute(nil, long.Discovery, everything)
	size := 0
	for _, rule := range rules {
		size += len(rule.APIGroups[0]) + len(rule.Resources[0])
	}
	g.Expect(size).To(And(BeNumerically("<=", maxBytes), BeNumerically(">", maxBytes-1000)))
}

func TestRoleName(t *testing.T) {
	for account, want := range map[string]string{
		"nslifecycle-controller-manager": "nslifecycle-content",
		"nslifecycle-finalization":       "nslifecycle-content",
		"origin-agent-finalization":      "origin-agent-content",
		"dana":                           "",
	} {
		if got := roleName(account, "content"); got != want {
			t.Errorf("%s: got %q, want %q", account, got, want)
		}
	}
}
