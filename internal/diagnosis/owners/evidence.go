// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

const namespaceResource = "namespaces"

// ManagerLease is the default name of the Lease of this project's manager.
const ManagerLease = "nslifecycle.dev"

// Evidence is one fact about an owner.
type Evidence struct {
	Text  string
	Match Match
	// InNamespace reports whether the evidence is an object in the namespace itself.
	InNamespace bool
}

// Report contains all evidence of an owner.
type Report struct {
	// Running is evidence that the owner is running. NotRunning is evidence that it is not.
	Running, NotRunning []Evidence
	// ServiceAccounts are the ServiceAccounts of the running workloads with the best match.
	// WorkloadMatch is the quality of this match.
	ServiceAccounts []types.NamespacedName
	WorkloadMatch   Match
	// CRDs are the names of the CustomResourceDefinitions in the same domain.
	CRDs []string
}

// Best returns the first evidence with the best match.
func Best(evidence []Evidence) Evidence {
	return slices.MaxFunc(evidence, func(a, b Evidence) int { return int(a.Match) - int(b.Match) })
}

// Search searches the facts for evidence of an owner.
func Search(facts *diagnosis.Facts, owner *Owner) Report {
	s := search{facts, owner, &Report{}}
	s.addWorkloads()
	s.addLeases()
	s.addAPIs()
	s.addMissingServiceAccounts()
	if owner.lastManager != "" {
		s.report.Running = append(s.report.Running, Evidence{
			Text:  fmt.Sprintf(textFieldManager, owner.lastManager, diagnosis.FormatTime(owner.lastChangeAt)),
			Match: WeakMatch,
		})
	}
	return *s.report
}

// search is the state of one call of Search.
type search struct {
	*diagnosis.Facts
	owner  *Owner
	report *Report
}

// isEvidence reports whether a matching object in the given namespace is evidence. If other
// namespaces are not read, a weak match is not sufficient, because those namespaces might contain a
// better match.
func isEvidence(facts *diagnosis.Facts, namespace string, match Match) bool {
	return match != NoMatch && facts.MayName(namespace) && (match == StrongMatch || !facts.IsPublic)
}

func (s search) addWorkloads() {
	for i := range s.Workloads {
		workload := &s.Workloads[i]
		match := s.owner.MatchWorkload(workload)
		if !isEvidence(s.Facts, workload.Namespace, match) {
			continue
		}
		s.add(textWorkload(workload), match, workload.Namespace, workload.IsReady())
		if workload.IsReady() {
			s.report.addServiceAccount(workload.ServiceAccount, match)
		}
	}
}

// add adds evidence about an object in a namespace.
func (s search) add(text string, match Match, namespace string, isRunning bool) {
	evidence := Evidence{text, match, namespace == s.Namespace.Name}
	if isRunning {
		s.report.Running = append(s.report.Running, evidence)
	} else {
		s.report.NotRunning = append(s.report.NotRunning, evidence)
	}
}

func (r *Report) addServiceAccount(account types.NamespacedName, match Match) {
	switch {
	case account.Name == "":
	case match > r.WorkloadMatch:
		r.WorkloadMatch, r.ServiceAccounts = match, []types.NamespacedName{account}
	case match == r.WorkloadMatch && !slices.Contains(r.ServiceAccounts, account):
		r.ServiceAccounts = append(r.ServiceAccounts, account)
	}
}

func (s search) addLeases() {
	for i := range s.Leases {
		lease := &s.Leases[i]
		match := s.owner.match(lease.Name, ptr.Deref(lease.Spec.HolderIdentity, ""))
		if lease.Spec.RenewTime == nil || !isEvidence(s.Facts, lease.Namespace, match) {
			continue
		}
		text, isCurrent := DescribeLease(s.Facts, lease)
		if !isCurrent {
			match = WeakMatch // Another Lease may have replaced it, or leader election was disabled.
		}
		s.add(text, match, lease.Namespace, isCurrent)
	}
}

// addAPIs adds the APIServices and CustomResourceDefinitions in the same domain.
func (s search) addAPIs() {
	for i := range s.APIServices {
		service := &s.APIServices[i]
		if isRelated(service.GroupVersion.Group, s.owner.Domain) {
			s.add(textAPIService(service, s.Detail(service.Message)), WeakMatch, service.Service.Namespace, service.Available)
		}
	}
	for _, name := range s.CRDNames {
		if _, group, _ := strings.Cut(name, "."); isRelated(group, s.owner.Domain) {
			s.report.CRDs = append(s.report.CRDs, name)
		}
	}
}

func (s search) addMissingServiceAccounts() {
	for _, account := range serviceAccountsOf(s.Facts, s.owner) {
		if exists, ok := s.ServiceAccounts[account.name]; ok && !exists {
			s.add(fmt.Sprintf(textServiceAccountMissing, account.binding, account.name), account.match,
				account.name.Namespace, false)
		}
	}
}

// serviceAccount is a subject of a ClusterRoleBinding.
type serviceAccount struct {
	name    types.NamespacedName
	binding string
	match   Match
}

// serviceAccountsOf returns the ServiceAccounts with cluster-wide permissions that match an owner.
func serviceAccountsOf(facts *diagnosis.Facts, owner *Owner) []serviceAccount {
	var accounts []serviceAccount
	for i := range facts.ClusterRoleBindings {
		binding := &facts.ClusterRoleBindings[i]
		if strings.HasPrefix(binding.Name, "system:") {
			continue // Kubernetes creates these in all clusters, even for ServiceAccounts that do not exist.
		}
		for _, subject := range binding.Subjects {
			if subject.Kind != rbacv1.ServiceAccountKind {
				continue
			}
			match := owner.match(binding.Name, binding.RoleRef.Name, subject.Name, subject.Namespace)
			if isEvidence(facts, subject.Namespace, match) {
				name := types.NamespacedName{Namespace: subject.Namespace, Name: subject.Name}
				accounts = append(accounts, serviceAccount{name, binding.Name, match})
			}
		}
	}
	return accounts
}

// DescribeLease returns a description of a Lease, and whether its holder seems to be running. A leader
// renews its Lease several times within the lease duration, and a new leader acquires the Lease soon
// after it expires.
func DescribeLease(facts *diagnosis.Facts, lease *coordinationv1.Lease) (text string, isCurrent bool) {
	const durations = 4
	renewed := lease.Spec.RenewTime.Time
	limit := max(durations*time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 15))*time.Second, time.Minute)
	text = fmt.Sprintf(textLease, lease.Namespace, lease.Name, facts.Ago(renewed), diagnosis.FormatTime(renewed),
		ptr.Deref(lease.Spec.HolderIdentity, ""))
	return text, facts.Now.Sub(renewed) < limit
}

// IsControlPlaneLease reports whether a Lease belongs to a controller of Kubernetes or to the manager
// of this project.
func IsControlPlaneLease(lease *coordinationv1.Lease) bool {
	return lease.Namespace == metav1.NamespaceSystem || IsManagerLease(lease)
}

// IsManagerLease reports whether a Lease has the default name of the Lease of this project's
// manager.
func IsManagerLease(lease *coordinationv1.Lease) bool { return lease.Name == ManagerLease }
