// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// lossOfOwner is what is lost where nothing is known of a finalizer.
const lossOfOwner = "what its owner still had to clean up for these objects, inside or outside of the cluster, is " +
	"left behind"

// findFinalizers blames finalizers that have not been taken off in time. Those of which
// more is known have their own families.
func findFinalizers(f *Facts) []Finding {
	var findings []Finding
	for finalizer, items := range sorted(f.overdueByFinalizer()) {
		if f.isBeingReleased(finalizer) {
			continue
		}
		items = slices.DeleteFunc(items, func(i item) bool { return f.isExplained(i, finalizer) })
		if len(items) == 0 {
			continue
		}
		finding, isSibling := f.findSibling(finalizer, items)
		switch known, isKnown := lookUp(finalizer); {
		case isSibling:
		case isKnown && known.manager != "" && len(known.words) == 0:
			finding = f.blameBuiltIn(finalizer, known, items)
		default:
			finding = f.blameOwner(finalizer, items, CauseFinalizerPending)
		}
		finding.Evidence = append(finding.Evidence, f.noteDefinitions(items)...)
		finding.Evidence = append(finding.Evidence, f.noteUnlisted(items)...)
		findings = append(findings, finding)
	}
	return findings
}

// isExplained tells whether another family of causes answers for a finalizer of an object.
func (f *Facts) isExplained(i item, finalizer string) bool {
	known, _ := lookUp(finalizer)
	switch resource := i.GroupResource(); {
	case finalizer == finalizerForeground, known.isCloud, resource == podResource:
		return true
	case resource == claimResource && finalizer == finalizerClaim && len(f.usersOf(i.Name)) > 0:
		return true
	}
	return f.isReleaseRefused(i, finalizer)
}

// isReleaseRefused tells whether the API server itself refuses to have a finalizer taken
// off objects of a type.
func (f *Facts) isReleaseRefused(i item, finalizer string) bool {
	return slices.ContainsFunc(f.Trials, func(trial Trial) bool {
		return trial.Verb == VerbPatch && trial.Finalizer == finalizer && trial.Err != nil &&
			trial.Type.GroupResource() == i.GroupResource() && (isInvalid(trial.Err) || f.isRefusal(trial.Err))
	})
}

// blameBuiltIn blames a finalizer that a controller of Kubernetes itself takes off.
func (f *Facts) blameBuiltIn(finalizer string, known wellKnown, items []item) Finding {
	finding := Finding{
		Cause: CauseFinalizerPending, Certainty: Likely, Finalizer: finalizer,
		Message: fmt.Sprintf("%s should have gone %s ago; %s has not taken finalizer %s off", describe(items),
			f.ago(oldest(items)), known.owner, finalizer),
		Evidence: []string{f.noteFinalizer(finalizer, items)},
		Remedies: []string{
			"See whether " + known.manager + " runs, and what its log says: it is part of the control plane",
			"kubectl get leases --namespace=kube-system",
			f.force(finalizer),
		},
		Loss: known.loss,
	}
	text, isAlive, isThere := f.leaseOf(known.manager)
	finding.Evidence = append(finding.Evidence, text)
	if isThere && !isAlive {
		finding.Cause, finding.Certainty, finding.IsOwnerGone = CauseFinalizerOwnerGone, Proven, true
		finding.Message = fmt.Sprintf("%s should have gone %s ago; finalizer %s is taken off by %s, which does not run",
			describe(items), f.ago(oldest(items)), finalizer, known.owner)
	}
	return finding.some(items)
}

// leaseOf tells what the Lease of a part of the control plane says.
func (f *Facts) leaseOf(name string) (text string, isAlive, isThere bool) {
	for i := range f.Leases {
		lease := &f.Leases[i]
		if lease.Name == name && lease.Namespace == "kube-system" && lease.Spec.RenewTime != nil {
			text, isAlive = f.readLease(lease)
			return text, isAlive, true
		}
	}
	if !f.isRead(SourceLeases) {
		return "the Leases in kube-system could not be read", false, false
	}
	return "there is no Lease kube-system/" + name, false, false
}

// blameOwner blames whoever should take a finalizer off, as far as that can be found out.
// The cause is pending where the owner lives or is not known.
func (f *Facts) blameOwner(finalizer string, items []item, pending Cause) Finding {
	s := suspectOf(finalizer, items)
	found := f.trace(&s)
	finding := Finding{
		Cause: pending, Certainty: Likely, Finalizer: finalizer,
		Evidence: []string{f.noteFinalizer(finalizer, items)}, Loss: lossOfOwner,
	}
	if known, isKnown := lookUp(finalizer); isKnown {
		finding.Loss = known.loss
	}
	if len(s.managers) > 0 {
		finding.Evidence = append(finding.Evidence, "managedFields say that it was put on by "+joinSome(s.managers))
	}
	if len(found.groups) > 0 {
		finding.Evidence = append(finding.Evidence, "of its domain there is CustomResourceDefinition "+joinSome(found.groups))
	}
	verb := "has"
	if len(items) > 1 {
		verb = "have"
	}
	held := fmt.Sprintf("%s should have gone %s ago and %s finalizer %s", describe(items), f.ago(oldest(items)), verb,
		finalizer)
	switch {
	case len(found.alive) > 0:
		f.blameLiving(&finding, held, items, found)
	case len(found.dead) > 0:
		f.blameDead(&finding, held, found)
	default:
		f.blameUnseen(&finding, held, &s, found)
	}
	if len(items) > 0 {
		finding.Remedies = append(finding.Remedies, f.inspect(items[0]))
	}
	finding.Remedies = append(finding.Remedies, f.force(finalizer))
	return finding.some(items)
}

