// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var operator = types.NamespacedName{Namespace: "widgets-system", Name: "widgets"}

func makeOperator(ready int32) Workload {
	return Workload{
		Source: SourceDeployments, Namespace: operator.Namespace, Name: "controller",
		Texts: []string{"controller", "widgets.example.com"}, Account: operator, Wanted: 1, Ready: ready,
	}
}

func withBinding(namespace string, exists bool) func(*Facts) {
	binding := rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"}}
	binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "widgets"}}
	return func(facts *Facts) {
		facts.ClusterRoleBindings = append(facts.ClusterRoleBindings, binding)
		facts.Accounts = map[types.NamespacedName]bool{{Namespace: namespace, Name: "widgets"}: exists}
	}
}

func withReview(isAllowed bool) func(*Facts) {
	return func(facts *Facts) {
		facts.Reviews = append(facts.Reviews, Review{operator, widgets.GroupResource(), isAllowed})
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
		"an owner that has time": {facts: makeDeath(withContent(contentOf(widgets, young)))},
		"a finalizer that is being taken off elsewhere": {facts: makeDeath(left, func(facts *Facts) {
			facts.Movement.Released = map[string]int{held: 1}
		})},
		"counts that were higher a moment ago": {facts: makeDeath(left, func(facts *Facts) { facts.Movement.Said = "3 and now 1" })},
		"more objects than were looked at": {
			facts: makeDeath(left, func(facts *Facts) { facts.Content[0].Count = 600 }),
			want: []want{{CauseFinalizerOwnerGone, Likely, "widgets", "of 600 widgets.widgets.example.com the first 1 were looked at",
				object}},
		},
		"another finalizer being taken off is no excuse": {
			facts: makeDeath(left, func(facts *Facts) { facts.Movement.Released = map[string]int{"other.example.org/x": 3} }),
			want:  []want{{CauseFinalizerOwnerGone, Likely, "seems to be uninstalled", "looked for its owner", object}},
		},
		"a living owner": {
			facts: makeDeath(left, withWorkloads(makeOperator(1)), withReview(true)),
			want:  []want{{CauseFinalizerPending, Likely, "seems to be alive", "widgets-system/controller has 1 of 1", object}},
		},
		"an owner that holds its Lease": {
			facts: makeDeath(left, withLeases(makeLease("elsewhere", "widgets.example.com", "x", now.Add(-10*time.Second)))),
			want:  []want{{CauseFinalizerPending, Likely, "seems to be alive", "Lease elsewhere/widgets.example.com", object}},
		},
		"an owner without rights": {
			facts: makeDeath(left, withWorkloads(makeOperator(1)), withReview(false)),
			want:  []want{{CauseFinalizerOwnerForbidden, Proven, "may not take it off", "may neither patch nor update", object}},
		},
		"one of two possible owners without rights": {
			facts: makeDeath(left, withReview(false), withWorkloads(makeOperator(1), Workload{
				Source: SourceDeployments, Namespace: "other", Name: "widgets.example.com", Texts: []string{"widgets.example.com"},
				Account: types.NamespacedName{Namespace: "other", Name: "default"}, Wanted: 1, Ready: 1,
			})),
			want: []want{{CauseFinalizerOwnerForbidden, Likely, "", "", object}},
		},
		"an owner that is scaled to zero": {
			facts: makeDeath(left, withWorkloads(makeOperator(0))),
			want:  []want{{CauseFinalizerOwnerGone, Proven, "does not run any more", "has 0 of 1 pods ready", object}},
		},
		"an owner that has left its Lease behind": {
			facts: makeDeath(left, withDefinition(), withLeases(makeLease("widgets-system", "widgets.example.com", "x", now.Add(-time.Hour)))),
			want:  []want{{CauseFinalizerOwnerGone, Likely, "does not run any more", "renewed 60m ago", object}},
		},
		"an owner that has left its Lease behind, as far as can be seen": {
			facts: makeDeath(left, withUnread(SourceDeployments),
				withLeases(makeLease("widgets-system", "widgets.example.com", "x", now.Add(-time.Hour)))),
			want: []want{{CauseFinalizerOwnerGone, Likely, "", "could not read deployments.apps", object}},
		},
		"an owner whose ServiceAccount has gone": {
			facts: makeDeath(left, withBinding("widgets-system", false)),
			want:  []want{{CauseFinalizerOwnerGone, Proven, "", "which does not exist", object}},
		},
		"an owner that was in the namespace": {
			facts: makeDeath(left, withBinding(shop, false)),
			want:  []want{{CauseFinalizerOwnerInNamespace, Proven, "in this very namespace", "ServiceAccount shop/widgets", object}},
		},
		"a ServiceAccount that exists is no owner by itself": {
			facts: makeDeath(left, withBinding("widgets-system", true)),
			want:  []want{{CauseFinalizerOwnerGone, Likely, "seems to be uninstalled", "", object}},
		},
		"an owner of which only the type is left": {
			facts: makeDeath(left, withDefinition()),
			want:  []want{{CauseFinalizerOwnerGone, Likely, "is still installed", "CustomResourceDefinition widgets", object}},
		},
		"an owner that has been at it since": {
			facts: makeDeath(withContent(contentOf(widgets, touched))),
			want:  []want{{CauseFinalizerPending, Likely, "widget-engine", "put on by widget-engine", object}},
		},
		"a person who has been at it is no owner": {
			facts: makeDeath(withContent(contentOf(widgets, byHand))),
			want:  []want{{CauseFinalizerOwnerGone, Likely, "", "put on by kubectl-edit", object}},
		},
		"an owner that cannot be looked for": {
			facts: makeDeath(left, withUnread(SourceLeases)),
			want:  []want{{CauseFinalizerPending, Likely, "is not known", "could not read leases", object}},
		},
		"a finalizer that tells nothing": {
			facts: makeDeath(withContent(contentOf(configMaps, makeDeleted("a", "hold")))),
			want:  []want{{CauseFinalizerPending, Likely, "is not known", "looked for", []string{"configmaps/a"}}},
		},
		"kube-controller-manager that runs": {
			facts: makeDeath(withContent(contentOf(claims, makeDeleted("a", finalizerClaim)))),
			want:  []want{{CauseFinalizerPending, Likely, "pvc-protection controller", "renewed 1s ago", nil}},
		},
		"kube-controller-manager that does not": {
			facts: makeDeath(withContent(contentOf(claims, makeDeleted("a", finalizerClaim))), func(facts *Facts) {
				facts.Leases[0] = makeLease("kube-system", "kube-controller-manager", "x", now.Add(-time.Hour))
			}),
			want: []want{{CauseFinalizerOwnerGone, Proven, "which does not run", "renewed 60m ago", nil}},
		},
		"a sibling that was deleted first": {
			facts: makeDeath(left, withWorkloads(makeOperator(1)), func(facts *Facts) {
				facts.Complaints = []Complaint{{widgets, "a", "condition Ready", `providers.example.com "p" not found`, deleted}}
			}),
			want: []want{{CauseDependencyDeleted, Likely, `needs providers.example.com "p"`, "condition Ready of widgets", object}},
		},
		"a complaint about something that is there": {
			facts: makeDeath(left, withContent(contentOf(configMaps, makeObject("p"))), withWorkloads(makeOperator(1)), func(facts *Facts) {
				facts.Complaints = []Complaint{{widgets, "a", "condition Ready", `configmaps "p" not found`, deleted}}
			}),
			want: []want{{CauseFinalizerPending, Likely, "", "", object}},
		},
	})
}

