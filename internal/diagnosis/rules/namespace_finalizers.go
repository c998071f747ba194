// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// namespaceFinalizerRule finds the finalizers that block an empty namespace. Until the namespace is
// empty, their owners may be waiting for the deletion of its content.
var namespaceFinalizerRule = Rule{
	Name: "namespace-finalizers", Stage: diagnosis.StageTerminating,
	Needs: append([]diagnosis.Fact{
		diagnosis.FactResourceTypes, diagnosis.FactContent, diagnosis.FactInitializers,
	}, ownerNeeds...),
	find: view.findNamespaceFinalizers,
}

// The two lists of finalizers in a Namespace.
const (
	specFinalizers     = "spec.finalizers"
	metadataFinalizers = "metadata.finalizers"
)

func (f view) findNamespaceFinalizers() []diagnosis.Finding {
	if !f.IsOverdue(f.lastStep()) || !f.isEmpty() {
		return nil
	}
	hasKubernetes := slices.Contains(f.Namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
	var findings []diagnosis.Finding
	for _, finalizer := range f.ExternalNamespaceFinalizers() {
		finding := f.namespaceFinalizerFinding(finalizer, specFinalizers, diagnosis.CauseNamespaceFinalizer)
		f.addInitializer(&finding, finalizer)
		finding.Remedies = append(finding.Remedies, diagnosis.Resolve(f.forceCommand(flagNamespaceFinalizer, finalizer)))
		finding.Certainty = diagnosis.Confirmed
		if hasKubernetes {
			finding.Certainty = diagnosis.Likely
		}
		findings = append(findings, finding)
	}
	if hasKubernetes || len(findings) > 0 {
		return findings // The owners of finalizers in metadata.finalizers may wait for these namespace finalizers.
	}
	for _, finalizer := range f.Namespace.Finalizers {
		finding := f.namespaceFinalizerFinding(finalizer, metadataFinalizers, diagnosis.CauseNamespaceMetadataFinalizer)
		finding.Remedies = append(finding.Remedies, diagnosis.Resolve(f.forceCommand(flagMetadataFinalizer, finalizer)))
		finding.Certainty = diagnosis.Confirmed
		findings = append(findings, finding)
	}
	return findings
}

func (f view) namespaceFinalizerFinding(finalizer, list string, cause diagnosis.Cause) diagnosis.Finding {
	finding := f.ownerFinding(finalizer, nil, cause)
	finding.Cause = cause
	finding.Message = fmt.Sprintf(messageNamespaceFinalizer, finalizer, list, f.Ago(f.lastStep()))
	finding.Evidence[0] = fmt.Sprintf(evidenceNamespaceFinalizers, list, strings.Join(f.finalizersIn(list), ", "),
		diagnosis.FormatTime(f.Namespace.DeletionTimestamp.Time))
	finding.Remedies = []diagnosis.Remedy{
		diagnosis.Resolve(fmt.Sprintf(remedyNamespaceFinalizer, finalizer)),
		diagnosis.Inspect(shell.Command(remedyInspectNamespace, f.Namespace.Name)),
	}
	return f.aboutNamespace(finding)
}

// addInitializer adds the initializer that a namespace finalizer belongs to. The controller of the
// initializer can run anywhere, so the finalizer's owner is not reported as missing.
func (f view) addInitializer(finding *diagnosis.Finding, finalizer string) {
	if !f.IsRead(diagnosis.SourceConfigurations) {
		finding.IsOwnerGone = false
		return
	}
	at := slices.IndexFunc(f.Initializers, func(initializer diagnosis.RegisteredInitializer) bool {
		return initializer.Finalizer == finalizer
	})
	if at < 0 {
		return
	}
	initializer := f.Initializers[at]
	finding.IsOwnerGone = false
	finding.Message += fmt.Sprintf(messageInitializerFinalizer, initializer.Name, initializer.Configuration)
	finding.Evidence = append(finding.Evidence,
		fmt.Sprintf(evidenceInitializerFinalizer, initializer.Configuration, finalizer, initializer.Name))
	finding.Remedies[0] = diagnosis.Resolve(fmt.Sprintf(remedyInitializer, initializer.Name, finalizer))
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
