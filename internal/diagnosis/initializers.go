// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

const lossInitializer = "the namespace opens without what the initializer was to put there, such as quotas, network " +
	"policies or access rights"

// findInitializers blames the initializer whose turn it is, if it has not acted for a
// while: whether anybody could act, and whether they are alive.
func findInitializers(f *Facts) []Finding {
	pending := pendingInitializers(f.Namespace)
	turn := f.turnBegan(pending[0])
	if !f.isOverdue(turn) {
		return nil
	}
	finding := Finding{
		Cause: CauseInitializerSlow, Certainty: Likely,
		Evidence: f.noteTurn(pending[0], turn),
		Remedies: []string{
			"Start the controller of " + pending[0] + ", or see its log",
			"kubectl get namespaceinitializerconfigurations",
			"If the namespace is to be used without it, an administrator takes its name off the list",
			f.skip(pending),
		},
		Loss: lossInitializer,
	}
	waits := fmt.Sprintf("initializer %s has had its turn for %s and has not removed its name", pending[0], f.ago(turn))
	holders := f.holders()
	for _, one := range holders {
		finding.Evidence = append(finding.Evidence, one.text)
	}
	f.blameHolders(&finding, waits, holders)
	if f.isRead(SourceConfigurations) && !slices.Contains(f.Registered, pending[0]) {
		finding.Cause, finding.Certainty = CauseInitializerUnregistered, Proven
		finding.Message = waits + "; no configuration registers it any more"
		finding.Evidence = append(finding.Evidence, "no NamespaceInitializerConfiguration names "+pending[0])
	}
	return []Finding{finding.about([]Object{{Resource: namespaceResource, Name: f.Namespace.Name}})}
}

// skip returns the command that removes the first initializer from the pending list. It requires
// the verb initialize.
func (f *Facts) skip(pending []string) string {
	const command = "kubectl annotate namespace %s --overwrite " + v1alpha1.AnnotationPendingInitializers
	if len(pending) == 1 {
		return shell.Command(command+"=", f.Namespace.Name)
	}
	return shell.Command(command+"=%s", f.Namespace.Name, strings.Join(pending[1:], ","))
}

// blameHolders tells by those who could act whether anybody can.
func (f *Facts) blameHolders(finding *Finding, waits string, holders []holder) {
	canRead := f.isRead(SourceRoles, SourceBindings, SourceAccounts, SourcePods)
	isAlive := func(one holder) bool { return one.life == living }
	isUnsure := func(one holder) bool { return one.life == unsure }
	switch {
	case !f.isRead(SourceRoles, SourceBindings):
		finding.Message = waits + "; who could act is not known"
	case len(holders) == 0:
		finding.Cause, finding.Certainty = CauseInitializerNotRunning, Proven
		finding.Message = waits + "; nobody but the control plane holds the verb initialize for this namespace"
		finding.Remedies = append([]string{"Install the controller of the initializer, with a ClusterRoleBinding to a " +
			"ClusterRole that has the verb initialize on namespaces"}, finding.Remedies...)
	case slices.ContainsFunc(holders, isAlive):
		finding.Message = waits + "; an identity that holds the verb initialize has a running Pod" +
			f.detail(holders[slices.IndexFunc(holders, isAlive)].text)
	case slices.ContainsFunc(holders, isUnsure) || !canRead:
		finding.Message = waits + "; it is not known whether an identity that holds the verb initialize is running"
	default:
		finding.Cause, finding.Certainty = CauseInitializerNotRunning, Proven
		finding.Message = waits + "; no identity that holds the verb initialize is running" + f.detail(holders[0].text)
		if slices.ContainsFunc(holders, func(one holder) bool { return one.life == notRunning }) {
			// Its token may be in use outside of the cluster.
			finding.Certainty = Likely
		}
	}
}

// turnBegan returns when the turn of an initializer began: when the Namespace was created,
// or the one before was done, or somebody last did anything about its state.
func (f *Facts) turnBegan(name string) time.Time {
	began := f.Namespace.CreationTimestamp.Time
	later := func(t time.Time) {
		if t.After(began) && !t.After(f.Now) {
			began = t
		}
	}
	for _, condition := range f.Namespace.Status.Conditions {
		own := string(condition.Type) == name+v1alpha1.ConditionInitializedSuffix
		isDone := strings.HasSuffix(string(condition.Type), v1alpha1.ConditionInitializedSuffix) &&
			condition.Status == corev1.ConditionTrue
		if own || isDone {
			later(condition.LastTransitionTime.Time)
		}
	}
	for _, entry := range f.Namespace.ManagedFields {
		// The manager's own status says nothing of the initializers.
		if entry.Time != nil && entry.Subresource == "" {
			later(entry.Time.Time)
		}
	}
	return began
}

