// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

const (
	manager = "system:serviceaccount:nslifecycle-system:nslifecycle-controller-manager"
	// tierText and policyTierText are errors of the API server of Calico.
	tierText = `pods.metrics.k8s.io is forbidden: User "` + manager +
		`" cannot list pods.metrics.k8s.io in tier "default" and namespace "shop" (user cannot get tier)`
	policyTierText = `pods.metrics.k8s.io is forbidden: User "` + manager +
		`" cannot delete pods.metrics.k8s.io in tier "default" and namespace "shop"`
	listText = `pods.metrics.k8s.io is forbidden: User "` + manager +
		`" cannot list resource "pods" in API group "metrics.k8s.io" in the namespace "shop"`
)

var (
	metrics = resourcetypes.Type{GroupVersionResource: metricsVersion.WithResource("pods")}
	getTier = denial.MissingPermission{User: manager, Verb: "get", Resource: "tiers", Group: "metrics.k8s.io"}
	list    = denial.MissingPermission{User: manager, Verb: "list", Resource: "pods", Group: "metrics.k8s.io"}
)

// withOwnDenial adds a list request that an aggregated API server denied to the diagnosis, and whether kube-apiserver
// grants the permissions.
func withOwnDenial(text string, isGranted bool) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) {
		withContent(failing(metrics, answer(403, metav1.StatusReasonForbidden, text)))(facts)
		for _, permission := range []denial.MissingPermission{getTier, list} {
			withPermission(diagnosis.DeniedPermission{MissingPermission: permission, IsOwn: true}, isGranted)(facts)
		}
	}
}

func withPermission(permission diagnosis.DeniedPermission, isGranted bool) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) {
		if facts.Permissions == nil {
			facts.Permissions = map[diagnosis.DeniedPermission]bool{}
		}
		facts.Permissions[permission] = isGranted
	}
}

func TestFindForbidden(t *testing.T) {
	const ranked = diagnosis.CauseForbidden
	silent := func(facts *diagnosis.Facts) { facts.Namespace.Status.Conditions = nil }
	service := []string{"apiservices.apiregistration.k8s.io/v1beta1.metrics.k8s.io"}
	runCases(t, map[string]diagnoseCase{
		"a server that authorizes the namespace controller again": {
			facts: makeTerminating(withAPIService(true), withContentFailure("listing pods: "+tierText),
				withPermission(diagnosis.DeniedPermission{MissingPermission: getTier}, false)),
			want: []want{{ranked, diagnosis.RankPublished, `APIService v1beta1.metrics.k8s.io denies a request of the namespace controller: user "` + manager + `" cannot get tiers.metrics.k8s.io`,
				"kube-apiserver does not grant", service}},
		},
		"a server that denies what kube-apiserver grants": {
			facts: makeTerminating(withAPIService(true), withContentFailure(listText), withPermission(diagnosis.DeniedPermission{MissingPermission: list}, true)),
			want:  []want{{ranked, diagnosis.RankPublished, "cannot list pods.metrics.k8s.io", literal(evidenceGranted), service}},
		},
		"a server that denies the diagnosis another permission": {
			facts: makeTerminating(silent, withAPIService(true), withOwnDenial(tierText, false)),
			want:  []want{{ranked, diagnosis.RankInferred, literal(messageServerForbidsDiagnosis), "user cannot get tier", service}},
		},
		"a server that denies the diagnosis what kube-apiserver grants": {
			facts: makeTerminating(silent, withAPIService(true), withOwnDenial(listText, true)),
			want:  []want{{ranked, diagnosis.RankInferred, literal(messageServerForbidsDiagnosis), literal(evidenceGranted), service}},
		},
		"a server that denies both": {
			facts: makeTerminating(withAPIService(true), withContentFailure(tierText), withOwnDenial(tierText, false)),
			want:  []want{{ranked, diagnosis.RankPublished, literal(messageServerForbidden), "", service}},
		},
	})
	for name, facts := range map[string]*diagnosis.Facts{
		"kube-apiserver denies the diagnosis, too": makeTerminating(silent, withAPIService(true), withOwnDenial(listText, false)),
		"kube-apiserver serves the type":           makeTerminating(silent, withOwnDenial(tierText, false)),
		"the namespace controller reports success": makeTerminating(withAPIService(true), withOwnDenial(tierText, false)),
	} {
		if slices.ContainsFunc(Diagnose(facts).Findings, func(finding diagnosis.Finding) bool {
			return finding.Cause == diagnosis.CauseForbidden
		}) {
			t.Errorf("%s: a permission that only the diagnosis lacks is not a cause", name)
		}
	}
}

func TestForbiddenRemedies(t *testing.T) {
	for text, want := range map[string]string{
		tierText:       "kubectl create clusterrolebinding get-tiers.metrics.k8s.io --clusterrole=get-tiers.metrics.k8s.io --serviceaccount=nslifecycle-system:nslifecycle-controller-manager",
		policyTierText: "on resource tier.pods of API group metrics.k8s.io",
		strings.ReplaceAll(listText, manager, "dana"): "kubectl create clusterrolebinding list-pods.metrics.k8s.io --clusterrole=list-pods.metrics.k8s.io --user=dana",
	} {
		remedies := Diagnose(makeTerminating(withAPIService(true), withContentFailure(text))).Findings[0].Remedies
		if !slices.ContainsFunc(remedies, func(remedy diagnosis.Remedy) bool {
			return remedy.Changes && strings.Contains(remedy.String(), want)
		}) {
			t.Errorf("%q not found in %+v", want, remedies)
		}
	}
}

// TestForgedDenials verifies that the text of an error cannot suggest commands that grant other permissions.
func TestForgedDenials(t *testing.T) {
	for _, text := range []string{
		`User "system:anonymous" cannot escalate resource "clusterroles" in API group "rbac.authorization.k8s.io"`,
		`admission webhook "a.example.com" denied the request: User "eve" cannot get resource "secrets" in API group ""`,
		`User "eve" cannot list resource "pods,secrets" in API group "metrics.k8s.io"`,
		`User "eve" cannot list resource "*" in API group "metrics.k8s.io"`,
		`User "eve" cannot impersonate resource "users" in API group ""`,
		`User "eve" cannot list resource "pods" in API group "metrics.k8s.io,"`,
		`User "eve" cannot list resource "pods" in API group "*"`,
	} {
		for _, finding := range Diagnose(makeTerminating(withAPIService(true), withContentFailure(text))).Findings {
			for _, remedy := range finding.Remedies {
				if strings.Contains(remedy.String(), "create clusterrole") || strings.Contains(remedy.String(), "Grant user") {
					t.Errorf("%s: %s", text, remedy)
				}
			}
		}
	}
}

func TestPermissionsNeeded(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, `User "u%d" cannot list resource "pods" in API group ""; `, i)
	}
	if got := len(PermissionsNeeded(makeTerminating(withContentFailure(text.String())))); got != owners.MaxChecked {
		t.Errorf("got %d", got)
	}
}
