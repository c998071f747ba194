// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const quota = "quota.corp.com"

// makeBirth returns what is known of a namespace that has waited for its second initializer
// for ten minutes.
func makeBirth(changes ...func(*Facts)) *Facts {
	facts := &Facts{
		Now: now, Patience: DefaultPatience, Registered: []string{"access.corp.com", quota},
		Namespace: wrappers.MakeNamespace(shop).Initializers("access.corp.com", quota).Pending(quota).Obj(),
	}
	facts.Namespace.CreationTimestamp = metav1.Time{Time: deleted.Add(-time.Hour)}
	facts.Namespace.Status.Conditions = []corev1.NamespaceCondition{
		{Type: "access.corp.com/Initialized", Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: deleted}},
		{Type: quota + "/Initialized", Status: corev1.ConditionFalse, Reason: "Pending",
			LastTransitionTime: metav1.Time{Time: deleted.Add(-time.Hour)}},
	}
	facts.Namespace.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "access", Time: &metav1.Time{Time: deleted}}}
	// What every cluster and every installation has.
	withHolder(rbacv1.Subject{Kind: "Group", Name: "system:masters", APIGroup: "rbac.authorization.k8s.io"}, "cluster-admin", rbacv1.PolicyRule{
		Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}})(facts)
	withHolder(rbacv1.Subject{Kind: "Group", Name: "system:nodes"}, "nslifecycle-namespace-initializer", initializeRule())(facts)
	withHolder(rbacv1.Subject{Kind: "ServiceAccount", Namespace: "nslifecycle-system", Name: "nslifecycle-controller-manager"},
		"nslifecycle-namespace-initializer", initializeRule())(facts)
	for _, change := range changes {
		change(facts)
	}
	return facts
}

func initializeRule(names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		Verbs: []string{"initialize"}, APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: names,
	}
}

func withHolder(subject rbacv1.Subject, role string, rule rbacv1.PolicyRule) func(*Facts) {
	return func(facts *Facts) {
		facts.ClusterRoles = append(facts.ClusterRoles, rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: []rbacv1.PolicyRule{rule},
		})
		binding := rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role}, Subjects: []rbacv1.Subject{subject}}
		binding.RoleRef.Name = role
		if role == "nslifecycle-namespace-initializer" {
			binding.Labels = map[string]string{"app.kubernetes.io/name": "nslifecycle"}
		}
		facts.ClusterRoleBindings = append(facts.ClusterRoleBindings, binding)
	}
}