// blameLiving: somebody who may be the owner is alive.
func (f *Facts) blameLiving(finding *Finding, held string, items []item, found traces) {
	finding.Message = fmt.Sprintf("%s; its owner seems to be alive and has not taken it off: %s", held,
		best(found.alive).text)
	finding.Evidence = append(finding.Evidence, texts(found.alive)...)
	for i := range f.Workloads {
		workload := &f.Workloads[i]
		if slices.Contains(found.accounts, workload.Account) && workload.IsAlive() && workload.Source != SourcePods {
			finding.Remedies = append(finding.Remedies, shell.Command("kubectl logs --namespace=%s %s/%s --tail=100",
				workload.Namespace, workload.Source, workload.Name))
			break
		}
	}
	finding.Remedies = append(finding.Remedies, "Find out from the log of its owner why it does not act")

	var denied []string
	for _, account := range found.accounts {
		for _, review := range f.Reviews {
			if review.Account != account || !slices.ContainsFunc(items, func(i item) bool {
				return i.GroupResource() == review.Resource
			}) {
				continue
			}
			if review.IsAllowed {
				return
			}
			denied = append(denied, fmt.Sprintf("ServiceAccount %s may neither patch nor update %s in namespace %q",
				account, review.Resource, f.Namespace.Name))
		}
	}
	if len(denied) == 0 {
		return
	}
	account := found.accounts[0]
	finding.Cause = CauseFinalizerOwnerForbidden
	if len(found.accounts) == 1 && found.certain == strong {
		finding.Certainty = Proven
	}
	finding.Message = held + "; its owner may not take it off: " + denied[0]
	finding.Evidence = append(finding.Evidence, denied...)
	finding.Remedies = []string{
		shell.Command("kubectl auth can-i patch %s --namespace=%s --as=system:serviceaccount:%s:%s", items[0].Type,
			f.Namespace.Name, account.Namespace, account.Name),
		"Give the ServiceAccount its rights back by a ClusterRoleBinding until the namespace has gone: no RoleBinding " +
			"can be created in a namespace that is being deleted, and the one it had may have been deleted with it",
	}
}

// blameDead: there was an owner, and nothing of it lives.
func (f *Facts) blameDead(finding *Finding, held string, found traces) {
	sign := best(found.dead)
	finding.Cause, finding.IsOwnerGone = CauseFinalizerOwnerGone, true
	finding.Message = held + "; its owner does not run any more: " + sign.text
	finding.Remedies = append(finding.Remedies,
		"Run its owner again, and let it finish: scale it up, or install it once more")
	if sign.isHere {
		finding.Cause = CauseFinalizerOwnerInNamespace
		finding.Message = held + "; its owner was in this very namespace: " + sign.text
		finding.Remedies = []string{"Install its owner in another namespace, and let it finish: nothing can be created " +
			"in one that is being deleted"}
	}
	if sign.strength == strong && f.isSearched() {
		finding.Certainty = Proven
	}
	finding.Evidence = append(finding.Evidence, texts(found.dead)...)
	finding.Evidence = append(finding.Evidence, f.noteSearch())
}

// blameUnseen: no sign of an owner. It may be outside of the cluster, so that it is never
// proven to be gone.
func (f *Facts) blameUnseen(finding *Finding, held string, s *suspect, found traces) {
	finding.Evidence = append(finding.Evidence, f.noteSearch())
	install := "Install the controller of " + s.domain + " again, and let it finish"
	known, isKnown := lookUp(s.finalizer)
	if isKnown {
		install = "See whether " + known.owner + " runs, and let it finish"
	}
	// The owners of what is in a cloud may run there, where nobody sees them.
	isGone := !known.isCloud && !isOfCloud(s.domain)
	switch {
	case s.domain != "" && f.isSearched() && len(found.groups) == 0:
		finding.Cause, finding.IsOwnerGone = CauseFinalizerOwnerGone, isGone
		finding.Message = fmt.Sprintf("%s; no object in the cluster refers to %s, so its owner seems to be uninstalled",
			held, s.domain)
		finding.Remedies = append(finding.Remedies, install)
	case s.domain != "" && f.isSearched():
		finding.Cause, finding.IsOwnerGone = CauseFinalizerOwnerGone, isGone
		finding.Message = fmt.Sprintf("%s; %s is still installed, but no workload or Lease of its controller exists",
			held, joinSome(found.groups))
		finding.Remedies = append(finding.Remedies, install)
	case isKnown:
		finding.Message = held + ", which " + known.owner + " removes"
		finding.Remedies = append(finding.Remedies, install)
	default:
		finding.Message = held + "; the controller responsible for it is not known"
		finding.Remedies = append(finding.Remedies, "Find out who puts this finalizer on, and whether it runs")
	}
}

