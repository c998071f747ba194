// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// finalizerRule finds finalizers that are not removed within the progress deadline. Some finalizers
// have separate rules.
var finalizerRule = Rule{
	Name: "finalizers", Stage: diagnosis.StageTerminating,
	Needs: append([]diagnosis.Fact{
		diagnosis.FactContent, diagnosis.FactProgress, diagnosis.FactDryRuns, diagnosis.FactReportedErrors,
		diagnosis.FactCRDs, diagnosis.FactPods,
	}, ownerNeeds...),
	find: view.findFinalizers,
}

func (f view) findFinalizers() []diagnosis.Finding {
	var findings []diagnosis.Finding
	for finalizer, objects := range diagnosis.Sorted(f.OverdueByFinalizer()) {
		if f.IsFinalizerProgressing(finalizer) {
			continue
		}
		objects = slices.DeleteFunc(objects, func(object diagnosis.RemainingObject) bool {
			return f.hasOtherRule(object, finalizer)
		})
		if len(objects) == 0 {
			continue
		}
		finding, ok := f.dependencyFinding(finalizer, objects)
		if !ok {
			if known, ok := owners.Known(finalizer); ok && known.IsBuiltIn() {
				finding = f.builtInFinding(finalizer, known, objects)
			} else {
				finding = f.ownerFinding(finalizer, objects, diagnosis.CauseFinalizerPending)
			}
		}
		finding.Evidence = append(finding.Evidence, f.terminatingCRDs(objects)...)
		finding.Evidence = append(finding.Evidence, f.unlistedObjects(objects)...)
		findings = append(findings, finding)
	}
	return findings
}

// hasOtherRule reports whether another rule handles a finalizer of an object.
func (f view) hasOtherRule(object diagnosis.RemainingObject, finalizer string) bool {
	known, _ := owners.Known(finalizer)
	switch resource := object.GroupResource(); {
	case finalizer == owners.FinalizerForeground, known.External, resource == diagnosis.PodResource:
		return true
	case resource == diagnosis.PVCResource && finalizer == owners.FinalizerPVC && len(f.podsUsing(object.Name)) > 0:
		return true
	}
	return f.isRemovalRejected(object, finalizer)
}

// builtInFinding returns the finding about a finalizer that a Kubernetes controller removes.
func (f view) builtInFinding(
	finalizer string, known owners.KnownFinalizer, objects []diagnosis.RemainingObject,
) diagnosis.Finding {
	ago := f.Ago(firstDeletedAt(objects))
	lease := f.controlPlaneLease(known.Manager)
	finding := diagnosis.Finding{
		Cause: diagnosis.CauseFinalizerPending, Certainty: diagnosis.Likely, Finalizer: finalizer,
		Message:  fmt.Sprintf(messageBuiltInPending, describe(objects), ago, known.Owner, finalizer),
		Evidence: []string{finalizerEvidence(finalizer, objects), lease.text},
		Remedies: []diagnosis.Remedy{
			diagnosis.Inspect(fmt.Sprintf(remedyBuiltIn, known.Manager)), diagnosis.Inspect(remedyListLeases),
			diagnosis.Resolve(f.forceCommand(flagFinalizer, finalizer)),
		},
		Loss: known.Loss,
	}
	if lease.exists && !lease.isCurrent {
		finding.Cause, finding.Certainty = diagnosis.CauseFinalizerOwnerGone, diagnosis.Confirmed
		finding.IsOwnerGone = true
		finding.Message = fmt.Sprintf(messageBuiltInNotRunning, describe(objects), ago, finalizer, known.Owner)
	}
	return finding.WithRemaining(objects)
}

// leaseState is the state of a controller's Lease.
type leaseState struct {
	text              string
	exists, isCurrent bool
}

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

// dependencyFinding finds an object that cannot be finalized because another object does not exist,
// according to the first object's conditions and Events.
func (f view) dependencyFinding(
	finalizer string, objects []diagnosis.RemainingObject,
) (finding diagnosis.Finding, ok bool) {
	for _, object := range objects {
		for _, reported := range f.ReportedErrors {
			if reported.Type.GroupResource() != object.GroupResource() || reported.Name != object.Name {
				continue
			}
			match := notFound.FindStringSubmatch(reported.Text)
			if match == nil || match[2] == object.Name || f.exists(match[2]) {
				continue
			}
			dependency := f.UnlessPublic(fmt.Sprintf(messageDependency, match[1], match[2]), messageDependencyPublic)
			return diagnosis.Finding{
				Cause: diagnosis.CauseDependencyDeleted, Certainty: diagnosis.Likely, Finalizer: finalizer,
				Message:  fmt.Sprintf(messageDependencyDeleted, describe(objects[:1]), dependency),
				Evidence: []string{quoteReportedError(reported), finalizerEvidence(finalizer, objects)},
				Remedies: []diagnosis.Remedy{
					diagnosis.Inspect(remedyDependency), diagnosis.Inspect(f.inspectCommand(object)),
					diagnosis.Resolve(f.forceCommand(flagFinalizer, finalizer)),
				},
				Loss: lossUnknownFinalizer,
			}.WithRemaining(objects), true
		}
	}
	return diagnosis.Finding{}, false
}

// exists reports whether the namespace contains an object with the given name that is not being
// deleted.
func (f view) exists(name string) bool {
	return slices.ContainsFunc(f.RemainingObjects(), func(object diagnosis.RemainingObject) bool {
		return object.Name == name && object.DeletionTimestamp == nil
	})
}

// logsCommand returns the command that prints the log of a running workload with one of the
// ServiceAccounts, if there is such a workload.
func (f view) logsCommand(report owners.Report) []diagnosis.Remedy {
	for i := range f.Workloads {
		workload := &f.Workloads[i]
		if slices.Contains(report.ServiceAccounts, workload.ServiceAccount) && workload.IsReady() &&
			workload.Source != diagnosis.SourcePods {
			return []diagnosis.Remedy{
				diagnosis.Inspect(shell.Command(remedyLogs, workload.Namespace, workload.Source, workload.Name)),
			}
		}
	}
	return nil
}
