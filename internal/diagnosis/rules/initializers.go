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
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// initializerRule finds why the first pending initializer does not act: whether any identity may
// initialize the namespace, and whether that identity is running.
var initializerRule = Rule{
	Name: "initializers", Stage: diagnosis.StageInitializing,
	Needs: []diagnosis.Fact{
		diagnosis.FactClusterRoles, diagnosis.FactClusterRoleBindings, diagnosis.FactInitializers,
		diagnosis.FactInitializerPods,
	},
	applies: func(f view) bool {
		return f.IsOverdue(f.turnBegan(diagnosis.PendingInitializers(f.Namespace)[0]))
	},
	find: view.findInitializer,
}

func (f view) findInitializer() []diagnosis.Finding {
	pending := diagnosis.PendingInitializers(f.Namespace)
	first := pending[0]
	turn := f.turnBegan(first)
	finding := diagnosis.Finding{
		Cause: diagnosis.CauseInitializerSlow, Certainty: diagnosis.Likely,
		Evidence: f.turnEvidence(first, turn),
		Remedies: []diagnosis.Remedy{
			diagnosis.Resolve(fmt.Sprintf(remedyStartInitializer, first)), diagnosis.Inspect(remedyListConfigurations),
			diagnosis.ResolveWith(remedySkip, f.skipCommand(pending)),
		},
		Loss: lossInitializer,
	}
	waits := fmt.Sprintf(messageTurn, first, f.Ago(turn))
	identities := owners.InitializerIdentities(f.Facts)
	for _, identity := range identities {
		finding.Evidence = append(finding.Evidence, identity.Text)
	}
	f.setIdentities(&finding, waits, identities)
	if f.IsRead(diagnosis.SourceConfigurations) && !f.isRegistered(first) {
		finding.Cause, finding.Certainty = diagnosis.CauseInitializerUnregistered, diagnosis.Confirmed
		finding.Message = fmt.Sprintf(messageUnregistered, waits)
		finding.Evidence = append(finding.Evidence, fmt.Sprintf(evidenceUnregistered, first))
	}
	return []diagnosis.Finding{f.aboutNamespace(finding)}
}

func (f view) isRegistered(name string) bool {
	return slices.ContainsFunc(f.Initializers, func(initializer diagnosis.RegisteredInitializer) bool {
		return initializer.Name == name
	})
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

// setIdentities sets the cause and the message of a finding based on the identities that may
// initialize the namespace.
func (f view) setIdentities(finding *diagnosis.Finding, waits string, identities []owners.Identity) {
	canRead := f.IsRead(diagnosis.SourceClusterRoles, diagnosis.SourceClusterRoleBindings,
		diagnosis.SourceServiceAccounts, diagnosis.SourcePods)
	with := func(status owners.Status) int {
		return slices.IndexFunc(identities, func(identity owners.Identity) bool { return identity.Status == status })
	}
	switch running := with(owners.StatusRunning); {
	case !f.IsRead(diagnosis.SourceClusterRoles, diagnosis.SourceClusterRoleBindings):
		finding.Message = fmt.Sprintf(messageInitializerSubjects, waits)
	case len(identities) == 0:
		finding.Cause, finding.Certainty = diagnosis.CauseInitializerNotRunning, diagnosis.Confirmed
		finding.Message = fmt.Sprintf(messageNoInitializerSubject, waits)
		finding.Remedies = append([]diagnosis.Remedy{diagnosis.Resolve(remedyInstallInitializer)}, finding.Remedies...)
	case running >= 0:
		finding.Message = fmt.Sprintf(messageInitializerRunning, waits) + f.Detail(identities[running].Text)
	case with(owners.StatusUnknown) >= 0 || !canRead:
		finding.Message = fmt.Sprintf(messageInitializerUnknown, waits)
	default:
		finding.Cause, finding.Certainty = diagnosis.CauseInitializerNotRunning, diagnosis.Confirmed
		finding.Message = fmt.Sprintf(messageInitializerNotRunning, waits) + f.Detail(identities[0].Text)
		if with(owners.StatusNotRunning) >= 0 {
			// An initializer outside the cluster may use the ServiceAccount.
			finding.Certainty = diagnosis.Likely
		}
	}
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
			condition.Status == corev1.ConditionTrue
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

// turnEvidence quotes the conditions about an initializer's turn, and describes the last change of
// the Namespace.
func (f view) turnEvidence(name string, turn time.Time) []string {
	texts := []string{fmt.Sprintf(evidenceTurn,
		strings.Join(diagnosis.PendingInitializers(f.Namespace), ", "), name, diagnosis.FormatTime(turn))}
	for i := range f.Namespace.Status.Conditions {
		condition := &f.Namespace.Status.Conditions[i]
		// An initializer that exceeds its timeout is skipped or fails the initialization.
		hasTimeout := condition.Type == v1alpha1.ConditionInitializerTurn && condition.Status == corev1.ConditionTrue
		if string(condition.Type) == name+v1alpha1.ConditionInitializedSuffix || hasTimeout {
			texts = append(texts, quoteCondition(condition))
		}
	}
	var last time.Time
	manager := ""
	for _, entry := range f.Namespace.ManagedFields {
		if entry.Time != nil && entry.Subresource == "" && !entry.Time.Time.Before(last) {
			last, manager = entry.Time.Time, entry.Manager
		}
	}
	if manager != "" {
		texts = append(texts, fmt.Sprintf(evidenceLastChange, diagnosis.FormatTime(last), manager))
	}
	return texts
}
