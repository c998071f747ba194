// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/knowncontrollers"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// findFinalizers finds finalizers that are not removed within the progress deadline. Some finalizers
// have separate rules.
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
		Message: fmt.Sprintf("%s should have been deleted %s ago; %s has not removed finalizer %s",
			describe(objects), ago, known.Owner, finalizer),
		Evidence: append(diagnosis.Proven(finalizerEvidence(finalizer, objects)), diagnosis.Inferred(lease.text)...),
		// The remedies do not depend on the finalizer.
		Remedies: f.remediesFor(diagnosis.CauseForegroundDeletion,
			params{"manager": {known.Manager}, paramFinalizer: {finalizer}}),
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

func (f view) exists(resource schema.GroupResource, name string) bool {
	return slices.ContainsFunc(f.RemainingObjects(), func(object diagnosis.RemainingObject) bool {
		return object.GroupResource() == resource && object.Name == name
	})
}

// ownerCase is the input of ownerFinding and its helpers.
type ownerCase struct {
	finalizer string
	objects   []diagnosis.RemainingObject
	owner     owners.Owner
	// reports are what controllers published about the objects, the most relevant first.
	reports []diagnosis.Report
	// pauses describe the settings that make the owner ignore some of the objects.
	pauses []string
	// held is the beginning of the message.
	held string
}

// ownerFinding returns the finding about a finalizer. If the owner published why it has not removed the
// finalizer, the finding quotes it. Otherwise, the finding states whether the owner is running. If it is
// running or unknown, pending is the cause.
func (f view) ownerFinding(
	finalizer string, objects []diagnosis.RemainingObject, pending diagnosis.Cause,
) diagnosis.Finding {
	c := ownerCase{
		finalizer: finalizer, objects: objects, owner: owners.Find(f.Facts, finalizer, objects),
		reports: f.reportsAbout(objects), held: f.heldText(finalizer, objects),
	}
	c.pauses = f.pauses(c)
	finding := diagnosis.Finding{
		Cause: pending, Rank: diagnosis.RankInferred, Finalizer: finalizer, OwnerState: c.owner.State,
		Evidence: slices.Concat(
			diagnosis.Published(quoteReports(c.reports)...), diagnosis.Proven(c.pauses...),
			diagnosis.Proven(finalizerEvidence(finalizer, objects)), c.owner.Evidence,
		),
		Loss: lossUnknownFinalizer,
	}
	if c.owner.Known != nil {
		finding.Loss = c.owner.Known.Loss
	}
	f.setOwnerCause(&finding, c)
	if c.owner.State == diagnosis.OwnerNotFound || c.owner.State == diagnosis.OwnerUnknown {
		finding.Evidence = append(finding.Evidence, diagnosis.Inferred(f.searchEvidence(c.owner))...)
	}
	if len(objects) > 0 {
		finding.Remedies = append(finding.Remedies, diagnosis.Inspect(f.inspectCommand(objects[0])))
	}
	finding.Remedies = append(finding.Remedies, diagnosis.ResolveWith(remedyForcePreview,
		shell.Command("kubectl nslifecycle finalize %s --finalizer=%s", f.Namespace.Name, finalizer)))
	return finding.WithRemaining(objects)
}

// heldText states which objects have a finalizer, and for how long.
func (f view) heldText(finalizer string, objects []diagnosis.RemainingObject) string {
	format := "%s should have been deleted %s ago but has finalizer %s"
	if len(objects) > 1 {
		format = "%s should have been deleted %s ago but have finalizer %s"
	}
	return fmt.Sprintf(format, describe(objects), f.Ago(firstDeletedAt(objects)), finalizer)
}

