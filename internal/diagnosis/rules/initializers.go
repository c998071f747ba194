// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

func (f view) isTurnOverdue() bool {
	return f.IsOverdue(f.turnBegan(diagnosis.PendingInitializers(f.Namespace)[0]))
}

// findInitializer finds why the first pending initializer does not act: whether any identity may
// initialize the namespace, and whether that identity is running.
func (f view) findInitializer() []diagnosis.Finding {
	if diagnosis.StateOf(f.Namespace) == diagnosis.StateFailed {
		return f.findFailed()
	}
	pending := diagnosis.PendingInitializers(f.Namespace)
	first := pending[0]
	turn := f.turnBegan(first)
	finding := diagnosis.Finding{
		Cause: diagnosis.CauseInitializerPending, Rank: diagnosis.RankInferred,
		Evidence: f.turnEvidence(first, turn), Loss: "The namespace is initialized without the objects that the " +
			"initializer creates, such as quotas, network policies or role bindings",
	}
	waits := fmt.Sprintf("Initializer %s has been first in the pending list for %s but has not removed its name",
		first, f.Ago(turn))
	report := f.publishedCondition(first + v1alpha1.ConditionInitializedSuffix)
	if first == v1alpha1.TemplatesInitializer && len(f.TemplateFailures) > 0 {
		report = strings.Join(f.TemplateFailures, "; ")
	}
	switch {
	case f.IsRead(diagnosis.SourceConfigurations) && !f.isRegistered(first):
		finding.Cause, finding.Rank = diagnosis.CauseInitializerNotRegistered, diagnosis.RankProven
		finding.Message = fmt.Sprintf(messageNotRegistered, waits)
		finding.Evidence = append(finding.Evidence, diagnosis.Proven(fmt.Sprintf(evidenceNotRegistered, first))...)
	case len(f.rejectedWrites()) > 0: // The conditions of the Namespace can be old.
		rejected := f.findRejectedWrites(f.rejectedWrites())
		rejected[0].Message = fmt.Sprintf("%s; %s", waits, rejected[0].Message)
		rejected[0].Remedies = append(rejected[0].Remedies, f.initializerRemedies(finding.Cause, pending)...)
		return rejected
	case report != "":
		finding.Cause, finding.Rank = diagnosis.CauseInitializerFailing, diagnosis.RankPublished
		finding.Message = fmt.Sprintf("%s; %s", waits, report)
	case first == v1alpha1.TemplatesInitializer: // The manager is this initializer.
		finding.Message = fmt.Sprintf(messageInitializerUnknown, waits)
	default:
		f.setIdentities(&finding, waits, first)
	}
	finding.Remedies = append(finding.Remedies, f.initializerRemedies(finding.Cause, pending)...)
	return []diagnosis.Finding{f.aboutNamespace(finding)}
}

// initializerRemedies returns the remedies of a cause that concerns the first pending initializer.
func (f view) initializerRemedies(cause diagnosis.Cause, pending []string) []diagnosis.Remedy {
	var remedies []diagnosis.Remedy
	if pending[0] == v1alpha1.TemplatesInitializer {
		remedies = append(f.templateRemedies(), f.remediesFor(cause, params{paramInitializer: nil})...)
	} else {
		remedies = f.remediesFor(cause, params{paramInitializer: pending[:1]})
	}
	return append(remedies, diagnosis.ResolveWith("To use the namespace without the initializer, an administrator can "+
		"remove it from the pending list", f.skipCommand(pending)))
}

// templateRemedies returns commands that show the progress of the manager as the initializer of templates.
func (f view) templateRemedies() []diagnosis.Remedy {
	names := initialization.SplitNames(f.Namespace.Annotations[v1alpha1.AnnotationSelectedTemplates])
	remedies := []diagnosis.Remedy{diagnosis.Resolve("Resolve the failures of the templates; if there are none, check " +
		"that nslifecycle-controller-manager is running, and check its log")}
	for _, name := range names[:min(len(names), diagnosis.MaxObjects)] {
		remedies = append(remedies, diagnosis.Inspect(shell.Command("kubectl nslifecycle template status %s", name)))
	}
	return remedies
}

// rejectedWrites returns the rejected writes of the operator to the Namespace since its creation or, if it is being
// deleted, since the last progress of the deletion.
func (f view) rejectedWrites() []diagnosis.Report {
	since := f.Namespace.CreationTimestamp.Time
	if f.Namespace.DeletionTimestamp != nil {
		since = f.lastStep()
	}
	return slices.DeleteFunc(slices.Clone(f.RejectedWrites), func(write diagnosis.Report) bool {
		return write.At.Before(since)
	})
}

