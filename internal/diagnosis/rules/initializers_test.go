// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const quota = "quota.corp.com"

// makeInitializing returns facts about a namespace that has been waiting for its second initializer
// for ten minutes.
func makeInitializing(changes ...func(*diagnosis.Facts)) *diagnosis.Facts {
	facts := &diagnosis.Facts{
		Now: now, ProgressDeadline: diagnosis.DefaultProgressDeadline, Initializers: []diagnosis.RegisteredInitializer{{Name: "access.corp.com"}, {Name: quota}},
		Namespace: wrappers.MakeNamespace(shop).Initializers("access.corp.com", quota).Pending(quota).Obj(),
	}
	facts.Namespace.CreationTimestamp = metav1.Time{Time: deleted.Add(-time.Hour)}
	facts.Namespace.Status.Conditions = []corev1.NamespaceCondition{
		{Type: "access.corp.com/Initialized", Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: deleted}},
		{Type: quota + "/Initialized", Status: corev1.ConditionFalse, Reason: "Pending",
			LastTransitionTime: metav1.Time{Time: deleted.Add(-time.Hour)}},
	}
	facts.Namespace.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "access", Time: &metav1.Time{Time: deleted}}}
	// These subjects exist in every cluster and in every installation of this project.
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

func withHolder(subject rbacv1.Subject, role string, rule rbacv1.PolicyRule) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) {
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
	exists := func(exists bool) func(*diagnosis.Facts) {
		return func(facts *diagnosis.Facts) { facts.ServiceAccounts = map[types.NamespacedName]bool{account: exists} }
	}
	runs := withWorkloads(diagnosis.Workload{Source: diagnosis.SourcePods, Namespace: "quota-system", Name: "quota-1", ServiceAccount: account, Desired: 1, Ready: 1})
	registered := func(facts *diagnosis.Facts) {
		facts.Initializers[1].Subjects = []v1alpha1.Subject{{Kind: "ServiceAccount", Namespace: "quota-system", Name: "quota"}}
	}
	published := func(facts *diagnosis.Facts) {
		facts.Namespace.Status.Conditions[1].Reason = "NoPlan"
		facts.Namespace.Status.Conditions[1].Message = "ConfigMap quota/plan is missing"
	}
	waitsForTemplates := func(facts *diagnosis.Facts) {
		facts.Namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = v1alpha1.TemplatesInitializer
		facts.Namespace.Status.Conditions[1].Type = v1alpha1.TemplatesInitializer + v1alpha1.ConditionInitializedSuffix
	}
	hasFailed := func(facts *diagnosis.Facts) {
		facts.Namespace.Annotations[v1alpha1.AnnotationInitializationResult] = `{"status":"Failure","message":"no budget"}`
	}
	failed := func(facts *diagnosis.Facts) {
		hasFailed(facts)
		facts.Namespace.Status.Conditions = append(facts.Namespace.Status.Conditions, corev1.NamespaceCondition{
			Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonFailed, Message: "no quota",
		}, corev1.NamespaceCondition{
			Type: v1alpha1.ConditionReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonFailed, Message: "it is protected",
		})
	}
	object := []string{"namespaces/shop"}
	runCases(t, map[string]diagnoseCase{
		"an initializer within the progress deadline": {facts: makeInitializing(func(facts *diagnosis.Facts) {
			facts.Namespace.Status.Conditions[0].LastTransitionTime.Time = now.Add(-29 * time.Second)
		})},
		"an initializer that has just updated its condition": {facts: makeInitializing(func(facts *diagnosis.Facts) {
			facts.Namespace.Status.Conditions[1].LastTransitionTime.Time = now.Add(-time.Second)
		})},
		"no subject with the permission": {
			facts: makeInitializing(),
			want:  []want{{diagnosis.CauseInitializerNotRunning, diagnosis.RankInferred, literal(messageNoInitializerSubject), "quota.corp.com has been first in the pending list since 2026-03-01T11:50:00Z", object}},
		},
		"a subject with the permission for another namespace": {
			facts: makeInitializing(withHolder(subject, "quota", initializeRule("other")), exists(true), runs),
			want:  []want{{diagnosis.CauseInitializerNotRunning, diagnosis.RankInferred, literal(messageNoInitializerSubject), "", object}},
		},
		"a subject with the permission for this namespace": {
			facts: makeInitializing(withHolder(subject, "quota", initializeRule(shop)), exists(true), runs),
			want:  []want{{diagnosis.CauseInitializerSlow, diagnosis.RankInferred, literal(messageInitializerRunning), `last changed at 2026-03-01T11:50:00Z, by "access"`, object}},
		},
		"a subject with all permissions": {
			facts: makeInitializing(exists(true), runs, withHolder(subject, "all", rbacv1.PolicyRule{
				Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}})),
			want: []want{{diagnosis.CauseInitializerPending, diagnosis.RankInferred, literal(messageOnlyWildcards), "", object}},
		},
		"a stopped ServiceAccount, and another one with all permissions": {
			facts: makeInitializing(holds, exists(true), withHolder(rbacv1.Subject{Kind: "ServiceAccount", Namespace: "argocd", Name: "controller"},
				"all", rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}})),
			want: []want{{diagnosis.CauseInitializerNotRunning, diagnosis.RankInferred, literal(messageInitializerNotRunning), "quota-system/quota", object}},
		},
		"a reason that the initializer published": {
			facts: makeInitializing(holds, exists(true), published),
			want: []want{{diagnosis.CauseInitializerFailing, diagnosis.RankPublished, "NoPlan: ConfigMap quota/plan is missing",
				"condition quota.corp.com/Initialized=False, NoPlan", object}},
		},
		"a registered subject that is running": {
			facts: makeInitializing(registered, exists(true), runs),
			want:  []want{{diagnosis.CauseInitializerSlow, diagnosis.RankInferred, "1 running pod", "is a subject of initializer", object}},
		},
		"a registered subject without pods, and another holder that is running": {
			facts: makeInitializing(registered, exists(true), withHolder(
				rbacv1.Subject{Kind: "ServiceAccount", Namespace: "other", Name: "x"}, "other", initializeRule())),
			want: []want{{diagnosis.CauseInitializerNotRunning, diagnosis.RankInferred, literal(messageInitializerNotRunning), "quota-system/quota", object}},
		},
		"a registered subject that does not exist": {
			facts: makeInitializing(registered, exists(false)),
			want:  []want{{diagnosis.CauseInitializerNotRunning, diagnosis.RankProven, "does not exist", "", object}},
		},
		"a waiting subject": {
			facts: makeInitializing(holds, exists(true), runs, func(facts *diagnosis.Facts) {
				facts.WaitingSubjects = []v1alpha1.Subject{{Kind: "ServiceAccount", Namespace: "quota-system", Name: "quota"}}
			}),
			want: []want{{diagnosis.CauseInitializerNotRunning, diagnosis.RankInferred, literal(messageNoInitializerSubject), "", object}},
		},
		"a ServiceAccount that does not exist": {
			facts: makeInitializing(holds, exists(false)),
			want:  []want{{diagnosis.CauseInitializerNotRunning, diagnosis.RankInferred, literal(messageInitializerNotRunning), "ServiceAccount quota-system/quota", object}},
		},
		"a ServiceAccount without pods": {
			facts: makeInitializing(holds, exists(true)),
			want:  []want{{diagnosis.CauseInitializerNotRunning, diagnosis.RankInferred, literal(messageInitializerNotRunning), "has no running pod", object}},
		},
		"a ServiceAccount whose pods cannot be read": {
			facts: makeInitializing(holds, exists(true), withUnread(diagnosis.SourcePods)),
			want:  []want{{diagnosis.CauseInitializerPending, diagnosis.RankInferred, literal(messageInitializerUnknown), "", object}},
		},
		"a user who may be running the initializer": {
			facts: makeInitializing(withHolder(rbacv1.Subject{Kind: "User", Name: "ci"}, "ci", initializeRule())),
			want:  []want{{diagnosis.CauseInitializerPending, diagnosis.RankInferred, literal(messageInitializerUnknown), `User "ci"`, object}},
		},
		"permissions that cannot be read": {
			facts: makeInitializing(withUnread(diagnosis.SourceClusterRoles)),
			want:  []want{{diagnosis.CauseInitializerPending, diagnosis.RankInferred, literal(messageInitializerSubjects), "", object}},
		},
		"an initializer that is no longer registered": {
			facts: makeInitializing(holds, exists(true), runs, func(facts *diagnosis.Facts) { facts.Initializers = nil }),
			want:  []want{{diagnosis.CauseInitializerNotRegistered, diagnosis.RankProven, literal(messageNotRegistered), literal(evidenceNotRegistered) + quota, object}},
		},
		"the initializer of templates": {
			facts: makeInitializing(holds, exists(true), waitsForTemplates),
			want:  []want{{diagnosis.CauseInitializerPending, diagnosis.RankInferred, literal(messageInitializerUnknown), "", object}},
		},
		"templates that cannot be applied": {
			facts: makeInitializing(waitsForTemplates, published),
			want:  []want{{diagnosis.CauseInitializerFailing, diagnosis.RankPublished, "NoPlan: ConfigMap quota/plan is missing", "", object}},
		},
		"after an initializer that has just been skipped": {facts: makeInitializing(func(facts *diagnosis.Facts) {
			facts.Namespace.Status.Conditions[0] = corev1.NamespaceCondition{
				Type: "access.corp.com/Initialized", Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonTimedOut,
				LastTransitionTime: metav1.Time{Time: now.Add(-29 * time.Second)},
			}
		})},
		"a failed initialization": {
			facts: makeInitializing(failed),
			want: []want{{diagnosis.CauseInitializerFailing, diagnosis.RankPublished, messageInitializationFailed,
				"condition Initializing=False, Failed", object}},
		},
		"a failed initialization without the condition": {
			facts: makeInitializing(hasFailed),
			want: []want{{diagnosis.CauseInitializerFailing, diagnosis.RankPublished, messageInitializationFailed,
				"nslifecycle.dev/initialization-result: no budget", object}},
		},
		"a failed initialization within the progress deadline": {facts: makeInitializing(failed, func(facts *diagnosis.Facts) {
			facts.Namespace.ManagedFields[0].Time = &metav1.Time{Time: now}
		})},
		"configurations that cannot be read": {
			facts: makeInitializing(holds, exists(true), runs, withUnread(diagnosis.SourceConfigurations), func(facts *diagnosis.Facts) { facts.Initializers = nil }),
			want:  []want{{diagnosis.CauseInitializerSlow, diagnosis.RankInferred, "", "", object}},
		},
	})
}