// setOwnerCause sets the cause, the message and the remedies. What a controller published takes
// precedence over conclusions, except that the owner is not running: then the reports can be old.
func (f view) setOwnerCause(finding *diagnosis.Finding, c ownerCase) {
	denied := f.missingPermissions(c)
	switch {
	case f.areAllPaused(c) && len(c.pauses) > 0:
		f.setCause(finding, diagnosis.CauseObjectPaused, fmt.Sprintf("%s; its controller does not reconcile it: %s",
			c.held, c.pauses[0]), c)
	case c.owner.State == diagnosis.OwnerNotRunning:
		f.setOwnerNotRunning(finding, c, diagnosis.CauseFinalizerOwnerNotRunning,
			slices.ContainsFunc(c.owner.Workloads, func(workload *diagnosis.Workload) bool {
				return workload.Namespace == f.Namespace.Name
			}))
	case len(denied) > 0:
		f.setOwnerForbidden(finding, c, denied)
	case len(c.reports) > 0 && (c.owner.State != diagnosis.OwnerNotFound || f.isSinceDeletion(c.reports[0], c.objects)):
		f.setOwnerFailing(finding, c)
	case c.owner.MissingAccount != nil:
		f.setOwnerNotRunning(finding, c, diagnosis.CauseFinalizerOwnerNotFound,
			c.owner.MissingAccount.Name.Namespace == f.Namespace.Name)
	case c.owner.State == diagnosis.OwnerRunning:
		f.setCause(finding, finding.Cause, fmt.Sprintf(messageOwnerRunning, c.held), c)
	default:
		f.setOwnerNotFound(finding, c)
	}
}

// setOwnerNotRunning completes a finding about an owner that has no ready pods or no ServiceAccount. If
// the owner was in the namespace itself, that is the cause.
func (f view) setOwnerNotRunning(
	finding *diagnosis.Finding, c ownerCase, cause diagnosis.Cause, wasInNamespace bool,
) {
	if wasInNamespace {
		f.setCause(finding, diagnosis.CauseFinalizerOwnerInNamespace, fmt.Sprintf(messageOwnerInNamespace, c.held), c)
		return
	}
	f.setCause(finding, diagnosis.CauseFinalizerOwnerNotRunning, fmt.Sprintf(messageOwnerNotRunning, c.held), c)
	finding.Cause = cause
}

// setCause sets the cause and the message, and adds the remedies of the cause.
func (f view) setCause(finding *diagnosis.Finding, cause diagnosis.Cause, message string, c ownerCase) {
	finding.Cause, finding.Message = cause, message
	values := params{"workload": nil, "workloadNamespace": nil}
	for _, workload := range c.owner.Workloads {
		if workload.IsReady() && values["workload"] == nil {
			values["workload"] = []string{string(workload.Source) + "/" + workload.Name}
			values["workloadNamespace"] = []string{workload.Namespace}
		}
	}
	finding.Remedies = append(finding.Remedies, f.remediesFor(cause, values)...)
}

func (f view) setOwnerForbidden(finding *diagnosis.Finding, c ownerCase, denied []string) {
	account := c.owner.Workloads[0].ServiceAccount
	finding.Evidence = append(finding.Evidence, diagnosis.Proven(denied...)...)
	for _, verb := range f.missingVerbs(account, c.objects[0].GroupResource()) {
		finding.Remedies = append(finding.Remedies, diagnosis.Inspect(shell.Command(
			"kubectl auth can-i %s %s --namespace=%s --as=system:serviceaccount:%s:%s", verb, c.objects[0].Type,
			f.Namespace.Name, account.Namespace, account.Name)))
	}
	f.setCause(finding, diagnosis.CauseFinalizerOwnerForbidden, fmt.Sprintf(messageOwnerForbidden, c.held), c)
}

func (f view) missingVerbs(account types.NamespacedName, resource schema.GroupResource) []string {
	for _, review := range f.AccessReviews {
		if review.ServiceAccount == account && review.Resource == resource {
			return review.Missing
		}
	}
	return nil
}

// missingPermissions describes the permissions that the ServiceAccounts of a running owner lack for the
// objects. It returns none if the owner is not identified, or if one of its ServiceAccounts was not checked.
func (f view) missingPermissions(c ownerCase) []string {
	if c.owner.State != diagnosis.OwnerRunning {
		return nil
	}
	var denied []string
	for _, workload := range c.owner.Workloads {
		isChecked := false
		for _, review := range f.AccessReviews {
			if review.ServiceAccount != workload.ServiceAccount ||
				!slices.ContainsFunc(c.objects, func(object diagnosis.RemainingObject) bool {
					return object.GroupResource() == review.Resource
				}) {
				continue
			}
			if len(review.Missing) == 0 {
				return nil
			}
			isChecked = true
			denied = append(denied, fmt.Sprintf(evidenceForbidden, workload.ServiceAccount,
				strings.Join(review.Missing, " or "), review.Resource, f.Namespace.Name))
		}
		if !isChecked {
			return nil
		}
	}
	return slices.Compact(denied)
}

