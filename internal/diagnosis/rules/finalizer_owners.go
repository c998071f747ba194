// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// ownerFinding returns the finding about a finalizer, based on the evidence of its owner. If the
// owner is running or unknown, pending is the cause of the finding.
func (f view) ownerFinding(
	finalizer string, objects []diagnosis.RemainingObject, pending diagnosis.Cause,
) diagnosis.Finding {
	owner := owners.Of(finalizer, objects)
	report := owners.Search(f.Facts, &owner)
	finding := diagnosis.Finding{
		Cause: pending, Certainty: diagnosis.Likely, Finalizer: finalizer,
		Evidence: []string{finalizerEvidence(finalizer, objects)}, Loss: lossUnknownFinalizer,
	}
	if known, ok := owners.Known(finalizer); ok {
		finding.Loss = known.Loss
	}
	if len(owner.Managers) > 0 {
		finding.Evidence = append(finding.Evidence,
			fmt.Sprintf(evidenceFieldManagers, diagnosis.JoinNames(owner.Managers)))
	}
	if len(report.CRDs) > 0 {
		finding.Evidence = append(finding.Evidence, fmt.Sprintf(evidenceCRDsOfDomain, diagnosis.JoinNames(report.CRDs)))
	}
	format := messageFinalizerHeldByOne
	if len(objects) > 1 {
		format = messageFinalizerHeldByMany
	}
	held := fmt.Sprintf(format, describe(objects), f.Ago(firstDeletedAt(objects)), finalizer)
	switch {
	case len(report.Running) > 0:
		f.setOwnerRunning(&finding, held, objects, report)
	case len(report.NotRunning) > 0:
		f.setOwnerNotRunning(&finding, held, report)
	default:
		f.setOwnerNotFound(&finding, held, &owner, report)
	}
	if len(objects) > 0 {
		finding.Remedies = append(finding.Remedies, diagnosis.Inspect(f.inspectCommand(objects[0])))
	}
	finding.Remedies = append(finding.Remedies, diagnosis.Resolve(f.forceCommand(flagFinalizer, finalizer)))
	return finding.WithRemaining(objects)
}

// setOwnerRunning completes a finding with evidence that the owner is running.
func (f view) setOwnerRunning(
	finding *diagnosis.Finding, held string, objects []diagnosis.RemainingObject, report owners.Report,
) {
	finding.Message = fmt.Sprintf(messageOwnerRunning, held, owners.Best(report.Running).Text)
	finding.Evidence = append(finding.Evidence, textsOf(report.Running)...)
	finding.Remedies = append(finding.Remedies, f.logsCommand(report)...)
	finding.Remedies = append(finding.Remedies, diagnosis.Inspect(remedyOwnerRunning))

	denied := f.missingPermissions(objects, report)
	if len(denied) == 0 {
		return
	}
	account := report.ServiceAccounts[0]
	finding.Cause = diagnosis.CauseFinalizerOwnerForbidden
	if len(report.ServiceAccounts) == 1 && report.WorkloadMatch == owners.StrongMatch {
		finding.Certainty = diagnosis.Confirmed
	}
	finding.Message = fmt.Sprintf(messageOwnerForbidden, held, denied[0])
	finding.Evidence = append(finding.Evidence, denied...)
	finding.Remedies = []diagnosis.Remedy{
		diagnosis.Inspect(shell.Command(remedyOwnerCanPatch, objects[0].Type, f.Namespace.Name, account.Namespace,
			account.Name)),
		diagnosis.Resolve(remedyOwnerGrant),
	}
}

// missingPermissions describes the permissions that all ServiceAccounts of the owner lack for the
// objects.
func (f view) missingPermissions(objects []diagnosis.RemainingObject, report owners.Report) []string {
	var denied []string
	for _, account := range report.ServiceAccounts {
		for _, review := range f.AccessReviews {
			if review.ServiceAccount != account ||
				!slices.ContainsFunc(objects, func(object diagnosis.RemainingObject) bool {
					return object.GroupResource() == review.Resource
				}) {
				continue
			}
			if review.Allowed {
				return nil
			}
			denied = append(denied, fmt.Sprintf(evidenceForbidden, account, review.Resource, f.Namespace.Name))
		}
	}
	return denied
}

