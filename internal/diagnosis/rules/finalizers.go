// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
)

// finalizerRule finds finalizers that are not removed within the progress deadline. Some finalizers
// have separate rules.
var finalizerRule = Rule{
	Name: "finalizers", Stage: diagnosis.StageTerminating,
	Needs: append([]diagnosis.Fact{
		diagnosis.FactContent, diagnosis.FactProgress, diagnosis.FactDryRuns, diagnosis.FactPods,
	}, ownerNeeds...),
	find: view.findFinalizers,
}

func (f view) findFinalizers() []diagnosis.Finding {
	var findings []diagnosis.Finding
	for finalizer, overdue := range diagnosis.Sorted(f.OverdueByFinalizer()) {
		if f.IsFinalizerProgressing(finalizer) {
			continue
		}
		overdue = slices.DeleteFunc(overdue, func(object diagnosis.RemainingObject) bool {
			return f.hasOtherRule(object, finalizer)
		})
		for _, objects := range owners.GroupByOwner(finalizer, overdue) {
			findings = append(findings, f.finalizerFinding(finalizer, objects))
		}
	}
	return findings
}

func (f view) finalizerFinding(finalizer string, objects []diagnosis.RemainingObject) diagnosis.Finding {
	var finding diagnosis.Finding
	if known, ok := owners.Known(finalizer, objects); ok && known.IsBuiltIn() {
		finding = f.builtInFinding(finalizer, known, objects)
	} else {
		finding = f.ownerFinding(finalizer, objects, diagnosis.CauseFinalizerPending)
	}
	finding.Evidence = append(finding.Evidence,
		diagnosis.Proven(append(f.terminatingCRDs(objects), f.unlistedObjects(objects)...)...)...)
	return finding
}

// hasOtherRule reports whether another rule handles a finalizer of an object.
func (f view) hasOtherRule(object diagnosis.RemainingObject, finalizer string) bool {
	known, ok := owners.Known(finalizer, []diagnosis.RemainingObject{object})
	switch resource := object.GroupResource(); {
	case finalizer == owners.FinalizerForeground, ok && known.External, resource == diagnosis.PodResource:
		return true
	case resource == diagnosis.PVCResource && finalizer == owners.FinalizerPVC && len(f.podsUsing(object.Name)) > 0:
		return true
	}
	return f.isRemovalRejected(object.GroupResource(), finalizer)
}

// builtInFinding returns the finding about a finalizer that a Kubernetes controller removes.
func (f view) builtInFinding(
	finalizer string, known *owners.KnownFinalizer, objects []diagnosis.RemainingObject,
) diagnosis.Finding {
	ago := f.Ago(firstDeletedAt(objects))
	lease := f.controlPlaneLease(known.Manager)
	finding := diagnosis.Finding{
		Cause: diagnosis.CauseFinalizerPending, Rank: diagnosis.RankInferred, Finalizer: finalizer,
		Message:  fmt.Sprintf(messageBuiltInPending, describe(objects), ago, known.Owner, finalizer),
		Evidence: append(diagnosis.Proven(finalizerEvidence(finalizer, objects)), diagnosis.Inferred(lease.text)...),
		Remedies: []diagnosis.Remedy{
			diagnosis.Inspect(fmt.Sprintf(remedyBuiltIn, known.Manager)), diagnosis.Inspect(remedyListLeases),
			diagnosis.Resolve(f.forceCommand(flagFinalizer, finalizer)),
		},
		Loss: known.Loss, OwnerState: diagnosis.OwnerUnknown,
	}
	if lease.exists && lease.isCurrent {
		finding.OwnerState = diagnosis.OwnerRunning
	}
	if lease.exists && !lease.isCurrent {
		finding.Cause, finding.OwnerState = diagnosis.CauseFinalizerOwnerNotRunning, diagnosis.OwnerNotRunning
		finding.Message = fmt.Sprintf(messageBuiltInNotRunning, describe(objects), ago, finalizer, known.Owner)
	}
	return finding.WithRemaining(objects)
}

// leaseState is the state of a controller's Lease.
type leaseState struct {
	text              string
	exists, isCurrent bool
}

// isExpired reports whether the Lease exists and is not renewed.
func (s leaseState) isExpired() bool { return s.exists && !s.isCurrent }

// controlPlaneLease returns the state of the Lease of a control plane component.
func (f view) controlPlaneLease(name string) leaseState {
	for i := range f.Leases {
		lease := &f.Leases[i]
		if lease.Name == name && lease.Namespace == "kube-system" && lease.Spec.RenewTime != nil {
			text, isCurrent := owners.DescribeLease(f.Facts, lease)
			return leaseState{text: text, exists: true, isCurrent: isCurrent}
		}
	}
	if !f.IsRead(diagnosis.SourceLeases) {
		return leaseState{text: evidenceLeasesUnread}
	}
	return leaseState{text: fmt.Sprintf(evidenceNoLease, name)}
}

// exists reports whether the namespace contains an object.
func (f view) exists(resource schema.GroupResource, name string) bool {
	return slices.ContainsFunc(f.RemainingObjects(), func(object diagnosis.RemainingObject) bool {
		return object.GroupResource() == resource && object.Name == name
	})
}
