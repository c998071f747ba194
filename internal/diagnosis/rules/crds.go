// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// conversionFailure describes a failing conversion webhook.
type conversionFailure struct {
	kind, groupVersion string
	evidence           []diagnosis.Evidence
	isResponse         bool // whether the API server returned the error to the diagnosis
	resource           string
}

func (f view) findConversions() []diagnosis.Finding {
	failures := map[string]*conversionFailure{}
	add := func(text, resource string, isResponse bool) {
		evidence := diagnosis.Published(diagnosis.OneLine(text))
		if isResponse {
			evidence = diagnosis.Proven(diagnosis.OneLine(text))
		}
		for _, match := range conversion.FindAllStringSubmatch(text, -1) {
			groupVersion, kind := match[1], match[2]
			group, _, _ := strings.Cut(groupVersion, "/")
			key := group + " " + kind
			if failures[key] == nil {
				failures[key] = &conversionFailure{kind: kind, groupVersion: groupVersion}
			}
			failure := failures[key]
			failure.evidence = append(failure.evidence, evidence...)
			failure.isResponse = failure.isResponse || isResponse
			if failure.resource == "" {
				failure.resource = resource
			}
		}
	}
	for _, content := range f.Content {
		if content.Err != nil {
			add(content.Err.Error(), content.Type.String(), true)
		}
	}
	for _, dryRun := range f.DryRuns {
		if dryRun.Err != nil {
			add(dryRun.Err.Error(), dryRun.Type.String(), true)
		}
	}
	add(f.ConditionMessage(corev1.NamespaceDeletionContentFailure), "", false)
	var findings []diagnosis.Finding
	for _, failure := range diagnosis.Sorted(failures) {
		findings = append(findings, f.conversionFinding(failure))
	}
	return findings
}

func (f view) conversionFinding(failure *conversionFailure) diagnosis.Finding {
	values := params{"crd": nil, "backend": nil}
	crd := f.crdFor(failure)
	if crd != nil {
		values["crd"] = []string{crd.Name}
		if service := conversionService(crd); service != nil {
			values["backend"] = []string{service.Namespace}
		}
	}
	finding := f.newFinding(diagnosis.CauseConversionWebhookFailing, diagnosis.RankProven,
		fmt.Sprintf("Objects of kind %s (%s) can be neither read nor deleted because the conversion webhook of their "+
			"CustomResourceDefinition is failing", failure.kind, failure.groupVersion), values)
	finding.Evidence = slices.Clone(failure.evidence[:min(len(failure.evidence), diagnosis.MaxObjects)])
	if !failure.isResponse {
		finding.Rank = diagnosis.RankInferred // The webhook may have recovered since then.
	}
	if crd == nil {
		finding.Remedies = []diagnosis.Remedy{
			diagnosis.Inspect("kubectl get customresourcedefinitions"),
			diagnosis.Resolve("Restore the conversion webhook of this kind"),
		}
		return finding
	}
	if service := conversionService(crd); service != nil {
		finding.Evidence = append(finding.Evidence,
			diagnosis.Proven(fmt.Sprintf("the webhook is served by Service %s", service))...)
		f.addBackendProblem(&finding, *service)
	}
	if webhook := conversionWebhook(crd); webhook != nil && len(webhook.CABundle) == 0 {
		finding.Evidence = append(finding.Evidence, diagnosis.Proven(evidenceNoCABundle)...)
	}
	return finding.WithObjects([]diagnosis.Object{{Resource: string(diagnosis.SourceCRDs), Name: crd.Name}})
}

// crdFor returns the CustomResourceDefinition of a failure, or nil if it was not read.
func (f view) crdFor(failure *conversionFailure) *apiextensionsv1.CustomResourceDefinition {
	group, _, _ := strings.Cut(failure.groupVersion, "/")
	for i := range f.CRDs {
		crd := &f.CRDs[i]
		if crd.Name == failure.resource || crd.Spec.Group == group && crd.Spec.Names.Kind == failure.kind {
			return crd
		}
	}
	return nil
}

func conversionWebhook(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.WebhookClientConfig {
	conversion := crd.Spec.Conversion
	if conversion == nil || conversion.Strategy != apiextensionsv1.WebhookConverter || conversion.Webhook == nil {
		return nil
	}
	return conversion.Webhook.ClientConfig
}

func conversionService(crd *apiextensionsv1.CustomResourceDefinition) *types.NamespacedName {
	webhook := conversionWebhook(crd)
	if webhook == nil || webhook.Service == nil {
		return nil
	}
	return &types.NamespacedName{Namespace: webhook.Service.Namespace, Name: webhook.Service.Name}
}

// findTerminatingCRDs returns findings only if nothing else blocks the objects. If an object has a
// finalizer or its deletion is denied, that is the cause, and it also blocks the
// CustomResourceDefinition.
func (f view) findTerminatingCRDs() []diagnosis.Finding {
	var findings []diagnosis.Finding
	for i := range f.CRDs {
		crd := &f.CRDs[i]
		if crd.DeletionTimestamp == nil || !f.IsOverdue(crd.DeletionTimestamp.Time) {
			continue
		}
		objects := slices.DeleteFunc(f.RemainingObjects(), func(object diagnosis.RemainingObject) bool {
			return object.Type.String() != crd.Name
		})
		isBlocked := slices.ContainsFunc(objects, func(object diagnosis.RemainingObject) bool {
			return object.DeletionTimestamp != nil && len(object.Finalizers) > 0 ||
				f.isDeletionDenied(object.GroupResource(), object.Name)
		})
		if len(objects) == 0 || isBlocked || f.IsTypeProgressing(objects[0].GroupResource()) {
			continue
		}
		finding := f.newFinding(diagnosis.CauseCRDTerminating, diagnosis.RankInferred,
			fmt.Sprintf("CustomResourceDefinition %q is being deleted, but the API server is making no progress in deleting %s",
				crd.Name, describe(objects)), params{"crd": {crd.Name}})
		finding.Evidence = diagnosis.Proven(describeCRD(crd))
		condition := apihelpers.FindCRDCondition(crd, apiextensionsv1.Terminating)
		if condition != nil && condition.Reason == "InstanceDeletionFailed" {
			finding.Rank = diagnosis.RankProven
		}
		findings = append(findings, finding.WithRemaining(objects))
	}
	return findings
}

// terminatingCRDs describes the terminating CustomResourceDefinitions of the given objects.
func (f view) terminatingCRDs(objects []diagnosis.RemainingObject) []string {
	var texts []string
	for i := range f.CRDs {
		crd := &f.CRDs[i]
		if crd.DeletionTimestamp != nil && slices.Contains(typesOf(objects), crd.Name) {
			texts = append(texts, describeCRD(crd)+evidenceCRDWaits)
		}
	}
	return texts
}

func describeCRD(crd *apiextensionsv1.CustomResourceDefinition) string {
	text := fmt.Sprintf("CustomResourceDefinition %q has deletionTimestamp %s",
		crd.Name, diagnosis.FormatTime(crd.DeletionTimestamp.Time))
	if condition := apihelpers.FindCRDCondition(crd, apiextensionsv1.Terminating); condition != nil {
		text += fmt.Sprintf(" and condition Terminating=%s, %s: %s",
			condition.Status, condition.Reason, diagnosis.OneLine(condition.Message))
	}
	return text
}
