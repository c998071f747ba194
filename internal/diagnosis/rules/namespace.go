// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
)

// findNamespaceController finds deletions that no namespace controller has started, and deletions that
// no namespace controller continues.
func (f view) findNamespaceController() []diagnosis.Finding {
	if !slices.Contains(f.Namespace.Spec.Finalizers, corev1.FinalizerKubernetes) ||
		!f.IsOverdue(f.Namespace.DeletionTimestamp.Time) || f.Progress.Observed() {
		return nil
	}
	lease, texts := f.controllerLeases()
	switch {
	case !f.isControllerResponsible(lease):
		return nil
	case f.HasDeletionCondition():
		return f.findNotContinued(lease, texts)
	}
	ago := f.Ago(f.Namespace.DeletionTimestamp.Time)
	finding := f.unresponsiveFinding(fmt.Sprintf(messageNotProcessed, ago), texts)
	if len(f.UserDependent) > 0 && !lease.isExpired() {
		finding.Message = fmt.Sprintf("No namespace controller is processing the deletion, or its writes are denied to its "+
			"user by %s: after %s, the Namespace has no deletion conditions", diagnosis.JoinNames(f.UserDependent), ago)
		finding.Remedies = append(finding.Remedies, diagnosis.Inspect("Check that the webhooks and policies exempt the "+
			"namespace controller (ServiceAccount kube-system/namespace-controller, or the one of the nslifecycle manager)"))
	}
	return []diagnosis.Finding{finding}
}

// isControllerResponsible reports whether the Namespace shows that no controller is running. If the writes of a running
// controller are denied, the Namespace looks the same, unless dry runs of the writes succeed. An Event about a rejected
// write shows that the operator is running.
func (f view) isControllerResponsible(lease leaseState) bool {
	return len(f.rejectedWrites()) == 0 && len(f.namespaceRejection().dryRuns) == 0 &&
		(f.isNamespaceWritable() || lease.isExpired())
}

// findNotContinued finds a deletion that a controller started, but that no controller continues.
func (f view) findNotContinued(lease leaseState, texts []string) []diagnosis.Finding {
	isRunning := lease.isCurrent || !f.IsRead(diagnosis.SourceLeases) || !f.isUntouched()
	// Without a Lease, the last object may have been deleted a moment ago.
	if isRunning || f.isEmptinessUnnoticed() && !lease.exists {
		return nil
	}
	reason := messageObjectsRemain
	if f.IsEmpty() {
		reason = messageEmptyUnnoticed
	}
	finding := f.unresponsiveFinding(fmt.Sprintf("No namespace controller is continuing the deletion: %s, and no "+
		"namespace controller is renewing its Lease", reason), texts)
	finding.Evidence = append(finding.Evidence, f.quoteConditions(diagnosis.DeletionConditions...)...)
	return []diagnosis.Finding{finding}
}

func (f view) unresponsiveFinding(message string, evidence []string) diagnosis.Finding {
	if f.isNamespaceWritable() {
		evidence = append(evidence, "the dry runs of writes to the Namespace succeed")
	}
	finding := f.newFinding(diagnosis.CauseNamespaceControllerUnresponsive, diagnosis.RankInferred, message, nil)
	finding.Evidence = diagnosis.Inferred(evidence...)
	return f.aboutNamespace(finding)
}

func (f view) aboutNamespace(finding diagnosis.Finding) diagnosis.Finding {
	return finding.WithObjects([]diagnosis.Object{{Resource: diagnosis.NamespaceType.String(), Name: f.Namespace.Name}})
}

// namespaceRejection contains the writes to the Namespace that the deletion needs and that fail.
func (f view) namespaceRejection() rejection {
	var failed rejection
	for _, dryRun := range f.DryRuns {
		if dryRun.IsOfNamespace() && dryRun.Err != nil {
			failed.dryRuns = append(failed.dryRuns, dryRun)
		}
	}
	return failed
}

// isNamespaceWritable reports whether dry runs of writes to the Namespace have succeeded. If the namespace is empty,
// they include the removal of the finalizer.
func (f view) isNamespaceWritable() bool {
	return len(f.namespaceRejection().dryRuns) == 0 && slices.ContainsFunc(f.DryRuns, func(dryRun diagnosis.DryRun) bool {
		return dryRun.IsOfNamespace() && (dryRun.Finalizer != "" || !f.IsEmpty())
	})
}

