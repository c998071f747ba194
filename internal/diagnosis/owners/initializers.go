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
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

const namespaceResource = "namespaces"

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
// namespace. It ignores the control plane, cluster administrators, the manager of this project and
// waiting subjects.
func CanAnyoneInitialize(
	roles []rbacv1.ClusterRole, bindings []rbacv1.ClusterRoleBinding, waiting []v1alpha1.Subject,
) bool {
	return hasHolder(roles, bindings, waiting, grantsInitialize)
}

// InitializerIdentities returns the identities that can be the given initializer, with their status. If
// the initializer is registered with subjects, isExact is true, and these are the identities. Otherwise,
// they are the subjects with the "initialize" verb. Subjects that have the verb only because they have
// all verbs, waiting subjects and the subjects of other initializers are no evidence of the initializer.
func InitializerIdentities(facts *diagnosis.Facts, name string) (identities []Identity, isExact bool) {
	for subject, reason := range initializerSubjects(facts, name) {
		identities = append(identities, identityOf(facts, subject, reason))
	}
	slices.SortFunc(identities, func(a, b Identity) int { return strings.Compare(a.Text, b.Text) })
	return identities, len(registeredSubjects(facts, name)) > 0
}

// InitializerAccounts returns the ServiceAccounts that can be the first pending initializer of the
// namespace, or the initializer with one of its namespace finalizers.
func InitializerAccounts(facts *diagnosis.Facts) []types.NamespacedName {
	var names []string
	if pending := diagnosis.PendingInitializers(facts.Namespace); len(pending) > 0 {
		names = append(names, pending[0])
	}
	for _, initializer := range facts.Initializers {
		if slices.Contains(facts.ExternalNamespaceFinalizers(), initializer.Finalizer) {
			names = append(names, initializer.Name)
		}
	}
	var accounts []types.NamespacedName
	for _, name := range names {
		for subject := range initializerSubjects(facts, name) {
			account := types.NamespacedName{Namespace: subject.Namespace, Name: subject.Name}
			if subject.Kind == v1alpha1.SubjectServiceAccount && !slices.Contains(accounts, account) {
				accounts = append(accounts, account)
			}
		}
	}
	return accounts
}

func initializerSubjects(facts *diagnosis.Facts, name string) map[v1alpha1.Subject]string {
	result := map[v1alpha1.Subject]string{}
	if registered := registeredSubjects(facts, name); len(registered) > 0 {
		for _, subject := range registered {
			result[subject] = "is a subject of initializer " + name
		}
		return result
	}
	excluded := slices.Clone(facts.WaitingSubjects)
	for _, initializer := range facts.Initializers {
		excluded = append(excluded, initializer.Subjects...)
	}
	holders := subjectsWith(facts.ClusterRoles, facts.ClusterRoleBindings, func(rule *rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Verbs, v1alpha1.VerbInitialize) && grantsInitialize(rule) &&
			(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, facts.Namespace.Name))
	})
	for holder, binding := range holders {
		if subject := makeSubject(holder); !slices.Contains(excluded, subject) {
			result[subject] = fmt.Sprintf("has the initialize verb through ClusterRoleBinding %q", binding)
		}
	}
	return result
}

// HasWildcardHolder reports whether any subject may initialize the namespace because it has all verbs.
func HasWildcardHolder(facts *diagnosis.Facts) bool {
	return hasHolder(facts.ClusterRoles, facts.ClusterRoleBindings, facts.WaitingSubjects,
		func(rule *rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Verbs, rbacv1.VerbAll) && grantsInitialize(rule)
		})
}

// hasHolder reports whether a role grants a permission to a subject that is not a waiting subject.
func hasHolder(
	roles []rbacv1.ClusterRole, bindings []rbacv1.ClusterRoleBinding, waiting []v1alpha1.Subject,
	isGrant func(*rbacv1.PolicyRule) bool,
) bool {
	for subject := range subjectsWith(roles, bindings, isGrant) {
		if !slices.Contains(waiting, makeSubject(subject)) {
			return true
		}
	}
	return false
}

func registeredSubjects(facts *diagnosis.Facts, name string) []v1alpha1.Subject {
	for _, initializer := range facts.Initializers {
		if initializer.Name == name {
			return initializer.Subjects
		}
	}
	return nil
}

// RegisteredIdentities returns the subjects with which a configuration registers an initializer, with their
// status.
func RegisteredIdentities(facts *diagnosis.Facts, initializer diagnosis.RegisteredInitializer) []Identity {
	var identities []Identity
	for _, subject := range initializer.Subjects {
		identities = append(identities, identityOf(facts, subject, "is a subject of initializer "+initializer.Name))
	}
	return identities
}

func makeSubject(subject rbacv1.Subject) v1alpha1.Subject {
	return v1alpha1.Subject{
		Kind: v1alpha1.SubjectKind(subject.Kind), Namespace: subject.Namespace, Name: subject.Name,
	}
}

func identityOf(facts *diagnosis.Facts, subject v1alpha1.Subject, reason string) Identity {
	if subject.Kind != v1alpha1.SubjectServiceAccount {
		text := fmt.Sprintf("%s %q %s; whether it is running is unknown", subject.Kind, subject.Name, reason)
		return Identity{text, StatusUnknown}
	}
	account := types.NamespacedName{Namespace: subject.Namespace, Name: subject.Name}
	pods := 0
	for i := range facts.Workloads {
		if facts.Workloads[i].ServiceAccount == account && facts.Workloads[i].IsReady() {
			pods++
		}
	}
	text := fmt.Sprintf("ServiceAccount %s %s", account, reason)
	switch exists, ok := facts.ServiceAccounts[account]; {
	case pods > 0:
		return Identity{text + " and has " + printable.Count(pods, "running pod"), StatusRunning}
	case ok && !exists:
		return Identity{text + " but does not exist", StatusMissing}
	case ok && facts.IsRead(diagnosis.SourcePods):
		return Identity{text + " but has no running pod", StatusNotRunning}
	}
	return Identity{text + "; whether it is running is unknown", StatusUnknown}
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
	return subject.Kind == rbacv1.ServiceAccountKind &&
		binding.Labels[internalv1alpha1.LabelName] == internalv1alpha1.Name &&
		strings.HasSuffix(subject.Name, "controller-manager")
}
