// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/shell"
)

const lossDefinition = "removing the CustomResourceDefinition's own finalizer would leave its objects in storage, " +
	"where nobody can reach them"

// findDefinitions blames CustomResourceDefinitions: for a conversion webhook that does not
// answer, and for being deleted themselves.
func findDefinitions(f *Facts) []Finding {
	return append(f.findConversions(), f.findTerminatingDefinitions()...)
}

// conversionFailure is what is known of one conversion webhook.
type conversionFailure struct {
	kind, groupVersion string
	texts              []string
	isAnswered         bool // the API server has said it to us, now
	resource           string
}

func (f *Facts) findConversions() []Finding {
	failures := map[string]*conversionFailure{}
	note := func(text, resource string, isAnswered bool) {
		for _, match := range conversion.FindAllStringSubmatch(text, -1) {
			groupVersion, kind := match[1], match[2]
			group, _, _ := strings.Cut(groupVersion, "/")
			key := group + " " + kind
			if failures[key] == nil {
				failures[key] = &conversionFailure{kind: kind, groupVersion: groupVersion}
			}
			failure := failures[key]
			failure.texts = append(failure.texts, oneLine(text))
			failure.isAnswered = failure.isAnswered || isAnswered
			if failure.resource == "" {
				failure.resource = resource
			}
		}
	}
	for _, content := range f.Content {
		if content.Err != nil {
			note(content.Err.Error(), content.Type.String(), true)
		}
	}
	for _, trial := range f.Trials {
		if trial.Err != nil {
			note(trial.Err.Error(), trial.Type.String(), true)
		}
	}
	note(f.failure(corev1.NamespaceDeletionContentFailure), "", false)
	var findings []Finding
	for _, failure := range sorted(failures) {
		findings = append(findings, f.blameConversion(failure))
	}
	return findings
}

func (f *Facts) blameConversion(failure *conversionFailure) Finding {
	finding := Finding{
		Cause: CauseConversionWebhookFailing, Certainty: Proven,
		Message: fmt.Sprintf("objects of kind %s (%s) can neither be read nor deleted, since the conversion webhook of "+
			"their CustomResourceDefinition does not answer", failure.kind, failure.groupVersion),
		Evidence: failure.texts[:min(len(failure.texts), mostObjects)],
		Loss: "with spec.conversion.strategy None the objects can be deleted; they are not converted any more, so that " +
			"what another version has renamed is lost to whoever reads them meanwhile",
	}
	if !failure.isAnswered {
		finding.Certainty = Likely // It may have come back since the condition was written.
	}
	definition := f.definitionFor(failure)
	if definition == nil {
		finding.Remedies = append(finding.Remedies, "kubectl get customresourcedefinitions",
			"Bring the conversion webhook of this kind back")
		return finding
	}
	name := definition.Name
	service := conversionService(definition)
	finding.Remedies = append(finding.Remedies,
		shell.Command("kubectl get customresourcedefinition %s --output=jsonpath='{.spec.conversion}'", name))
	if service != nil {
		finding.Evidence = append(finding.Evidence, "the webhook is Service "+service.String())
		if what := f.whatOf(*service); what != "" {
			finding.Message += ": " + what
			finding.Evidence = append(finding.Evidence, what)
		}
		finding.Remedies = append(finding.Remedies,
			shell.Command("kubectl get service,endpointslices,pods --namespace=%s", service.Namespace))
	}
	if webhook := conversionWebhook(definition); webhook != nil && len(webhook.CABundle) == 0 {
		finding.Evidence = append(finding.Evidence, "spec.conversion.webhook.clientConfig of the "+
			"CustomResourceDefinition has no caBundle")
	}
	finding.Remedies = append(finding.Remedies, "Restore the webhook, in another namespace if it was in this one",
		shell.Command("kubectl patch customresourcedefinition %s --type=merge "+
			`--patch='{"spec":{"conversion":{"strategy":"None","webhook":null}}}'`, name))
	return finding.about([]Object{{Resource: string(SourceDefinitions), Name: name}})
}

