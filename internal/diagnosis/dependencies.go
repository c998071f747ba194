// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// findVolumes blames a pod that is not being deleted for the claims that it mounts. Where
// the pod is being deleted the claim only follows: either the pod is blamed, or it has time.
func findVolumes(f *Facts) []Finding {
	var findings []Finding
	for _, i := range f.overdueByFinalizer()[finalizerClaim] {
		users := f.usersOf(i.Name)
		if i.GroupResource() != claimResource || len(users) == 0 || f.isMoving(podResource) ||
			f.isBeingReleased(finalizerClaim) {
			continue
		}
		if slices.ContainsFunc(users, func(pod *corev1.Pod) bool {
			return pod.DeletionTimestamp != nil || f.isPodRefused(pod.Name)
		}) {
			continue
		}
		finding := Finding{
			Cause: CauseVolumeInUse, Certainty: Proven, Finalizer: finalizerClaim,
			Message: fmt.Sprintf("persistentvolumeclaims %q is in use by pod %q, which is not being deleted", i.Name,
				users[0].Name),
			Evidence: []string{
				f.noteFinalizer(finalizerClaim, []item{i}),
				fmt.Sprintf("pod %q is %s on node %q and mounts it", users[0].Name, users[0].Status.Phase, users[0].Spec.NodeName),
			},
			Remedies: []string{
				shell.Command("kubectl delete pod %s --namespace=%s", users[0].Name, f.Namespace.Name), f.force(finalizerClaim),
			},
			Loss: lossVolume,
		}
		findings = append(findings, finding.some([]item{i}))
	}
	return findings
}

func (f *Facts) isPodRefused(name string) bool {
	return slices.ContainsFunc(f.items(), func(i item) bool {
		return i.GroupResource() == podResource && i.Name == name && f.isDeletionRefused(i)
	})
}

// findCloud blames finalizers that stand for something outside of the cluster.
func findCloud(f *Facts) []Finding {
	var findings []Finding
	for finalizer, items := range sorted(f.overdueByFinalizer()) {
		known, _ := lookUp(finalizer)
		if !known.isCloud || f.isBeingReleased(finalizer) {
			continue
		}
		items = slices.DeleteFunc(items, func(i item) bool { return f.isReleaseRefused(i, finalizer) })
		if len(items) == 0 {
			continue
		}
		finding := f.blameOwner(finalizer, items, CauseCloudResource)
		finding.Cause = CauseCloudResource
		finding.Message = fmt.Sprintf("%s should have gone %s ago; %s has not removed what belongs to it outside of the "+
			"cluster", describe(items), f.ago(oldest(items)), known.owner)
		finding.Certainty = Likely
		for _, complaint := range f.Complaints {
			if strings.HasPrefix(complaint.Source, "Event ") && slices.ContainsFunc(items, func(i item) bool {
				return i.Name == complaint.Name && i.GroupResource() == complaint.Type.GroupResource() &&
					!complaint.At.Before(f.Namespace.DeletionTimestamp.Time)
			}) {
				// Whoever should do it has said itself that it cannot.
				finding.Certainty = Proven
				finding.Evidence = append(finding.Evidence, quoteComplaint(complaint))
			}
		}
		findings = append(findings, finding)
	}
	return findings
}

// findForeground blames foreground deletion only where the dependents have no reason of
// their own to be there: otherwise that reason is the cause.
func findForeground(f *Facts) []Finding {
	var pending, waiting []item
	var blockers []string
	for _, owner := range f.overdueByFinalizer()[finalizerForeground] {
		if f.isBeingReleased(finalizerForeground) || f.isReleaseRefused(owner, finalizerForeground) {
			continue
		}
		dependents := f.blockersOf(owner)
		switch {
		case len(dependents) == 0:
			pending = append(pending, owner)
		case slices.ContainsFunc(dependents, f.isExcused):
		default:
			waiting = append(waiting, owner)
			for _, dependent := range dependents[:min(len(dependents), mostObjects)] {
				blockers = append(blockers, fmt.Sprintf("%s %q waits for %s %q, which names it as owner with blockOwnerDeletion",
					owner.Type, owner.Name, dependent.Type, dependent.Name))
			}
		}
	}
	var findings []Finding
	if len(waiting) > 0 {
		finding := f.blameBuiltIn(finalizerForeground, wellKnownFinalizers[finalizerForeground], waiting)
		finding.Cause, finding.Certainty = CauseForegroundDeletion, Proven
		finding.Message = fmt.Sprintf("%s is deleted in the foreground and waits for its dependents, which nobody deletes",
			describe(waiting))
		finding.Evidence = append(blockers[:min(len(blockers), mostObjects)], finding.Evidence...)
		findings = append(findings, finding)
	}
	if len(pending) > 0 {
		finding := f.blameBuiltIn(finalizerForeground, wellKnownFinalizers[finalizerForeground], pending)
		if finding.Cause == CauseFinalizerPending {
			finding.Cause = CauseForegroundDeletion
		}
		finding.Evidence = append(finding.Evidence, "no dependent in this namespace is left that blocks it")
		findings = append(findings, finding)
	}
	return findings
}

// blockersOf returns what is left that blocks the deletion of an owner.
func (f *Facts) blockersOf(owner item) []item {
	var dependents []item
	for _, i := range f.items() {
		for _, reference := range i.OwnerReferences {
			if reference.UID == owner.UID && ptr.Deref(reference.BlockOwnerDeletion, false) {
				dependents = append(dependents, i)
			}
		}
	}
	return dependents
}

// isExcused tells whether a dependent has a reason of its own to be there: it is being
// deleted, and either somebody is blamed for it or it has time, or its deletion is refused.
func (f *Facts) isExcused(i item) bool { return i.DeletionTimestamp != nil || f.isDeletionRefused(i) }