// setOwnerNotRunning completes a finding with evidence that the owner is not running.
func (f view) setOwnerNotRunning(finding *diagnosis.Finding, held string, report owners.Report) {
	best := owners.Best(report.NotRunning)
	finding.Cause, finding.IsOwnerGone = diagnosis.CauseFinalizerOwnerGone, true
	finding.Message = fmt.Sprintf(messageOwnerNotRunning, held, best.Text)
	finding.Remedies = append(finding.Remedies, diagnosis.Resolve(remedyOwnerNotRunning))
	if best.InNamespace {
		finding.Cause = diagnosis.CauseFinalizerOwnerInNamespace
		finding.Message = fmt.Sprintf(messageOwnerInNamespace, held, best.Text)
		finding.Remedies = []diagnosis.Remedy{diagnosis.Resolve(remedyOwnerInNamespace)}
	}
	if best.Match == owners.StrongMatch && f.isOwnerSearchComplete() {
		finding.Certainty = diagnosis.Confirmed
	}
	finding.Evidence = append(finding.Evidence, textsOf(report.NotRunning)...)
	finding.Evidence = append(finding.Evidence, f.searchEvidence())
}

// setOwnerNotFound completes a finding without evidence of an owner. The finding is never
// Confirmed, because the owner might be running outside the cluster.
func (f view) setOwnerNotFound(
	finding *diagnosis.Finding, held string, owner *owners.Owner, report owners.Report,
) {
	finding.Evidence = append(finding.Evidence, f.searchEvidence())
	known, ok := owners.Known(owner.Finalizer)
	install := diagnosis.Resolve(fmt.Sprintf(remedyOwnerInstall, owner.Domain))
	if ok {
		install = diagnosis.Inspect(fmt.Sprintf(remedyOwnerKnown, known.Owner))
	}
	isComplete := owner.Domain != "" && f.isOwnerSearchComplete()
	if isComplete {
		finding.Cause, finding.IsOwnerGone = diagnosis.CauseFinalizerOwnerGone, !owner.CanRunOutside()
	}
	switch {
	case isComplete && len(report.CRDs) == 0:
		finding.Message = fmt.Sprintf(messageOwnerUninstalled, held, owner.Domain)
		finding.Remedies = append(finding.Remedies, install)
	case isComplete:
		finding.Message = fmt.Sprintf(messageOwnerOnlyCRDs, held, diagnosis.JoinNames(report.CRDs))
		finding.Remedies = append(finding.Remedies, install)
	case ok:
		finding.Message = fmt.Sprintf(messageOwnerKnown, held, known.Owner)
		finding.Remedies = append(finding.Remedies, install)
	default:
		finding.Message = fmt.Sprintf(messageOwnerUnknown, held)
		finding.Remedies = append(finding.Remedies, diagnosis.Inspect(remedyOwnerUnknown))
	}
}

// ownerSources are the sources of evidence of an owner.
var ownerSources = []diagnosis.Source{
	diagnosis.SourceAPIServices, diagnosis.SourceClusterRoleBindings, diagnosis.SourceCRDs, diagnosis.SourceDaemonSets,
	diagnosis.SourceDeployments, diagnosis.SourceLeases, diagnosis.SourcePods, diagnosis.SourceStatefulSets,
	diagnosis.SourceServiceAccounts,
}

// isOwnerSearchComplete reports whether all sources of evidence of an owner were read.
func (f view) isOwnerSearchComplete() bool { return !f.IsPublic && len(f.unreadOwnerSources()) == 0 }

func (f view) unreadOwnerSources() []string {
	var unread []string
	for _, source := range ownerSources {
		if !f.IsRead(source) {
			unread = append(unread, string(source))
		}
	}
	return unread
}

// searchEvidence describes where the diagnosis searched for the owner.
func (f view) searchEvidence() string {
	text := evidenceSearch
	if unread := f.unreadOwnerSources(); len(unread) > 0 {
		text += fmt.Sprintf(evidenceSearchUnread, strings.Join(unread, ", "))
	}
	return text
}

// textsOf returns the texts of the evidence, but at most MaxObjects.
func textsOf(evidence []owners.Evidence) []string {
	var result []string
	for _, one := range evidence[:min(len(evidence), diagnosis.MaxObjects)] {
		result = append(result, one.Text)
	}
	return result
}