func TestSuspectOf(t *testing.T) {
	for finalizer, domain := range map[string]string{
		"foo.example.com/bar": "foo.example.com", "finalizer.example.com": "example.com",
		"resources-finalizer.argocd.argoproj.io": "argocd.argoproj.io", "hold": "", "hold/it": "", "": "",
	} {
		if got := suspectOf(finalizer, nil).domain; got != domain {
			t.Errorf("domain of %q is %q, want %q", finalizer, got, domain)
		}
	}
	s := suspectOf("foo.example.com/bar", nil)
	for text, fit := range map[string]strength{
		"foo.example.com": strong, "x-foo.example.com/lock": strong, "foo-operator": weak, "food": none, "": none,
	} {
		if got := s.fits(text); got != fit {
			t.Errorf("%q fits %d, want %d", text, got, fit)
		}
	}
	// Everybody's images come from there.
	registry := suspectOf("records.cnrm.google.com/bar", nil)
	if got := registry.fits("registry.k8s.io/google-containers/pause"); got != none {
		t.Errorf("a registry fits %d", got)
	}
	if isRelated("resource.k8s.io", "snapshot.k8s.io") || isRelated("k8s.io", "x.k8s.io") || isRelated("", "") {
		t.Error("unrelated groups are related")
	}
	if !isRelated("sub.example.com", "example.com") || !isRelated("example.com", "sub.example.com") {
		t.Error("related groups are not related")
	}
}