// findRejectedWrites returns a finding about rejected writes of the operator to the Namespace.
func (f view) findRejectedWrites(writes []diagnosis.Report) []diagnosis.Finding {
	if len(writes) == 0 {
		return nil
	}
	return []diagnosis.Finding{f.aboutNamespace(diagnosis.Finding{
		Cause: diagnosis.CauseAdmissionRejected, Rank: diagnosis.RankPublished,
		Message: fmt.Sprintf("the API server rejects a write of the operator to the Namespace: %s",
			diagnosis.OneLine(writes[0].Text)),
		Evidence: diagnosis.Published(quoteReports(writes)...),
		Remedies: []diagnosis.Remedy{diagnosis.Resolve(remedyWriteRejected)},
		Loss:     "Without these writes, the operator can neither continue nor report its progress",
	})}
}

// findFailed quotes as evidence why the initialization failed and, from the condition Ready, why the operator does not
// delete the namespace. The message omits both reasons, because the conditions of the Namespace already contain them.
func (f view) findFailed() []diagnosis.Finding {
	var texts []string
	for _, conditionType := range []corev1.NamespaceConditionType{
		v1alpha1.ConditionInitializing, v1alpha1.ConditionReady,
	} {
		if condition := f.Condition(conditionType); condition != nil && condition.Reason == v1alpha1.ReasonFailed {
			texts = append(texts, quoteCondition(condition))
		}
	}
	if len(texts) == 0 {
		failure := initialization.FailureText(initialization.ParseState(f.Namespace).Failure)
		texts = []string{v1alpha1.AnnotationInitializationResult + ": " + diagnosis.OneLine(failure)}
	}
	return []diagnosis.Finding{f.aboutNamespace(diagnosis.Finding{
		Cause: diagnosis.CauseInitializerFailing, Rank: diagnosis.RankPublished,
		Message: messageInitializationFailed, Evidence: diagnosis.Published(texts...),
		Remedies: []diagnosis.Remedy{
			diagnosis.Inspect(shell.Command("kubectl get namespace %s --output=yaml", f.Namespace.Name)),
			diagnosis.ResolveWith("Correct the cause, then delete the namespace and create it again",
				shell.Command("kubectl nslifecycle delete %s", f.Namespace.Name)),
		},
		Loss: "All objects in the namespace are deleted",
	})}
}

// publishedCondition returns what a controller published in a condition of the Namespace about a task
// that is not complete, or "".
func (f view) publishedCondition(conditionType string) string {
	condition := f.Condition(corev1.NamespaceConditionType(conditionType))
	if condition == nil || condition.Status == corev1.ConditionTrue || condition.Message == "" ||
		condition.Reason == v1alpha1.ReasonPending {
		return ""
	}
	return fmt.Sprintf("condition %s=%s, %s: %s", condition.Type, condition.Status, condition.Reason,
		diagnosis.OneLine(condition.Message))
}

func (f view) isRegistered(name string) bool {
	isListed := slices.ContainsFunc(f.Initializers, func(initializer diagnosis.RegisteredInitializer) bool {
		return initializer.Name == name
	})
	return isListed || name == v1alpha1.TemplatesInitializer
}

// skipCommand returns the command that removes the first initializer from the pending list. The
// command requires the "initialize" verb.
func (f view) skipCommand(pending []string) string {
	const command = "kubectl annotate namespace %s --overwrite " + v1alpha1.AnnotationPendingInitializers
	if len(pending) == 1 {
		return shell.Command(command+"=", f.Namespace.Name)
	}
	return shell.Command(command+"=%s", f.Namespace.Name, strings.Join(pending[1:], ","))
}

