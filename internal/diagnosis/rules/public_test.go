// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
)

// diagnosePublic returns the findings that the operator publishes.
func diagnosePublic(facts *diagnosis.Facts) *diagnosis.Diagnosis {
	public := *facts
	public.IsPublic = true
	return Diagnose(&public)
}

func otherNamespaces(facts *diagnosis.Facts) []string {
	var names []string
	for _, workload := range facts.Workloads {
		names = append(names, workload.Namespace, workload.ServiceAccount.Namespace)
	}
	for _, lease := range facts.Leases {
		names = append(names, lease.Namespace)
	}
	for _, binding := range facts.ClusterRoleBindings {
		for _, subject := range binding.Subjects {
			names = append(names, subject.Namespace)
		}
	}
	for account := range facts.ServiceAccounts {
		names = append(names, account.Namespace)
	}
	for service := range facts.Backends {
		names = append(names, service.Namespace)
	}
	for _, service := range facts.APIServices {
		names = append(names, service.Service.Namespace)
	}
	for _, webhook := range facts.Webhooks {
		if webhook.Service != nil {
			names = append(names, webhook.Service.Namespace)
		}
	}
	for i := range facts.CRDs {
		if service := conversionService(&facts.CRDs[i]); service != nil {
			names = append(names, service.Namespace)
		}
	}
	return names
}

// expectPublishable expects that the public findings name no other namespaces and contain only the
// fields that are published.
func expectPublishable(t *testing.T, facts *diagnosis.Facts) {
	t.Helper()
	for _, finding := range diagnosePublic(facts).Findings {
		if len(finding.Evidence) > 0 || len(finding.Remedies) != 1 {
			t.Errorf("public finding %s has evidence %q and remedies %q", finding.Cause, finding.Evidence, finding.Remedies)
		}
		for _, name := range otherNamespaces(facts) {
			if name != "" && name != shop && strings.Contains(finding.Note(), name) {
				t.Errorf("public finding %s names namespace %q: %s", finding.Cause, name, finding.Note())
			}
		}
		for _, object := range finding.Objects {
			if object.Namespace != "" && object.Namespace != shop {
				t.Errorf("public finding %s contains an object of another namespace: %+v", finding.Cause, object)
			}
		}
	}
}

// Users choose the names of finalizers. Matches in other namespaces must not change public findings.
func TestPublicFindingsDoNotDependOnOtherNamespaces(t *testing.T) {
	elsewhere := diagnosis.Workload{
		Source: diagnosis.SourceDeployments, Namespace: "other", Name: "widgets", Labels: map[string]string{"app": "widgets.example.com"},
		Images: []string{"registry.test/widgets.example.com"}, Desired: 1, Ready: 1,
		ServiceAccount: types.NamespacedName{Namespace: "other", Name: "widgets"},
	}
	dead := elsewhere
	dead.Ready = 0
	for name, change := range map[string]func(*diagnosis.Facts){
		"a running workload":             withWorkloads(elsewhere),
		"a workload that is not running": withWorkloads(dead),
		"a Pod":                          withWorkloads(diagnosis.Workload{Source: diagnosis.SourcePods, Namespace: "other", Name: "widgets", Ready: 1}),
		"a current Lease":                withLeases(makeLease("other", "widgets.example.com", "", now)),
		"an expired Lease":               withLeases(makeLease("other", "widgets.example.com", "", deleted)),
		"a Lease with a matching holder": withLeases(makeLease("other", "lock", "widgets.example.com", now)),
		"a Lease of the control plane":   withLeases(makeLease("kube-system", "kube-scheduler", "widgets.example.com", now)),
		"an existing ServiceAccount":     withBinding("other", true),
		"a missing ServiceAccount":       withBinding("other", false),
		"a missing permission":           func(facts *diagnosis.Facts) { withWorkloads(makeOperator(1))(facts); withReview("patch")(facts) },
		"several kinds of evidence": func(facts *diagnosis.Facts) {
			withWorkloads(elsewhere, dead)(facts)
			withBinding("other", false)(facts)
		},
		"forbidden list requests": withUnread(diagnosis.SourceDeployments, diagnosis.SourceLeases, diagnosis.SourceServiceAccounts),
	} {
		t.Run(name, func(t *testing.T) {
			for where, left := range map[string]func(*diagnosis.Facts){
				"an object":             withContent(contentOf(widgets, makeDeleted("a", held))),
				"a Pod":                 withPod("web", func(pod *corev1.Pod) { pod.Finalizers, pod.Status.Phase = []string{held}, corev1.PodFailed }),
				"a load balancer":       withContent(contentOf(services, makeDeleted("web", owners.FinalizerLoadBalancer))),
				"a namespace finalizer": withNamespaceFinalizers(held),
			} {
				without, with := diagnosePublic(makeTerminating(left)), diagnosePublic(makeTerminating(left, change))
				if len(without.Findings) != 1 || !reflect.DeepEqual(without.Findings, with.Findings) {
					t.Errorf("%s: got %+v, want %+v", where, with.Findings, without.Findings)
				}
			}
		})
	}
}

