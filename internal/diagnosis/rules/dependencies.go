// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
)

// findVolumes finds PersistentVolumeClaims that are used by a pod that is not being deleted. If the
// pod is being deleted, either another rule reports the pod or its grace period has not ended.
func (f view) findVolumes() []diagnosis.Finding {
	var findings []diagnosis.Finding
	for _, object := range f.OverdueByFinalizer()[owners.FinalizerPVC] {
		users := f.podsUsing(object.Name)
		if object.GroupResource() != diagnosis.PVCResource || len(users) == 0 ||
			f.IsTypeProgressing(diagnosis.PodResource) || f.IsFinalizerProgressing(owners.FinalizerPVC) {
			continue
		}
		if slices.ContainsFunc(users, func(pod *corev1.Pod) bool {
			return pod.DeletionTimestamp != nil || f.isDeletionDenied(diagnosis.PodResource, pod.Name)
		}) {
			continue
		}
		pod := users[0]
		finding := f.newFinding(diagnosis.CauseVolumeInUse, diagnosis.RankProven,
			fmt.Sprintf("persistentvolumeclaims %q is in use by pod %q, which is not being deleted", object.Name, pod.Name),
			params{"pod": {pod.Name}, paramFinalizer: {owners.FinalizerPVC}})
		finding.Finalizer = owners.FinalizerPVC
		finding.Evidence = diagnosis.Proven(
			finalizerEvidence(owners.FinalizerPVC, []diagnosis.RemainingObject{object}),
			fmt.Sprintf("pod %q is %s on node %q and mounts it", pod.Name, pod.Status.Phase, pod.Spec.NodeName))
		findings = append(findings, finding.WithRemaining([]diagnosis.RemainingObject{object}))
	}
	return findings
}

// findCloud finds finalizers that protect resources outside the cluster.
func (f view) findCloud() []diagnosis.Finding {
	var findings []diagnosis.Finding
	for finalizer, objects := range diagnosis.Sorted(f.OverdueByFinalizer()) {
		known, ok := owners.Known(finalizer, objects)
		if !ok || !known.External || f.IsFinalizerProgressing(finalizer) {
			continue
		}
		objects = slices.DeleteFunc(objects, func(object diagnosis.RemainingObject) bool {
			return f.isRemovalRejected(object.GroupResource(), finalizer)
		})
		if len(objects) == 0 {
			continue
		}
		finding := f.ownerFinding(finalizer, objects, diagnosis.CauseCloudResource)
		finding.Cause = diagnosis.CauseCloudResource
		finding.Message = fmt.Sprintf(messageCloud, describe(objects), f.Ago(firstDeletedAt(objects)), known.Owner)
		if reports := f.reportsAbout(objects); len(reports) > 0 {
			finding.Message += f.Detail(quoteReport(reports[0]))
		}
		findings = append(findings, finding)
	}
	return findings
}

// findForeground finds objects that wait for their dependents. If a dependent is blocked for another
// reason, that reason is the cause.
func (f view) findForeground() []diagnosis.Finding {
	var pending, waiting []diagnosis.RemainingObject
	var blockers []string
	for _, owner := range f.OverdueByFinalizer()[owners.FinalizerForeground] {
		if f.IsFinalizerProgressing(owners.FinalizerForeground) ||
			f.isRemovalRejected(owner.GroupResource(), owners.FinalizerForeground) {
			continue
		}
		dependents := f.blockingDependents(owner)
		switch {
		case len(dependents) == 0:
			pending = append(pending, owner)
		case slices.ContainsFunc(dependents, f.hasOwnReason):
		default:
			waiting = append(waiting, owner)
			for _, dependent := range dependents[:min(len(dependents), diagnosis.MaxObjects)] {
				blockers = append(blockers, fmt.Sprintf("%s %q is waiting for %s %q, which names it as owner with "+
					"blockOwnerDeletion", owner.Type, owner.Name, dependent.Type, dependent.Name))
			}
		}
	}
	known, _ := owners.Known(owners.FinalizerForeground, nil)
	var findings []diagnosis.Finding
	if len(waiting) > 0 {
		finding := f.builtInFinding(owners.FinalizerForeground, known, waiting)
		finding.Cause, finding.Rank = diagnosis.CauseForegroundDeletion, diagnosis.RankProven
		finding.Message = fmt.Sprintf(messageForeground, describe(waiting))
		finding.Evidence = append(diagnosis.Proven(blockers[:min(len(blockers), diagnosis.MaxObjects)]...),
			finding.Evidence...)
		findings = append(findings, finding)
	}
	if len(pending) > 0 {
		finding := f.builtInFinding(owners.FinalizerForeground, known, pending)
		if finding.Cause == diagnosis.CauseFinalizerPending {
			finding.Cause = diagnosis.CauseForegroundDeletion
		}
		finding.Evidence = append(finding.Evidence, diagnosis.Proven(evidenceNoDependent)...)
		findings = append(findings, finding)
	}
	return findings
}

func (f view) blockingDependents(owner diagnosis.RemainingObject) []diagnosis.RemainingObject {
	var dependents []diagnosis.RemainingObject
	for _, object := range f.RemainingObjects() {
		for _, reference := range object.OwnerReferences {
			if reference.UID == owner.UID && ptr.Deref(reference.BlockOwnerDeletion, false) {
				dependents = append(dependents, object)
			}
		}
	}
	return dependents
}

// hasOwnReason reports whether a dependent remains for a reason other than its owner: the dependent is
// terminating, or its deletion is denied.
func (f view) hasOwnReason(object diagnosis.RemainingObject) bool {
	return object.DeletionTimestamp != nil || f.isDeletionDenied(object.GroupResource(), object.Name)
}