func (f *Facts) noteTurn(name string, turn time.Time) []string {
	texts := []string{fmt.Sprintf("pending: %s; the turn of %s began at %s",
		strings.Join(pendingInitializers(f.Namespace), ", "), name, stamp(turn))}
	for i := range f.Namespace.Status.Conditions {
		condition := &f.Namespace.Status.Conditions[i]
		// Where it has a time-out, the wait is going to end by itself.
		hasTimeout := condition.Type == v1alpha1.ConditionInitializerTurn && condition.Status == corev1.ConditionTrue
		if string(condition.Type) == name+v1alpha1.ConditionInitializedSuffix || hasTimeout {
			texts = append(texts, quote(condition))
		}
	}
	var last time.Time
	manager := ""
	for _, entry := range f.Namespace.ManagedFields {
		// Its status is written by the manager, which only watches.
		if entry.Time != nil && entry.Subresource == "" && !entry.Time.Time.Before(last) {
			last, manager = entry.Time.Time, entry.Manager
		}
	}
	if manager != "" {
		texts = append(texts, fmt.Sprintf("the Namespace was last changed at %s, by %q", stamp(last), manager))
	}
	return texts
}

// life is what is known of whether somebody can act.
type life int

const (
	unsure life = iota
	living
	notRunning
	absent
)

// holder is somebody who may initialize the namespace.
type holder struct {
	text string
	life life
}

// systemHolders are bound to the verb by the installation, or hold every verb there is. They
// keep the control plane going and initialize nothing.
var systemHolders = []rbacv1.Subject{
	{Kind: rbacv1.GroupKind, Name: "system:masters"},
	{Kind: rbacv1.GroupKind, Name: "kubeadm:cluster-admins"},
	{Kind: rbacv1.GroupKind, Name: "system:nodes"},
	{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:kube-system"},
	{Kind: rbacv1.UserKind, Name: "system:kube-controller-manager"},
	{Kind: rbacv1.UserKind, Name: "system:kube-scheduler"},
}

// holderSubjects returns who may initialize the namespace, by the bindings that say so.
func (f *Facts) holderSubjects() map[rbacv1.Subject]string {
	return holdersIn(f.ClusterRoles, f.ClusterRoleBindings, func(rule *rbacv1.PolicyRule) bool {
		return grants(rule) && (len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, f.Namespace.Name))
	})
}

// MayAnybodyInitialize tells whether these rights let anybody but the control plane, cluster
// administrators and our own manager initialize some namespace.
func MayAnybodyInitialize(roles []rbacv1.ClusterRole, bindings []rbacv1.ClusterRoleBinding) bool {
	return len(holdersIn(roles, bindings, grants)) > 0
}

func holdersIn(
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
			if !isSystemHolder(subject, &binding) && subjects[subject] == "" {
				subjects[subject] = binding.Name
			}
		}
	}
	return subjects
}

// grants tells whether a rule gives the verb for all namespaces, or for those that it names.
func grants(rule *rbacv1.PolicyRule) bool {
	has := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, rbacv1.VerbAll)
	}
	return has(rule.Verbs, v1alpha1.VerbInitialize) && has(rule.APIGroups, "") && has(rule.Resources, namespaceResource)
}

// isSystemHolder leaves out the control plane, and our own manager, which is in the binding
// of the installation.
func isSystemHolder(subject rbacv1.Subject, binding *rbacv1.ClusterRoleBinding) bool {
	subject.Namespace = strings.TrimSpace(subject.Namespace)
	if slices.Contains(systemHolders, rbacv1.Subject{Kind: subject.Kind, Name: subject.Name}) {
		return true
	}
	if subject.Kind == rbacv1.ServiceAccountKind && subject.Namespace == "kube-system" {
		return true
	}
	return subject.Kind == rbacv1.ServiceAccountKind && binding.Labels["app.kubernetes.io/name"] == "nslifecycle" &&
		strings.HasSuffix(subject.Name, "controller-manager")
}

// holders tells of everybody who may initialize the namespace whether they are alive.
func (f *Facts) holders() []holder {
	var holders []holder
	for subject, binding := range f.holderSubjects() {
		if subject.Kind != rbacv1.ServiceAccountKind {
			holders = append(holders, holder{fmt.Sprintf("%s %q may act, by ClusterRoleBinding %q; whether it does is not known",
				subject.Kind, subject.Name, binding), unsure})
			continue
		}
		account := types.NamespacedName{Namespace: subject.Namespace, Name: subject.Name}
		running := 0
		for i := range f.Workloads {
			if f.Workloads[i].Account == account && f.Workloads[i].IsAlive() {
				running++
			}
		}
		exists, isKnown := f.Accounts[account]
		who := fmt.Sprintf("ServiceAccount %s, by ClusterRoleBinding %q,", account, binding)
		switch {
		case running > 0:
			holders = append(holders, holder{fmt.Sprintf("%s may act and has %s running", who, plural(running, "pod")), living})
		case isKnown && !exists:
			holders = append(holders, holder{who + " may act and does not exist", absent})
		case isKnown && f.isRead(SourcePods):
			holders = append(holders, holder{who + " may act and has no running pod", notRunning})
		default:
			holders = append(holders, holder{who + " may act; whether it is alive is not known", unsure})
		}
	}
	slices.SortFunc(holders, func(a, b holder) int { return strings.Compare(a.text, b.text) })
	return holders
}