func TestPublicFindings(t *testing.T) {
	left := withContent(contentOf(widgets, makeDeleted("a", held)))
	here := makeOperator(0)
	here.Namespace, here.ServiceAccount.Namespace = shop, shop
	similar := makeDecoy(0)
	similar.Namespace = shop
	snapshot := "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "quota-system", Name: "quota"}
	quotaPod := diagnosis.Workload{
		Source: diagnosis.SourcePods, Namespace: "quota-system", Name: "quota-1", Desired: 1, Ready: 1,
		ServiceAccount: types.NamespacedName{Namespace: "quota-system", Name: "quota"},
	}
	for name, test := range map[string]struct {
		facts   *diagnosis.Facts
		cause   diagnosis.Cause
		message string
	}{
		"no evidence of an owner": {
			makeTerminating(left), diagnosis.CauseFinalizerPending, literal(messageOwnerUnknown),
		},
		"an owner that the finalizer identifies": {
			makeTerminating(withContent(contentOf(configMaps, makeDeleted("a", snapshot)))), diagnosis.CauseFinalizerPending,
			fmt.Sprintf(messageOwnerKnown, "", "the snapshot controller"),
		},
		"an owner in the namespace": {
			makeTerminating(left, withBinding(shop, true), withWorkloads(here)), diagnosis.CauseFinalizerOwnerInNamespace, literal(messageOwnerInNamespace),
		},
		"a missing ServiceAccount in the namespace": {
			makeTerminating(left, withBinding(shop, false)), diagnosis.CauseFinalizerOwnerInNamespace, literal(messageOwnerInNamespace),
		},
		"a workload with a similar name in the namespace": {
			makeTerminating(left, withWorkloads(similar)), diagnosis.CauseFinalizerPending, literal(messageOwnerUnknown),
		},
		"a kube-controller-manager that is not running": {
			makeTerminating(withContent(contentOf(claims, makeDeleted("a", owners.FinalizerPVC))), func(facts *diagnosis.Facts) {
				facts.Leases = []coordinationv1.Lease{makeLease("kube-system", "kube-controller-manager", "x", deleted)}
			}), diagnosis.CauseFinalizerOwnerNotRunning, "the pvc-protection controller of kube-controller-manager, which is not running",
		},
		"a running initializer": {
			makeInitializing(withHolder(account, "quota", initializeRule()), withWorkloads(quotaPod)), diagnosis.CauseInitializerSlow,
			literal(messageInitializerRunning),
		},
		"an initializer whose ServiceAccount does not exist": {
			makeInitializing(withHolder(account, "quota", initializeRule()), func(facts *diagnosis.Facts) {
				facts.ServiceAccounts = map[types.NamespacedName]bool{quotaPod.ServiceAccount: false}
			}), diagnosis.CauseInitializerNotRunning, literal(messageInitializerNotRunning),
		},
	} {
		t.Run(name, func(t *testing.T) {
			findings := diagnosePublic(test.facts).Findings
			if len(findings) != 1 || findings[0].Cause != test.cause || !strings.HasSuffix(findings[0].Message, test.message) {
				t.Fatalf("got %+v, want %s: %s", findings, test.cause, test.message)
			}
			expectPublishable(t, test.facts)
		})
	}
}