// isUntouched reports whether no remaining object is being deleted or known to be blocked, and the
// namespace controller reports no failure.
func (f view) isUntouched() bool {
	if f.ConditionMessage(corev1.NamespaceDeletionContentFailure) != "" ||
		f.ConditionMessage(corev1.NamespaceDeletionDiscoveryFailure) != "" {
		return false
	}
	objects := f.RemainingObjects()
	isDeleted := slices.ContainsFunc(objects, func(object diagnosis.RemainingObject) bool {
		return object.DeletionTimestamp != nil
	})
	isRejected := slices.ContainsFunc(f.DryRuns, func(dryRun diagnosis.DryRun) bool { return dryRun.Err != nil })
	return !isDeleted && !isRejected && (len(objects) > 0 || f.IsEmpty())
}

// isEmptinessUnnoticed reports whether the namespace is empty but a condition still reports remaining
// objects. The namespace controller lists the content again within a minute.
func (f view) isEmptinessUnnoticed() bool {
	return f.IsEmpty() && f.ConditionMessage(corev1.NamespaceContentRemaining) != ""
}

// controllerLeases returns the state of the Leases of the namespace controllers, and a description
// of each Lease.
func (f view) controllerLeases() (state leaseState, texts []string) {
	state = f.controlPlaneLease(owners.ControllerManager)
	texts = []string{state.text}
	for i := range f.Leases {
		lease := &f.Leases[i]
		if !owners.IsManagerLease(lease) || lease.Spec.RenewTime == nil {
			continue
		}
		text, isCurrent := owners.DescribeLease(f.Facts, lease)
		texts = append(texts, text)
		state.exists, state.isCurrent = true, state.isCurrent || isCurrent
	}
	if len(texts) == 1 && f.IsRead(diagnosis.SourceLeases) {
		texts = append(texts, fmt.Sprintf("there is no Lease %s of the nslifecycle manager", owners.ManagerLease))
	}
	return state, texts
}

// findUnknown reports a namespace that makes no progress if no other rule has a finding.
func (f view) findUnknown() []diagnosis.Finding {
	if !f.IsOverdue(f.lastStep()) || f.Progress.Observed() || f.hasTime() || f.isEmptinessUnnoticed() {
		return nil
	}
	// The sources that could not be read might show a running controller or another cause.
	finding := f.newFinding(diagnosis.CauseUnknown, diagnosis.RankInferred, messageUnknown, nil)
	finding.Evidence = slices.Concat(diagnosis.Proven(fmt.Sprintf("deletionTimestamp %s, spec.finalizers: [%s]",
		diagnosis.FormatTime(f.Namespace.DeletionTimestamp.Time), strings.Join(f.finalizersIn(specFinalizers), ", "))),
		f.namespaceRejection().evidence(), f.quoteConditions(diagnosis.DeletionConditions...))
	switch {
	case len(f.Content) > 0 && !slices.Contains(f.Namespace.Spec.Finalizers, corev1.FinalizerKubernetes):
		finding.Message = fmt.Sprintf(messageUnprotected, f.remainingText())
		finding.Remedies = append([]diagnosis.Remedy{diagnosis.Resolve("Delete the remaining objects before the last " +
			"finalizer of the Namespace is removed; afterwards, they cannot be reached")}, finding.Remedies...)
		finding.Loss = "The remaining objects remain in storage without a namespace"
	case len(f.Content) > 0:
		finding.Message = fmt.Sprintf("%s in the namespace for an unknown reason", f.remainingText())
	}
	return []diagnosis.Finding{finding.WithRemaining(f.RemainingObjects())}
}

// hasTime reports whether any object is being deleted and has not exceeded the progress deadline.
func (f view) hasTime() bool {
	return slices.ContainsFunc(f.RemainingObjects(), func(object diagnosis.RemainingObject) bool {
		return object.DeletionTimestamp != nil && !f.IsObjectOverdue(object)
	})
}