func TestTimeoutsAreEvidence(t *testing.T) {
	g := NewWithT(t)
	facts := makeInitializing()
	const start = "2026-03-01T12:00:00Z"
	for value, isShown := range map[string]bool{
		quota + " " + start: true, "x" + quota + " " + start: false, quota + " " + start + strings.Repeat("0", 9): false,
	} {
		facts.Namespace.Annotations[v1alpha1.AnnotationTurnStartedAt] = value
		shows := ContainElement(HaveField("Text", ContainSubstring("a deadline counts from")))
		g.Expect(shows.Match(view{facts}.turnEvidence(quota, now))).To(Equal(isShown), value)
	}
}

// What the operator has published takes precedence over the conditions, which it may not be able to write.
func TestFindTemplates(t *testing.T) {
	rejected := func(at time.Time) func(*diagnosis.Facts) {
		return withRejectedWrite("policy 'owners' denied request", at)
	}
	for name, test := range map[string]struct {
		change func(*diagnosis.Facts)
		want   diagnosis.Cause
		text   string
	}{
		"nothing is published": {func(*diagnosis.Facts) {}, diagnosis.CauseInitializerPending, "is running"},
		"a template fails": {
			func(facts *diagnosis.Facts) { facts.TemplateFailures = []string{"template team: NotRecorded: denied"} },
			diagnosis.CauseInitializerFailing, "template team: NotRecorded: denied",
		},
		"a write is rejected": {rejected(now), diagnosis.CauseAdmissionRejected, "policy 'owners' denied request"},
		"a write to an earlier Namespace was rejected": {
			rejected(now.Add(-24 * time.Hour)), diagnosis.CauseInitializerPending, "is running",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			facts := makeInitializing(test.change)
			facts.Namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = v1alpha1.TemplatesInitializer
			facts.Namespace.Annotations[v1alpha1.AnnotationSelectedTemplates] = "team"
			findings := Diagnose(facts).Findings
			g.Expect(findings).To(HaveLen(1))
			g.Expect(findings[0].Cause).To(Equal(test.want))
			g.Expect(findings[0].Message).To(ContainSubstring(test.text))
			var remedies []string
			for _, remedy := range findings[0].Remedies {
				remedies = append(remedies, remedy.String())
			}
			g.Expect(remedies).To(ContainElement("kubectl nslifecycle template status team"))
			g.Expect(remedies).NotTo(ContainElement(HavePrefix("Start the controller")))
		})
	}
}

func TestSummaryOfHeldNamespace(t *testing.T) {
	facts := makeTerminating(withNamespaceFinalizers("example.com/agent"))
	facts.ProgressDeadline = 24 * time.Hour
	NewWithT(t).Expect(Diagnose(facts).Summary).To(ContainSubstring("waiting for namespace finalizer example.com/agent"))
}
