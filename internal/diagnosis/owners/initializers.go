// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// Status describes whether an identity is running.
type Status int

// Values of Status.
const (
	StatusUnknown Status = iota
	StatusRunning
	StatusNotRunning
	StatusMissing
)

// Identity is a user, group or ServiceAccount that may initialize the namespace.
type Identity struct {
	Text   string
	Status Status
}

// systemSubjects have the "initialize" verb by default, or have all verbs. They belong to the
// control plane and do not initialize namespaces.
var systemSubjects = []rbacv1.Subject{
	{Kind: rbacv1.GroupKind, Name: "system:masters"},
	{Kind: rbacv1.GroupKind, Name: "kubeadm:cluster-admins"},
	{Kind: rbacv1.GroupKind, Name: "system:nodes"},
	{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:kube-system"},
	{Kind: rbacv1.UserKind, Name: "system:kube-controller-manager"},
	{Kind: rbacv1.UserKind, Name: "system:kube-scheduler"},
}

// CanAnyoneInitialize reports whether any subject has the "initialize" verb for at least one
// namespace. It ignores the control plane, cluster administrators and the manager of this project.
func CanAnyoneInitialize(roles []rbacv1.ClusterRole, bindings []rbacv1.ClusterRoleBinding) bool {
	return len(subjectsWith(roles, bindings, grantsInitialize)) > 0
}

// InitializerSubjects returns the subjects that may initialize the namespace, each with the name of
// its ClusterRoleBinding.
func InitializerSubjects(facts *diagnosis.Facts) map[rbacv1.Subject]string {
	return subjectsWith(facts.ClusterRoles, facts.ClusterRoleBindings, func(rule *rbacv1.PolicyRule) bool {
		return grantsInitialize(rule) &&
			(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, facts.Namespace.Name))
	})
}

// InitializerIdentities returns the subjects that may initialize the namespace with their status.
func InitializerIdentities(facts *diagnosis.Facts) []Identity {
	var identities []Identity
	for subject, binding := range InitializerSubjects(facts) {
		if subject.Kind != rbacv1.ServiceAccountKind {
			identities = append(identities, Identity{
				fmt.Sprintf(textSubject, subject.Kind, subject.Name, binding), StatusUnknown,
			})
			continue
		}
		account := types.NamespacedName{Namespace: subject.Namespace, Name: subject.Name}
		pods := 0
		for i := range facts.Workloads {
			if facts.Workloads[i].ServiceAccount == account && facts.Workloads[i].IsReady() {
				pods++
			}
		}
		status := StatusUnknown
		switch exists, ok := facts.ServiceAccounts[account]; {
		case pods > 0:
			status = StatusRunning
		case ok && !exists:
			status = StatusMissing
		case ok && facts.IsRead(diagnosis.SourcePods):
			status = StatusNotRunning
		}
		identities = append(identities, Identity{textServiceAccount(account, binding, status, pods), status})
	}
	slices.SortFunc(identities, func(a, b Identity) int { return strings.Compare(a.Text, b.Text) })
	return identities
}

func subjectsWith(
	roles []rbacv1.ClusterRole, bindings []rbacv1.ClusterRoleBinding, isGrant func(*rbacv1.PolicyRule) bool,
) map[rbacv1.Subject]string {
	granting := map[string]bool{}
	for _, role := range roles {
		granting[role.Name] = slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return isGrant(&rule) })
	}
	subjects := map[rbacv1.Subject]string{}
	for _, binding := range bindings {
		if !granting[binding.RoleRef.Name] {
			continue
		}
		for _, subject := range binding.Subjects {
			subject.APIGroup = ""
			if !isSystemSubject(subject, &binding) && subjects[subject] == "" {
				subjects[subject] = binding.Name
			}
		}
	}
	return subjects
}

// grantsInitialize reports whether a rule grants the "initialize" verb for all namespaces or for
// specific namespaces.
func grantsInitialize(rule *rbacv1.PolicyRule) bool {
	has := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, rbacv1.VerbAll)
	}
	return has(rule.Verbs, v1alpha1.VerbInitialize) && has(rule.APIGroups, "") && has(rule.Resources, namespaceResource)
}

// isSystemSubject reports whether a subject belongs to the control plane or is the manager of this
// project. It identifies the manager by the label of the binding and the name of the subject.
func isSystemSubject(subject rbacv1.Subject, binding *rbacv1.ClusterRoleBinding) bool {
	subject.Namespace = strings.TrimSpace(subject.Namespace)
	if slices.Contains(systemSubjects, rbacv1.Subject{Kind: subject.Kind, Name: subject.Name}) {
		return true
	}
	if subject.Kind == rbacv1.ServiceAccountKind && subject.Namespace == metav1.NamespaceSystem {
		return true
	}
	return subject.Kind == rbacv1.ServiceAccountKind && binding.Labels["app.kubernetes.io/name"] == "nslifecycle" &&
		strings.HasSuffix(subject.Name, "controller-manager")
}