// setOwnerFailing completes a finding with a reason that a controller published.
func (f view) setOwnerFailing(finding *diagnosis.Finding, c ownerCase) {
	first := c.reports[0]
	finding.Rank = diagnosis.RankPublished
	message := fmt.Sprintf("%s; %s", c.held, first.Source) + f.Detail(first.Text)
	for _, report := range c.reports {
		if dependency := f.missingDependency(report, c.objects); dependency != "" {
			finding.Evidence = append(finding.Evidence, diagnosis.Proven(dependency)...)
			f.setCause(finding, diagnosis.CauseDependencyMissing, message, c)
			return
		}
	}
	f.setCause(finding, diagnosis.CauseFinalizerOwnerFailing, message, c)
}

// setOwnerNotFound completes a finding about an owner that was not identified.
func (f view) setOwnerNotFound(finding *diagnosis.Finding, c ownerCase) {
	isNotFound, pending := c.owner.State == diagnosis.OwnerNotFound, finding.Cause
	message := messageOwnerUnknown
	if isNotFound {
		message = messageOwnerNotFound
	}
	f.setCause(finding, diagnosis.CauseFinalizerOwnerNotFound, fmt.Sprintf(message, c.held), c)
	if c.owner.Known != nil {
		message = messageOwnerKnown
		if isNotFound && len(c.owner.Workloads) == 0 {
			message = messageKnownNotFound
		}
		finding.Message = fmt.Sprintf(message, c.held, c.owner.Known.Owner)
		finding.Remedies = []diagnosis.Remedy{diagnosis.Inspect(fmt.Sprintf(
			"Check that %s is running, and let it remove the finalizer", c.owner.Known.Owner))}
	}
	if !isNotFound {
		finding.Cause = pending
	}
}

// pauses describes the settings that make the owner ignore the objects. If the owner is unknown, they are the
// annotations with which any of the known controllers ignores an object: its controller can have the same.
func (f view) pauses(c ownerCase) []string {
	pauses := knowncontrollers.PauseAnnotations()
	if c.hasKnownController() {
		pauses = c.owner.Known.Controller.Pauses
	}
	var texts []string
	for _, object := range c.objects {
		texts = append(texts, f.pausesOf(object, pauses)...)
	}
	return texts[:min(len(texts), diagnosis.MaxObjects)]
}

// hasKnownController reports whether the owner is one of the known controllers.
func (c *ownerCase) hasKnownController() bool {
	return c.owner.Known != nil && c.owner.Known.Controller != nil
}

func (f view) areAllPaused(c ownerCase) bool {
	return c.hasKnownController() && !slices.ContainsFunc(c.objects, func(object diagnosis.RemainingObject) bool {
		return len(f.pausesOf(object, c.owner.Known.Controller.Pauses)) == 0
	})
}

// pausesOf describes the given settings that an object has. Users choose the values of annotations, so
// the texts contain a value only if it has a meaning.
func (f view) pausesOf(object diagnosis.RemainingObject, pauses []knowncontrollers.Setting) []string {
	var texts []string
	for _, pause := range pauses {
		add := func(what, key, value string, ok bool) {
			if ok && pause.HasEffect(value) {
				setting := strings.TrimSuffix(key+"="+pause.Value, "=")
				texts = append(texts, fmt.Sprintf("%s %q has %s %s", object.Type, object.Name, what, setting))
			}
		}
		value, ok := object.Annotations[pause.Annotation]
		add("annotation", pause.Annotation, value, ok)
		value, ok = object.Labels[pause.Label]
		add("label", pause.Label, value, ok)
		value, ok = f.Fields[diagnosis.FieldKey{Resource: object.GroupResource(), Name: object.Name, Field: pause.Field}]
		add("field", pause.Field, value, ok)
	}
	return texts
}

// searchEvidence describes where the diagnosis searched for the owner.
func (f view) searchEvidence(owner owners.Owner) string {
	text := evidenceSearch
	if len(owner.Unread) > 0 {
		var unread []string
		for _, source := range owner.Unread {
			unread = append(unread, string(source))
		}
		text += fmt.Sprintf("; could not read %s", strings.Join(unread, ", "))
	}
	return text
}
