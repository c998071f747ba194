// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
)

var operator = types.NamespacedName{Namespace: "widgets-system", Name: "widgets"}

func makeOperator(ready int32) diagnosis.Workload {
	return diagnosis.Workload{
		Source: diagnosis.SourceDeployments, Namespace: operator.Namespace, Name: "controller",
		Names: []string{"controller", "widgets.example.com"}, ServiceAccount: operator, Desired: 1, Ready: ready,
	}
}

func withBinding(namespace string, exists bool) func(*diagnosis.Facts) {
	binding := rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"}}
	binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "widgets"}}
	return func(facts *diagnosis.Facts) {
		facts.ClusterRoleBindings = append(facts.ClusterRoleBindings, binding)
		facts.ServiceAccounts = map[types.NamespacedName]bool{{Namespace: namespace, Name: "widgets"}: exists}
	}
}

func withReview(isAllowed bool) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) {
		facts.AccessReviews = append(facts.AccessReviews, makeAccessReview(operator, widgets.GroupResource(), isAllowed))
	}
}

func TestFindFinalizers(t *testing.T) {
	left := withContent(contentOf(widgets, makeDeleted("a", held)))
	object := []string{"widgets.widgets.example.com/a"}
	young := makeObject("a", held)
	young.DeletionTimestamp = &metav1.Time{Time: now.Add(-29 * time.Second)}
	touched := makeDeleted("a", held)
	touched.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "widget-engine", Time: &metav1.Time{Time: deleted.Add(time.Second)},
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{".":{},"v:\"` + held + `\"":{}}}}`),
	}}
	byHand := *touched.DeepCopy()
	byHand.ManagedFields[0].Manager = "kubectl-edit"

	runCases(t, map[string]diagnoseCase{
		"a finalizer within the progress deadline": {facts: makeTerminating(withContent(contentOf(widgets, young)))},
		"a finalizer that is being removed from other objects": {facts: makeTerminating(left, func(facts *diagnosis.Facts) {
			facts.Progress.Released = map[string]int{held: 1}
		})},
		"a condition with a decreasing count": {facts: makeTerminating(left, func(facts *diagnosis.Facts) { facts.Progress.Evidence = "3 and now 1" })},
		"more objects than were listed": {
			facts: makeTerminating(left, func(facts *diagnosis.Facts) { facts.Content[0].Count = 600 }),
			want: []want{{diagnosis.CauseFinalizerOwnerGone, diagnosis.Likely, "widgets", fmt.Sprintf(evidenceUnlisted, 1, 600, "widgets.widgets.example.com"),
				object}},
		},
		"another finalizer that is being removed": {
			facts: makeTerminating(left, func(facts *diagnosis.Facts) { facts.Progress.Released = map[string]int{"other.example.org/x": 3} }),
			want:  []want{{diagnosis.CauseFinalizerOwnerGone, diagnosis.Likely, literal(messageOwnerUninstalled), evidenceSearch, object}},
		},
		"a running owner": {
			facts: makeTerminating(left, withWorkloads(makeOperator(1)), withReview(true)),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.Likely, literal(messageOwnerRunning), "widgets-system/controller has 1 of 1", object}},
		},
		"an owner that holds its Lease": {
			facts: makeTerminating(left, withLeases(makeLease("elsewhere", "widgets.example.com", "x", now.Add(-10*time.Second)))),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.Likely, literal(messageOwnerRunning), "Lease elsewhere/widgets.example.com", object}},
		},
		"an owner without permissions": {
			facts: makeTerminating(left, withWorkloads(makeOperator(1)), withReview(false)),
			want:  []want{{diagnosis.CauseFinalizerOwnerForbidden, diagnosis.Confirmed, literal(messageOwnerForbidden), literal(evidenceForbidden), object}},
		},
		"one of two possible owners without permissions": {
			facts: makeTerminating(left, withReview(false), withWorkloads(makeOperator(1), diagnosis.Workload{
				Source: diagnosis.SourceDeployments, Namespace: "other", Name: "widgets.example.com", Names: []string{"widgets.example.com"},
				ServiceAccount: types.NamespacedName{Namespace: "other", Name: "default"}, Desired: 1, Ready: 1,
			})),
			want: []want{{diagnosis.CauseFinalizerOwnerForbidden, diagnosis.Likely, "", "", object}},
		},
		"an owner that is scaled to zero": {
			facts: makeTerminating(left, withWorkloads(makeOperator(0))),
			want:  []want{{diagnosis.CauseFinalizerOwnerGone, diagnosis.Confirmed, literal(messageOwnerNotRunning), "has 0 of 1 pods ready", object}},
		},
		"an owner with an expired Lease": {
			facts: makeTerminating(left, withDefinition(), withLeases(makeLease("widgets-system", "widgets.example.com", "x", now.Add(-time.Hour)))),
			want:  []want{{diagnosis.CauseFinalizerOwnerGone, diagnosis.Likely, literal(messageOwnerNotRunning), "renewed 60m ago", object}},
		},
		"an owner with an expired Lease, and workloads that cannot be read": {
			facts: makeTerminating(left, withUnread(diagnosis.SourceDeployments),
				withLeases(makeLease("widgets-system", "widgets.example.com", "x", now.Add(-time.Hour)))),
			want: []want{{diagnosis.CauseFinalizerOwnerGone, diagnosis.Likely, "", "could not read deployments.apps", object}},
		},
		"an owner whose ServiceAccount was deleted": {
			facts: makeTerminating(left, withBinding("widgets-system", false)),
			want:  []want{{diagnosis.CauseFinalizerOwnerGone, diagnosis.Confirmed, "", "ServiceAccount widgets-system/widgets", object}},
		},
		"an owner that was in the namespace": {
			facts: makeTerminating(left, withBinding(shop, false)),
			want:  []want{{diagnosis.CauseFinalizerOwnerInNamespace, diagnosis.Confirmed, literal(messageOwnerInNamespace), "ServiceAccount shop/widgets", object}},
		},
		"an existing ServiceAccount is not evidence of a running owner": {
			facts: makeTerminating(left, withBinding("widgets-system", true)),
			want:  []want{{diagnosis.CauseFinalizerOwnerGone, diagnosis.Likely, literal(messageOwnerUninstalled), "", object}},
		},
		"an owner for which only a CustomResourceDefinition exists": {
			facts: makeTerminating(left, withDefinition()),
			want:  []want{{diagnosis.CauseFinalizerOwnerGone, diagnosis.Likely, literal(messageOwnerOnlyCRDs), literal(evidenceCRDsOfDomain) + "widgets", object}},
		},
		"an owner that has updated the object since the deletion": {
			facts: makeTerminating(withContent(contentOf(widgets, touched))),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.Likely, "widget-engine", literal(evidenceFieldManagers) + "widget-engine", object}},
		},
		"an update by a user is not evidence of a running owner": {
			facts: makeTerminating(withContent(contentOf(widgets, byHand))),
			want:  []want{{diagnosis.CauseFinalizerOwnerGone, diagnosis.Likely, "", "kubectl-edit", object}},
		},
		"Leases that cannot be read": {
			facts: makeTerminating(left, withUnread(diagnosis.SourceLeases)),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.Likely, literal(messageOwnerUnknown), "could not read leases", object}},
		},
		"a finalizer without a domain": {
			facts: makeTerminating(withContent(contentOf(configMaps, makeDeleted("a", "hold")))),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.Likely, literal(messageOwnerUnknown), evidenceSearch, []string{"configmaps/a"}}},
		},
		"a finalizer of a running kube-controller-manager": {
			facts: makeTerminating(withContent(contentOf(claims, makeDeleted("a", owners.FinalizerPVC)))),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.Likely, "pvc-protection controller", "renewed 1s ago", nil}},
		},
		"a finalizer of a kube-controller-manager that is not running": {
			facts: makeTerminating(withContent(contentOf(claims, makeDeleted("a", owners.FinalizerPVC))), func(facts *diagnosis.Facts) {
				facts.Leases[0] = makeLease("kube-system", "kube-controller-manager", "x", now.Add(-time.Hour))
			}),
			want: []want{{diagnosis.CauseFinalizerOwnerGone, diagnosis.Confirmed, literal(messageBuiltInNotRunning), "renewed 60m ago", nil}},
		},
		"a dependency that was deleted first": {
			facts: makeTerminating(left, withWorkloads(makeOperator(1)), func(facts *diagnosis.Facts) {
				facts.ReportedErrors = []diagnosis.ReportedError{makeReportedError(widgets, "a", "condition Ready", `providers.example.com "p" not found`, deleted)}
			}),
			want: []want{{diagnosis.CauseDependencyDeleted, diagnosis.Likely, `needs providers.example.com "p"`, "condition Ready of widgets", object}},
		},
		"an error about a dependency that exists": {
			facts: makeTerminating(left, withContent(contentOf(configMaps, makeObject("p"))), withWorkloads(makeOperator(1)), func(facts *diagnosis.Facts) {
				facts.ReportedErrors = []diagnosis.ReportedError{makeReportedError(widgets, "a", "condition Ready", `configmaps "p" not found`, deleted)}
			}),
			want: []want{{diagnosis.CauseFinalizerPending, diagnosis.Likely, "", "", object}},
		},
	})
}

// Finalizer and IsOwnerGone determine which finalizers the plugin can remove by force.
func TestFinalizerOfFinding(t *testing.T) {
	const agent = "openshift.com/origin"
	for name, test := range map[string]struct {
		facts       *diagnosis.Facts
		finalizer   string
		isOwnerGone bool
		remedy      string
	}{
		"a finalizer whose owner does not exist": {
			makeTerminating(withContent(contentOf(widgets, makeDeleted("a", held)))), held, true,
			"kubectl nslifecycle finalize shop --finalizer=" + held,
		},
		"a finalizer whose owner is running": {
			makeTerminating(withContent(contentOf(widgets, makeDeleted("a", held))), withWorkloads(makeOperator(1))), held, false,
			"kubectl nslifecycle finalize shop --finalizer=" + held,
		},
		"a namespace finalizer whose owner does not exist": {
			makeTerminating(withNamespaceFinalizers(agent)), agent, true, "kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"a namespace finalizer of a registered initializer": {
			makeTerminating(withNamespaceFinalizers(agent), withInitializerFinalizer(agent)), agent, false,
			"kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"a namespace finalizer, and configurations that cannot be read": {
			makeTerminating(withNamespaceFinalizers(agent), withUnread(diagnosis.SourceConfigurations)), agent, false,
			"kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"a namespace finalizer whose owner is running": {
			makeTerminating(withNamespaceFinalizers("widgets.example.com/agent"), withWorkloads(makeOperator(1))), "widgets.example.com/agent", false,
			"kubectl nslifecycle finalize shop --namespace-finalizer=widgets.example.com/agent",
		},
		"a namespace finalizer whose owner is unknown": {
			makeTerminating(withNamespaceFinalizers("hold")), "hold", false, "kubectl nslifecycle finalize shop --namespace-finalizer=hold",
		},
		"a namespace finalizer, and workloads that cannot be read": {
			makeTerminating(withNamespaceFinalizers(agent), withUnread(diagnosis.SourceDeployments)), agent, false,
			"kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"an entry of metadata.finalizers of the Namespace": {
			makeTerminating(withNamespaceFinalizers(), func(facts *diagnosis.Facts) { facts.Namespace.Finalizers = []string{agent} }), agent, true,
			"kubectl nslifecycle finalize shop --metadata-finalizer=" + agent,
		},
		"a PersistentVolumeClaim in use": {
			makeTerminating(withContent(contentOf(claims, makeDeleted("data", owners.FinalizerPVC))),
				withPod("web", func(pod *corev1.Pod) { pod.DeletionTimestamp = nil })),
			owners.FinalizerPVC, false, "kubectl nslifecycle finalize shop --finalizer=" + owners.FinalizerPVC,
		},
	} {
		t.Run(name, func(t *testing.T) {
			findings := Diagnose(test.facts).Findings
			if len(findings) != 1 {
				t.Fatalf("got %+v", findings)
			}
			if got := findings[0]; got.Finalizer != test.finalizer || got.IsOwnerGone != test.isOwnerGone ||
				!slices.Contains(got.Remedies, diagnosis.Resolve(test.remedy)) {
				t.Errorf("got %q, %t, %q, want %q, %t, %q", got.Finalizer, got.IsOwnerGone, got.Remedies,
					test.finalizer, test.isOwnerGone, test.remedy)
			}
		})
	}
}