// What a finding is about, and whether anybody may still act, decides what may be removed
// by force.
func TestFinalizerOfFinding(t *testing.T) {
	const agent = "openshift.com/origin"
	for name, test := range map[string]struct {
		facts       *Facts
		finalizer   string
		isOwnerGone bool
		remedy      string
	}{
		"an owner that is gone": {
			makeDeath(withContent(contentOf(widgets, makeDeleted("a", held)))), held, true,
			"kubectl nslifecycle finalize shop --finalizer=" + held,
		},
		"an owner that lives": {
			makeDeath(withContent(contentOf(widgets, makeDeleted("a", held))), withWorkloads(makeOperator(1))), held, false,
			"kubectl nslifecycle finalize shop --finalizer=" + held,
		},
		"an agent that is gone": {
			makeDeath(withTokens(agent)), agent, true, "kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"an agent that a configuration counts on": {
			makeDeath(withTokens(agent), withRegisteredToken(agent)), agent, false,
			"kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"an agent that a configuration may count on": {
			makeDeath(withTokens(agent), withUnread(SourceConfigurations)), agent, false,
			"kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"an agent that lives": {
			makeDeath(withTokens("widgets.example.com/agent"), withWorkloads(makeOperator(1))), "widgets.example.com/agent", false,
			"kubectl nslifecycle finalize shop --namespace-finalizer=widgets.example.com/agent",
		},
		"an agent of whom nothing is known": {
			makeDeath(withTokens("hold")), "hold", false, "kubectl nslifecycle finalize shop --namespace-finalizer=hold",
		},
		"an agent that cannot be looked for": {
			makeDeath(withTokens(agent), withUnread(SourceDeployments)), agent, false,
			"kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"an owner on the Namespace": {
			makeDeath(withTokens(), func(facts *Facts) { facts.Namespace.Finalizers = []string{agent} }), agent, true,
			"kubectl nslifecycle finalize shop --metadata-finalizer=" + agent,
		},
		"a claim in use": {
			makeDeath(withContent(contentOf(claims, makeDeleted("data", finalizerClaim))),
				withPod("web", func(pod *corev1.Pod) { pod.DeletionTimestamp = nil })),
			finalizerClaim, false, "kubectl nslifecycle finalize shop --finalizer=" + finalizerClaim,
		},
	} {
		t.Run(name, func(t *testing.T) {
			findings := Diagnose(test.facts).Findings
			if len(findings) != 1 {
				t.Fatalf("got %+v", findings)
			}
			if got := findings[0]; got.Finalizer != test.finalizer || got.IsOwnerGone != test.isOwnerGone ||
				!slices.Contains(got.Remedies, test.remedy) {
				t.Errorf("got %q, %t, %q, want %q, %t, %q", got.Finalizer, got.IsOwnerGone, got.Remedies,
					test.finalizer, test.isOwnerGone, test.remedy)
			}
		})
	}
}