// places are where an owner could have left a trace.
var places = []Source{SourceAPIServices, SourceBindings, SourceDefinitions, SourceDaemonSets, SourceDeployments,
	SourceLeases, SourcePods, SourceStatefulSets, SourceAccounts}

// isSearched reports whether all places were read in which an owner can be.
func (f *Facts) isSearched() bool { return !f.IsPublic && len(f.unreadPlaces()) == 0 }

// unreadPlaces returns those that could not be read.
func (f *Facts) unreadPlaces() []string {
	var unread []string
	for _, place := range places {
		if !f.isRead(place) {
			unread = append(unread, string(place))
		}
	}
	return unread
}

// noteSearch says where the owner was looked for.
func (f *Facts) noteSearch() string {
	text := "looked for its owner among CustomResourceDefinitions, APIServices, Deployments, StatefulSets, DaemonSets, " +
		"running Pods, Leases, ClusterRoleBindings and managedFields"
	if unread := f.unreadPlaces(); len(unread) > 0 {
		text += "; could not read " + strings.Join(unread, ", ")
	}
	return text
}

// noteFinalizer says which object has waited longest.
func (f *Facts) noteFinalizer(finalizer string, items []item) string {
	if len(items) == 0 {
		return "" // It is on the Namespace itself, which the caller tells of.
	}
	first := longestWaiting(items)
	return fmt.Sprintf("%s %q has deletionTimestamp %s and finalizer %s", first.Type, first.Name,
		stamp(first.deletedAt()), finalizer)
}

// noteUnlisted says of which types of some items not all objects were looked at, so that
// there may be more of them.
func (f *Facts) noteUnlisted(items []item) []string {
	var texts []string
	for _, content := range f.Content {
		listed := len(content.Objects)
		if listed < content.Count && slices.Contains(resourcesOf(items), content.Type.String()) {
			texts = append(texts, fmt.Sprintf("of %d %s the first %d were looked at", content.Count, content.Type, listed))
		}
	}
	return texts
}

// findSibling looks for an object which cannot be finalized since another one is missing,
// by what its conditions and Events say.
func (f *Facts) findSibling(finalizer string, items []item) (Finding, bool) {
	for _, i := range items {
		for _, complaint := range f.Complaints {
			if complaint.Type.GroupResource() != i.GroupResource() || complaint.Name != i.Name {
				continue
			}
			match := missing.FindStringSubmatch(complaint.Text)
			if match == nil || match[2] == i.Name || f.isLeft(match[2]) {
				continue
			}
			return Finding{
				Cause: CauseDependencyDeleted, Certainty: Likely, Finalizer: finalizer,
				Message: fmt.Sprintf("%s cannot be finalized since it needs %s, which was deleted before it",
					describe(items[:1]), f.unlessPublic(fmt.Sprintf("%s %q", match[1], match[2]), "another object")),
				Evidence: []string{quoteComplaint(complaint), f.noteFinalizer(finalizer, items)},
				Remedies: []string{
					"Nothing can be created in a namespace that is being deleted: see whether the controller can be told to " +
						"go on without the missing object",
					f.inspect(i), f.force(finalizer),
				},
				Loss: lossOfOwner,
			}.some(items), true
		}
	}
	return Finding{}, false
}

// isLeft tells whether there is an object of this name.
func (f *Facts) isLeft(name string) bool {
	return slices.ContainsFunc(f.items(), func(i item) bool { return i.Name == name && i.DeletionTimestamp == nil })
}

// inspect returns the command that shows an object with its finalizers and managed fields.
func (f *Facts) inspect(i item) string {
	return shell.Command("kubectl get %s %s --namespace=%s --output=yaml --show-managed-fields", i.Type, i.Name,
		f.Namespace.Name)
}

// force is the last resort for a finalizer of objects.
func (f *Facts) force(finalizer string) string { return f.forceBy("finalizer", finalizer) }

// forceBy is the last resort for what a flag of the command stands for. Without others the
// command only shows what it would do.
func (f *Facts) forceBy(flag, name string) string {
	return shell.Command("kubectl nslifecycle finalize %s --%s=%s", f.Namespace.Name, flag, name)
}

// best returns the sign that fits best; the first of those that fit as well.
func best(traces []trace) trace {
	return slices.MaxFunc(traces, func(a, b trace) int { return int(a.strength) - int(b.strength) })
}

// texts returns the signs as evidence, no more than a few.
func texts(traces []trace) []string {
	var result []string
	for _, one := range traces[:min(len(traces), mostObjects)] {
		result = append(result, one.text)
	}
	return result
}

// tokens returns those of spec.finalizers that are not the namespace controller's.
func (f *Facts) tokens() []string {
	var tokens []string
	for _, token := range f.Namespace.Spec.Finalizers {
		if token != corev1.FinalizerKubernetes {
			tokens = append(tokens, string(token))
		}
	}
	return tokens
}