// lastStep returns when the deletion of the Namespace last made progress.
func (f view) lastStep() time.Time {
	last := f.Namespace.DeletionTimestamp.Time
	for _, condition := range f.Namespace.Status.Conditions {
		if slices.Contains(diagnosis.DeletionConditions, condition.Type) && condition.LastTransitionTime.After(last) {
			last = condition.LastTransitionTime.Time
		}
	}
	for _, entry := range f.Namespace.ManagedFields {
		// Any controller, including the manager, can write the status for any reason.
		if entry.Time != nil && entry.Subresource == "finalize" && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// The two lists of finalizers in a Namespace.
const (
	specFinalizers     = "spec.finalizers"
	metadataFinalizers = "metadata.finalizers"
)

// findNamespaceFinalizers finds the finalizers that block an empty namespace. Until the namespace is
// empty, their owners may be waiting for the deletion of its content.
func (f view) findNamespaceFinalizers() []diagnosis.Finding {
	if !f.IsOverdue(f.lastStep()) || !f.IsEmpty() {
		return nil
	}
	hasKubernetes := slices.Contains(f.Namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
	var findings []diagnosis.Finding
	isRejected := func(finalizer string) bool {
		return f.isRemovalRejected(diagnosis.NamespaceType.GroupResource(), finalizer)
	}
	for _, finalizer := range slices.DeleteFunc(f.ExternalNamespaceFinalizers(), isRejected) {
		finding := f.namespaceFinalizerFinding(finalizer, specFinalizers, diagnosis.CauseNamespaceFinalizer)
		f.addInitializer(&finding, finalizer)
		if hasKubernetes && finding.Rank == diagnosis.RankProven {
			finding.Rank = diagnosis.RankInferred
		}
		findings = append(findings, finding)
	}
	if hasKubernetes || len(f.ExternalNamespaceFinalizers()) > 0 {
		return findings // The owners of finalizers in metadata.finalizers may wait for these namespace finalizers.
	}
	for _, finalizer := range slices.DeleteFunc(slices.Clone(f.Namespace.Finalizers), isRejected) {
		findings = append(findings,
			f.namespaceFinalizerFinding(finalizer, metadataFinalizers, diagnosis.CauseNamespaceMetadataFinalizer))
	}
	return findings
}

func (f view) namespaceFinalizerFinding(finalizer, list string, cause diagnosis.Cause) diagnosis.Finding {
	finding := f.ownerFinding(finalizer, nil, cause)
	finding.Cause, finding.Rank = cause, diagnosis.RankProven
	finding.Message = fmt.Sprintf("The namespace is empty, but %s in its %s has been blocking its deletion for %s",
		finalizer, list, f.Ago(f.lastStep()))
	finding.Evidence = append(diagnosis.Proven(fmt.Sprintf("%s: [%s], deletionTimestamp %s", list,
		strings.Join(f.finalizersIn(list), ", "), diagnosis.FormatTime(f.Namespace.DeletionTimestamp.Time))),
		finding.Evidence...)
	// An agent of pkg/finalizer publishes a condition with the name of its finalizer.
	if report := f.publishedCondition(finalizer); report != "" {
		finding.Rank = diagnosis.RankPublished
		finding.Message += "; " + report
		finding.Evidence = append(diagnosis.Published(quoteCondition(
			f.Condition(corev1.NamespaceConditionType(finalizer)))), finding.Evidence...)
	}
	finding.Remedies = f.remediesFor(cause, params{
		paramFinalizer: {finalizer}, "unownedFinalizer": {finalizer}, paramInitializer: nil,
	})
	return f.aboutNamespace(finding)
}

// addInitializer adds the initializer that a namespace finalizer belongs to. Its owner is absent only if
// every initializer with the finalizer has subjects, and all of them are ServiceAccounts that do not exist.
func (f view) addInitializer(finding *diagnosis.Finding, finalizer string) {
	if !f.IsRead(diagnosis.SourceConfigurations) {
		finding.OwnerState = diagnosis.OwnerUnknown
		return
	}
	initializers := slices.DeleteFunc(slices.Clone(f.Initializers), func(i diagnosis.RegisteredInitializer) bool {
		return i.Finalizer != finalizer
	})
	if len(initializers) == 0 {
		return
	}
	initializer := initializers[0]
	finding.Message += fmt.Sprintf(messageInitializerFinalizer, initializer.Name, initializer.Configuration)
	finding.Evidence = append(finding.Evidence, diagnosis.Proven(
		fmt.Sprintf("NamespaceInitializerConfiguration %q has finalizer %s for initializer %s",
			initializer.Configuration, finalizer, initializer.Name))...)
	finding.Remedies = f.remediesFor(finding.Cause, params{
		paramFinalizer: {finalizer}, "unownedFinalizer": nil, paramInitializer: {initializer.Name},
	})
	finding.OwnerState = diagnosis.OwnerUnknown
	if f.Condition(corev1.NamespaceConditionType(finalizer)) != nil {
		return // An agent has published this condition, possibly with another identity.
	}
	var missing []string
	for _, initializer := range initializers {
		if len(initializer.Subjects) == 0 {
			return
		}
		for _, identity := range owners.RegisteredIdentities(f.Facts, initializer) {
			if identity.Status != owners.StatusMissing {
				return
			}
			missing = append(missing, identity.Text)
		}
	}
	finding.OwnerState = diagnosis.OwnerAbsent
	finding.Evidence = append(finding.Evidence, diagnosis.Proven(missing...)...)
}

// finalizersIn returns one of the Namespace's two lists of finalizers.
func (f view) finalizersIn(list string) []string {
	if list == metadataFinalizers {
		return f.Namespace.Finalizers
	}
	var names []string
	for _, finalizer := range f.Namespace.Spec.Finalizers {
		names = append(names, string(finalizer))
	}
	return names
}