// definitionFor returns the CustomResourceDefinition of a failure, nil if it was not read.
func (f *Facts) definitionFor(failure *conversionFailure) *apiextensionsv1.CustomResourceDefinition {
	group, _, _ := strings.Cut(failure.groupVersion, "/")
	for i := range f.Definitions {
		definition := &f.Definitions[i]
		if definition.Name == failure.resource ||
			definition.Spec.Group == group && definition.Spec.Names.Kind == failure.kind {
			return definition
		}
	}
	return nil
}

func conversionWebhook(definition *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.WebhookClientConfig {
	conversion := definition.Spec.Conversion
	if conversion == nil || conversion.Strategy != apiextensionsv1.WebhookConverter || conversion.Webhook == nil {
		return nil
	}
	return conversion.Webhook.ClientConfig
}

func conversionService(definition *apiextensionsv1.CustomResourceDefinition) *types.NamespacedName {
	webhook := conversionWebhook(definition)
	if webhook == nil || webhook.Service == nil {
		return nil
	}
	return &types.NamespacedName{Namespace: webhook.Service.Namespace, Name: webhook.Service.Name}
}

// findTerminatingDefinitions blames a CustomResourceDefinition only where nothing holds its
// objects: the finalizers of objects, or what refuses their deletion, hold the definition,
// and not the other way round.
func (f *Facts) findTerminatingDefinitions() []Finding {
	var findings []Finding
	for i := range f.Definitions {
		definition := &f.Definitions[i]
		if definition.DeletionTimestamp == nil || !f.isOverdue(definition.DeletionTimestamp.Time) {
			continue
		}
		left := f.itemsOf(definition.Name)
		isHeld := slices.ContainsFunc(left, func(i item) bool {
			return i.DeletionTimestamp != nil && len(i.Finalizers) > 0 || f.isDeletionRefused(i)
		})
		if len(left) == 0 || isHeld || f.isMoving(left[0].GroupResource()) {
			continue
		}
		finding := Finding{
			Cause: CauseCRDTerminating, Certainty: Likely,
			Message: fmt.Sprintf("CustomResourceDefinition %q is being deleted, and the API server does not get on with %s",
				definition.Name, describe(left)),
			Evidence: []string{noteDefinition(definition)},
			Remedies: []string{
				shell.Command("kubectl get customresourcedefinition %s --output=jsonpath='{.status.conditions}'", definition.Name),
				shell.Command("kubectl delete %s --all --namespace=%s", definition.Name, f.Namespace.Name),
			},
			Loss: lossDefinition,
		}
		condition := apihelpers.FindCRDCondition(definition, apiextensionsv1.Terminating)
		if condition != nil && condition.Reason == "InstanceDeletionFailed" {
			finding.Certainty = Proven
		}
		findings = append(findings, finding.some(left))
	}
	return findings
}

// itemsOf returns what is left of the type of a CustomResourceDefinition.
func (f *Facts) itemsOf(definition string) []item {
	return slices.DeleteFunc(f.items(), func(i item) bool { return i.Type.String() != definition })
}

// noteDefinitions says of which types of some items the CustomResourceDefinition is being
// deleted.
func (f *Facts) noteDefinitions(items []item) []string {
	var texts []string
	for i := range f.Definitions {
		definition := &f.Definitions[i]
		if definition.DeletionTimestamp != nil && slices.Contains(resourcesOf(items), definition.Name) {
			texts = append(texts, noteDefinition(definition)+"; it waits for these objects")
		}
	}
	return texts
}

func noteDefinition(definition *apiextensionsv1.CustomResourceDefinition) string {
	text := fmt.Sprintf("CustomResourceDefinition %q has deletionTimestamp %s", definition.Name,
		stamp(definition.DeletionTimestamp.Time))
	if condition := apihelpers.FindCRDCondition(definition, apiextensionsv1.Terminating); condition != nil {
		text += fmt.Sprintf(" and condition Terminating=%s, %s: %s", condition.Status, condition.Reason,
			oneLine(condition.Message))
	}
	return text
}
