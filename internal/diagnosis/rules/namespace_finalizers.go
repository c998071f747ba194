// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// namespaceFinalizerRule finds the finalizers that block an empty namespace. Until the namespace is
// empty, their owners may be waiting for the deletion of its content.
var namespaceFinalizerRule = Rule{
	Name: "namespace-finalizers", Stage: diagnosis.StageTerminating,
	Needs: append([]diagnosis.Fact{
		diagnosis.FactContent, diagnosis.FactInitializers, diagnosis.FactDryRuns,
	}, ownerNeeds...),
	find: view.findNamespaceFinalizers,
}

// The two lists of finalizers in a Namespace.
const (
	specFinalizers     = "spec.finalizers"
	metadataFinalizers = "metadata.finalizers"
)

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
		finding.Remedies = append(finding.Remedies,
			diagnosis.Resolve(f.forceCommand(flagNamespaceFinalizer, finalizer)))
		if hasKubernetes && finding.Rank == diagnosis.RankProven {
			finding.Rank = diagnosis.RankInferred
		}
		findings = append(findings, finding)
	}
	if hasKubernetes || len(f.ExternalNamespaceFinalizers()) > 0 {
		return findings // The owners of finalizers in metadata.finalizers may wait for these namespace finalizers.
	}
	for _, finalizer := range slices.DeleteFunc(slices.Clone(f.Namespace.Finalizers), isRejected) {
		finding := f.namespaceFinalizerFinding(finalizer, metadataFinalizers, diagnosis.CauseNamespaceMetadataFinalizer)
		finding.Remedies = append(finding.Remedies,
			diagnosis.Resolve(f.forceCommand(flagMetadataFinalizer, finalizer)))
		findings = append(findings, finding)
	}
	return findings
}

func (f view) namespaceFinalizerFinding(finalizer, list string, cause diagnosis.Cause) diagnosis.Finding {
	finding := f.ownerFinding(finalizer, nil, cause)
	finding.Cause, finding.Rank = cause, diagnosis.RankProven
	finding.Message = fmt.Sprintf(messageNamespaceFinalizer, finalizer, list, f.Ago(f.lastStep()))
	finding.Evidence = append(diagnosis.Proven(fmt.Sprintf(evidenceNamespaceFinalizers, list,
		strings.Join(f.finalizersIn(list), ", "), diagnosis.FormatTime(f.Namespace.DeletionTimestamp.Time))),
		finding.Evidence...)
	// An agent of pkg/finalizer publishes a condition with the name of its finalizer.
	if report := f.publishedCondition(finalizer); report != "" {
		finding.Rank = diagnosis.RankPublished
		finding.Message += "; " + report
		finding.Evidence = append(diagnosis.Published(quoteCondition(
			f.Condition(corev1.NamespaceConditionType(finalizer)))), finding.Evidence...)
	}
	finding.Remedies = []diagnosis.Remedy{
		diagnosis.Inspect(fmt.Sprintf(remedyNamespaceFinalizer, finalizer)),
		diagnosis.Inspect(shell.Command(remedyInspectNamespace, f.Namespace.Name)),
	}
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
		fmt.Sprintf(evidenceInitializerFinalizer, initializer.Configuration, finalizer, initializer.Name))...)
	finding.Remedies[0] = diagnosis.Resolve(fmt.Sprintf(remedyInitializer, initializer.Name, finalizer))
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