func TestFindInitializers(t *testing.T) {
	account := types.NamespacedName{Namespace: "quota-system", Name: "quota"}
	subject := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "quota-system", Name: "quota"}
	holds := withHolder(subject, "quota", initializeRule())
	exists := func(exists bool) func(*Facts) {
		return func(facts *Facts) { facts.Accounts = map[types.NamespacedName]bool{account: exists} }
	}
	runs := withWorkloads(Workload{Source: SourcePods, Namespace: "quota-system", Name: "quota-1", Account: account, Wanted: 1, Ready: 1})
	object := []string{"namespaces/shop"}
	runCases(t, map[string]diagnoseCase{
		"an initializer that has time": {facts: makeBirth(func(facts *Facts) {
			facts.Namespace.Status.Conditions[0].LastTransitionTime.Time = now.Add(-29 * time.Second)
		})},
		"an initializer that has said something just now": {facts: makeBirth(func(facts *Facts) {
			facts.Namespace.Status.Conditions[1].LastTransitionTime.Time = now.Add(-time.Second)
		})},
		"nobody who could act": {
			facts: makeBirth(),
			want:  []want{{CauseInitializerNotRunning, Proven, "nobody but the control plane", "the turn of quota.corp.com began at 2026-03-01T11:50:00Z", object}},
		},
		"somebody who may act on another namespace only": {
			facts: makeBirth(withHolder(subject, "quota", initializeRule("other")), exists(true), runs),
			want:  []want{{CauseInitializerNotRunning, Proven, "nobody but the control plane", "", object}},
		},
		"somebody who may act on this one": {
			facts: makeBirth(withHolder(subject, "quota", initializeRule(shop)), exists(true), runs),
			want:  []want{{CauseInitializerSlow, Likely, "has 1 pod running", `last changed at 2026-03-01T11:50:00Z, by "access"`, object}},
		},
		"somebody who may do everything": {
			facts: makeBirth(exists(true), runs, withHolder(subject, "all", rbacv1.PolicyRule{
				Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}})),
			want: []want{{CauseInitializerSlow, Likely, "has 1 pod running", "", object}},
		},
		"a ServiceAccount that does not exist": {
			facts: makeBirth(holds, exists(false)),
			want:  []want{{CauseInitializerNotRunning, Proven, "does not exist", "ServiceAccount quota-system/quota", object}},
		},
		"a ServiceAccount without pods": {
			facts: makeBirth(holds, exists(true)),
			want:  []want{{CauseInitializerNotRunning, Likely, "has no running pod", "", object}},
		},
		"a ServiceAccount whose pods may not be read": {
			facts: makeBirth(holds, exists(true), withUnread(SourcePods)),
			want:  []want{{CauseInitializerSlow, Likely, "is not known", "", object}},
		},
		"a user": {
			facts: makeBirth(withHolder(rbacv1.Subject{Kind: "User", Name: "ci"}, "ci", initializeRule())),
			want:  []want{{CauseInitializerSlow, Likely, "is not known", `User "ci" may act`, object}},
		},
		"rights that may not be read": {
			facts: makeBirth(withUnread(SourceRoles)),
			want:  []want{{CauseInitializerSlow, Likely, "who could act is not known", "", object}},
		},
		"an initializer that nobody registers any more": {
			facts: makeBirth(holds, exists(true), runs, func(facts *Facts) { facts.Registered = nil }),
			want:  []want{{CauseInitializerUnregistered, Proven, "no configuration registers it", "no NamespaceInitializerConfiguration names", object}},
		},
		"configurations that may not be read": {
			facts: makeBirth(holds, exists(true), runs, withUnread(SourceConfigurations), func(facts *Facts) { facts.Registered = nil }),
			want:  []want{{CauseInitializerSlow, Likely, "", "", object}},
		},
	})
}

func TestMayAnybodyInitialize(t *testing.T) {
	role := func(verbs ...string) rbacv1.ClusterRole {
		return rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: verbs, ResourceNames: []string{"only-this"},
		}}}
	}
	to := func(subjects ...rbacv1.Subject) rbacv1.ClusterRoleBinding {
		return rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}, Subjects: subjects,
		}
	}
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "quota-system", Name: "initializer"}
	tests := map[string]struct {
		role    rbacv1.ClusterRole
		binding rbacv1.ClusterRoleBinding
		want    bool
	}{
		"an initializer":                  {role: role("initialize"), binding: to(account), want: true},
		"every verb":                      {role: role("*"), binding: to(account), want: true},
		"another verb":                    {role: role("get"), binding: to(account)},
		"bound to nobody":                 {role: role("initialize"), binding: to()},
		"bound to the control plane":      {role: role("initialize"), binding: to(systemHolders...)},
		"bound to the control plane, too": {role: role("initialize"), binding: to(append(slices.Clone(systemHolders), account)...), want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(MayAnybodyInitialize([]rbacv1.ClusterRole{test.role},
				[]rbacv1.ClusterRoleBinding{test.binding})).To(Equal(test.want))
		})
	}
}

func TestTimeoutsAreEvidence(t *testing.T) {
	g := NewWithT(t)
	facts := makeBirth()
	condition := corev1.NamespaceCondition{
		Type: "nslifecycle.dev/InitializerTurn", Status: corev1.ConditionTrue, Reason: "Pending", Message: "it has a time-out",
	}
	facts.Namespace.Status.Conditions = append(facts.Namespace.Status.Conditions, condition)
	g.Expect(facts.noteTurn(quota, now)).To(ContainElement(ContainSubstring("it has a time-out")))
	facts.Namespace.Status.Conditions[len(facts.Namespace.Status.Conditions)-1].Status = corev1.ConditionFalse
	g.Expect(facts.noteTurn(quota, now)).NotTo(ContainElement(ContainSubstring("it has a time-out")))
}