// setIdentities sets the cause and the message of a finding based on the identities that can be the
// initializer.
func (f view) setIdentities(finding *diagnosis.Finding, waits, name string) {
	identities, isExact := owners.InitializerIdentities(f.Facts, name)
	count := map[owners.Status]int{}
	for _, identity := range identities {
		count[identity.Status]++
		finding.Evidence = append(finding.Evidence, diagnosis.Inferred(identity.Text)...)
	}
	canReadRoles := f.IsRead(diagnosis.SourceClusterRoles, diagnosis.SourceClusterRoleBindings)
	canRead := canReadRoles && f.IsRead(diagnosis.SourceServiceAccounts, diagnosis.SourcePods)
	switch {
	case !canReadRoles && !isExact:
		finding.Message = fmt.Sprintf(messageInitializerSubjects, waits)
	case len(identities) == 0 && owners.HasWildcardHolder(f.Facts):
		finding.Message = fmt.Sprintf(messageOnlyWildcards, waits)
	case len(identities) == 0:
		finding.Cause = diagnosis.CauseInitializerNotRunning
		finding.Message = fmt.Sprintf(messageNoInitializerSubject, waits)
		finding.Remedies = []diagnosis.Remedy{diagnosis.Resolve("Install the controller of the initializer, with a " +
			"ClusterRoleBinding to a ClusterRole that grants the initialize verb on namespaces")}
	case count[owners.StatusRunning] == len(identities):
		finding.Cause = diagnosis.CauseInitializerSlow
		finding.Message = fmt.Sprintf(messageInitializerRunning, waits) + f.exactIdentity(identities[0], isExact)
	case count[owners.StatusRunning] > 0, count[owners.StatusUnknown] > 0, !canRead:
		finding.Message = fmt.Sprintf(messageInitializerUnknown, waits)
	default:
		finding.Cause = diagnosis.CauseInitializerNotRunning
		finding.Message = fmt.Sprintf(messageInitializerNotRunning, waits) + f.exactIdentity(identities[0], isExact)
		if isExact && count[owners.StatusMissing] == len(identities) {
			finding.Rank = diagnosis.RankProven
		}
	}
}

// exactIdentity returns the identity for the end of a message if the initializer is registered with it. All other
// identities are only inferred, and part of the evidence.
func (f view) exactIdentity(identity owners.Identity, isExact bool) string {
	if !isExact {
		return ""
	}
	return f.Detail(identity.Text)
}

// turnBegan returns when an initializer became the first in the pending list, or when its state last
// changed, whichever is later.
func (f view) turnBegan(name string) time.Time {
	began := f.Namespace.CreationTimestamp.Time
	later := func(t time.Time) {
		if t.After(began) && !t.After(f.Now) {
			began = t
		}
	}
	for _, condition := range f.Namespace.Status.Conditions {
		isOwn := string(condition.Type) == name+v1alpha1.ConditionInitializedSuffix
		isDone := strings.HasSuffix(string(condition.Type), v1alpha1.ConditionInitializedSuffix) &&
			(condition.Status == corev1.ConditionTrue || initialization.IsSkipReason(condition.Reason))
		if isOwn || isDone {
			later(condition.LastTransitionTime.Time)
		}
	}
	for _, entry := range f.Namespace.ManagedFields {
		// The manager also writes the status, but is not an initializer.
		if entry.Time != nil && entry.Subresource == "" {
			later(entry.Time.Time)
		}
	}
	return began
}

// turnEvidence quotes the condition and the annotation about an initializer's turn, and describes the last change of
// the Namespace.
func (f view) turnEvidence(name string, turn time.Time) []diagnosis.Evidence {
	var evidence []diagnosis.Evidence
	for i := range f.Namespace.Status.Conditions {
		condition := &f.Namespace.Status.Conditions[i]
		if string(condition.Type) == name+v1alpha1.ConditionInitializedSuffix {
			evidence = append(evidence, diagnosis.Published(quoteCondition(condition))...)
		}
	}
	// An initializer that exceeds its timeout is skipped or fails the initialization.
	turnStart, hasTimeout := strings.CutPrefix(f.Namespace.Annotations[v1alpha1.AnnotationTurnStartedAt], name+" ")
	if hasTimeout && len(turnStart) <= len(time.RFC3339) {
		evidence = append(evidence,
			diagnosis.Published(fmt.Sprintf("annotation %s: a deadline counts from %q",
				v1alpha1.AnnotationTurnStartedAt, turnStart))...)
	}
	evidence = append(evidence, diagnosis.Proven(fmt.Sprintf("pending: %s; %s has been first in the pending list since %s",
		strings.Join(diagnosis.PendingInitializers(f.Namespace), ", "), name, diagnosis.FormatTime(turn)))...)
	var last time.Time
	manager := ""
	for _, entry := range f.Namespace.ManagedFields {
		if entry.Time != nil && entry.Subresource == "" && !entry.Time.Time.Before(last) {
			last, manager = entry.Time.Time, entry.Manager
		}
	}
	if manager != "" {
		evidence = append(evidence,
			diagnosis.Proven(fmt.Sprintf("the Namespace was last changed at %s, by %q", diagnosis.FormatTime(last), manager))...)
	}
	return evidence
}
