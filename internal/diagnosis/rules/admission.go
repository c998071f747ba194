// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// findAdmission finds webhooks and policies that deny the deletion of objects, the removal of a finalizer or writes to
// the Namespace itself, and validation errors that prevent the removal of a finalizer.
func (f view) findAdmission() []diagnosis.Finding {
	var findings []diagnosis.Finding
	texts := f.Rejections()
	for _, write := range f.rejectedWrites() {
		texts = append(texts, write.Text)
	}
	for _, name := range denial.FailingWebhooks(texts...) {
		findings = append(findings, f.webhookFailingFinding(f.rejectionBy(denial.FailingWebhooks, name)))
	}
	for _, name := range denial.DenyingWebhooks(texts...) {
		findings = append(findings, f.findWebhookDenies(f.rejectionBy(denial.DenyingWebhooks, name))...)
	}
	for _, name := range denial.DenyingPolicies(texts...) {
		findings = append(findings, f.findPolicyDenies(f.rejectionBy(denial.DenyingPolicies, name))...)
	}
	findings = append(findings, f.findServerDenies()...)
	return append(findings, f.findInvalid()...)
}

// rejection contains the requests that a webhook or policy rejected.
type rejection struct {
	name    string
	dryRuns []diagnosis.DryRun
	// quotes are conditions of the Namespace, and Events of the operator about it, with the same error, which the
	// namespace controller also received.
	quotes []diagnosis.Evidence
	// isOfWrite reports whether one of the quotes is an Event about a write of the operator to the Namespace.
	isOfWrite bool
	// isContradicted reports whether a dry run succeeded although the same request failed according to
	// the condition.
	isContradicted bool
}

// rank returns RankProven if the API server returned the error to the diagnosis. Otherwise, only the
// namespace controller reported it.
func (r rejection) rank() diagnosis.Rank {
	if len(r.dryRuns) == 0 {
		return diagnosis.RankPublished
	}
	return diagnosis.RankProven
}

func (f view) rejectionBy(parse func(texts ...string) []string, name string) rejection {
	result := rejection{name: name}
	for _, dryRun := range f.DryRuns {
		if dryRun.Err != nil && slices.Contains(parse(dryRun.Err.Error()), name) {
			result.dryRuns = append(result.dryRuns, dryRun)
		}
	}
	text := f.ConditionMessage(corev1.NamespaceDeletionContentFailure)
	if slices.Contains(parse(text), name) {
		result.quotes = f.quoteConditions(corev1.NamespaceDeletionContentFailure)
	} else {
		text = ""
	}
	result.addWrites(slices.DeleteFunc(f.rejectedWrites(), func(write diagnosis.Report) bool {
		return !slices.Contains(parse(write.Text), name)
	}))
	result.isContradicted = len(result.dryRuns) == 0 &&
		slices.ContainsFunc(f.DryRuns, func(dryRun diagnosis.DryRun) bool {
			return dryRun.Verb == diagnosis.VerbDelete && dryRun.Err == nil && strings.Contains(text, `"`+dryRun.Name+`"`)
		})
	return result
}

// addWrites quotes rejected writes of the operator.
func (r *rejection) addWrites(writes []diagnosis.Report) {
	r.isOfWrite = len(writes) > 0
	r.quotes = append(r.quotes, diagnosis.Published(quoteReports(writes)...)...)
}

// isDeletionDenied reports whether admission control denied the dry run of the deletion of an object.
func (f view) isDeletionDenied(resource schema.GroupResource, name string) bool {
	return slices.ContainsFunc(f.DryRuns, func(dryRun diagnosis.DryRun) bool {
		return dryRun.Verb == diagnosis.VerbDelete && dryRun.Type.GroupResource() == resource &&
			dryRun.Name == name && dryRun.Err != nil && isDenied(dryRun.Err)
	})
}

// isDeletionDeniedToAll reports whether a policy that does not depend on the user denied the dry run of the deletion of
// an object.
func (f view) isDeletionDeniedToAll(object diagnosis.RemainingObject) bool {
	return slices.ContainsFunc(f.DryRuns, func(dryRun diagnosis.DryRun) bool {
		return dryRun.Verb == diagnosis.VerbDelete && dryRun.Type.GroupResource() == object.GroupResource() &&
			dryRun.Name == object.Name && dryRun.Err != nil &&
			slices.ContainsFunc(denial.DenyingPolicies(dryRun.Err.Error()), func(name string) bool {
				return slices.ContainsFunc(f.Policies, func(policy diagnosis.Policy) bool {
					return policy.Name == name && !policy.DependsOnUser
				})
			})
	})
}

// isRemovalRejected reports whether the API server rejects the removal of a finalizer from an object of a type.
func (f view) isRemovalRejected(resource schema.GroupResource, finalizer string) bool {
	return slices.ContainsFunc(f.DryRuns, func(dryRun diagnosis.DryRun) bool {
		return dryRun.Finalizer != "" && dryRun.Finalizer == finalizer && dryRun.Err != nil &&
			dryRun.Type.GroupResource() == resource && (isInvalid(dryRun.Err) || isDenied(dryRun.Err))
	})
}

// isCorroborated reports whether there is other evidence for a rejection that can depend on the user:
// the namespace controller also received it, or the deletion exceeds the progress deadline.
func (f view) isCorroborated(r rejection) bool {
	return len(r.quotes) > 0 || f.IsOverdue(f.Namespace.DeletionTimestamp.Time)
}

// webhookFailingFinding returns the finding about a webhook that the API server cannot call.
func (f view) webhookFailingFinding(r rejection) diagnosis.Finding {
	problem := describeConnectionProblem(diagnosis.TextsOf(r.evidence()))
	finding := f.newFinding(diagnosis.CauseAdmissionWebhookFailing, r.rank(),
		fmt.Sprintf("Admission webhook %q %s, so %s", r.name, problem, r.effect()), nil)
	finding.Evidence = r.evidence()
	if r.isContradicted {
		finding.Rank = diagnosis.RankInferred
	}
	f.addWebhook(&finding, r.name)
	return finding.WithObjects(r.objects(f.Namespace.Name))
}

// findWebhookDenies finds rejections by webhooks. A webhook receives the name of the user, so it can
// deny a request by the diagnosis and allow the same request by the namespace controller.
func (f view) findWebhookDenies(r rejection) []diagnosis.Finding {
	if !f.isCorroborated(r) {
		return nil
	}
	finding := f.newFinding(diagnosis.CauseAdmissionRejected, diagnosis.RankInferred,
		fmt.Sprintf("Admission webhook %q denies requests, so %s", r.name, r.effect()), params{"denier": {"webhook"}})
	finding.Evidence = r.evidence()
	if len(r.quotes) > 0 && !r.isContradicted {
		finding.Rank = r.rank()
	}
	f.addWebhook(&finding, r.name)
	finding.Remedies = append(r.writeRemedies(), finding.Remedies...)
	return []diagnosis.Finding{finding.WithObjects(r.objects(f.Namespace.Name))}
}

func (f view) findPolicyDenies(r rejection) []diagnosis.Finding {
	at := slices.IndexFunc(f.Policies, func(policy diagnosis.Policy) bool { return policy.Name == r.name })
	dependsOnUser := at < 0 || f.Policies[at].DependsOnUser
	if len(r.quotes) == 0 && (at >= 0 && f.Policies[at].IsGate || dependsOnUser && !f.isCorroborated(r)) {
		return nil
	}
	finding := f.newFinding(diagnosis.CauseAdmissionRejected, r.rank(),
		fmt.Sprintf("ValidatingAdmissionPolicy %q denies requests, so %s", r.name, r.effect()), params{"denier": {"policy"}})
	finding.Evidence = r.evidence()
	finding.Remedies = append(r.writeRemedies(), r.policyRemedies(finding.Remedies)...)
	if r.isContradicted || len(r.quotes) == 0 && dependsOnUser {
		finding.Rank = diagnosis.RankInferred
	}
	return []diagnosis.Finding{finding.WithObjects(r.objects(f.Namespace.Name))}
}

// findServerDenies finds rejections by admission plugins of the API server itself, and all rejected writes of the
// operator that name neither a webhook nor a policy.
func (f view) findServerDenies() (findings []diagnosis.Finding) {
	var denied rejection
	for _, dryRun := range f.DryRuns {
		if dryRun.Err != nil && isDenied(dryRun.Err) && !denial.IsFromAdmission(dryRun.Err.Error()) {
			denied.dryRuns = append(denied.dryRuns, dryRun)
		}
	}
	writes := slices.DeleteFunc(f.rejectedWrites(), func(write diagnosis.Report) bool {
		return denial.IsFromAdmission(write.Text)
	})
	if slices.ContainsFunc(denied.dryRuns, func(dryRun diagnosis.DryRun) bool { return dryRun.IsOfNamespace() }) {
		denied.addWrites(writes)
	} else {
		findings = f.findRejectedWrites(writes)
	}
	if len(denied.dryRuns) == 0 || !f.isCorroborated(denied) {
		return findings
	}
	finding := f.newFinding(diagnosis.CauseAdmissionRejected, diagnosis.RankInferred,
		fmt.Sprintf(messageServerDenies, denied.effect()), params{"denier": nil})
	finding.Evidence = denied.evidence()
	finding.Remedies = append(denied.writeRemedies(), diagnosis.Resolve("Resolve the problem that the error reports"))
	if denied.isOfWrite {
		finding.Rank = diagnosis.RankPublished
	}
	return append(findings, finding.WithObjects(denied.objects(f.Namespace.Name)))
}

// findInvalid finds objects that fail validation, for example because their schema became stricter.
func (f view) findInvalid() []diagnosis.Finding {
	byType := map[string]rejection{}
	for _, dryRun := range f.DryRuns {
		if dryRun.Finalizer != "" && dryRun.Err != nil && isInvalid(dryRun.Err) {
			r := byType[dryRun.Type.String()]
			r.dryRuns = append(r.dryRuns, dryRun)
			byType[dryRun.Type.String()] = r
		}
	}
	var findings []diagnosis.Finding
	for resource, r := range diagnosis.Sorted(byType) {
		first := r.dryRuns[0]
		finding := f.newFinding(diagnosis.CauseFinalizerRemovalInvalid, diagnosis.RankProven,
			fmt.Sprintf("Finalizer %s cannot be removed from %s %q because the object is invalid",
				first.Finalizer, resource, first.Name),
			params{"type": {resource}, "name": {first.Name}})
		finding.Finalizer, finding.Evidence = r.finalizer(), r.evidence()
		findings = append(findings, finding.WithObjects(r.objects(f.Namespace.Name)))
	}
	return findings
}

// addWebhook adds the configuration that registers a webhook, and the problem of the webhook's Service,
// to a finding.
func (f view) addWebhook(finding *diagnosis.Finding, name string) {
	isFailing := finding.Cause == diagnosis.CauseAdmissionWebhookFailing
	var inspect []diagnosis.Remedy
	for _, webhook := range f.Webhooks {
		if webhook.Name != name {
			continue
		}
		if webhook.DependsOnUser && isFailing && !finding.HasEvidence(diagnosis.RankPublished) {
			finding.Rank = diagnosis.RankInferred
		}
		kind := kindOf(webhook.Resource)
		inspect = append(inspect,
			diagnosis.Inspect(shell.Command("kubectl get %s %s --output=yaml", kind, webhook.Configuration)))
		if isFailing {
			finding.Remedies = append(finding.Remedies, diagnosis.ResolveWith(
				"If the webhook was uninstalled permanently, delete its configuration with all its webhooks",
				shell.Command("kubectl delete %s %s", kind, webhook.Configuration)))
		} else {
			finding.Remedies = append(finding.Remedies, diagnosis.ResolveWith(
				"Or exclude this namespace with the webhook's namespaceSelector",
				shell.Command("kubectl edit %s %s", kind, webhook.Configuration)))
		}
		if webhook.Service == nil {
			finding.Evidence = append(finding.Evidence, diagnosis.Proven(
				fmt.Sprintf("%s %q calls %s", webhook.Resource, webhook.Configuration, webhook.URL))...)
			continue
		}
		finding.Evidence = append(finding.Evidence, diagnosis.Proven(
			fmt.Sprintf("%s %q calls Service %s", webhook.Resource, webhook.Configuration, webhook.Service))...)
		if isFailing && f.addBackendProblem(finding, *webhook.Service) && finding.Rank == diagnosis.RankPublished {
			finding.Rank = diagnosis.RankProven // The API server confirms what the namespace controller reported.
		}
		inspect = append(inspect, diagnosis.Inspect(shell.Command(
			"kubectl get service,endpointslices,pods --namespace=%s", webhook.Service.Namespace)))
	}
	finding.Remedies = append(inspect, finding.Remedies...)
}

// kindOf returns the name of a resource type of the API server as users write it in commands.
func kindOf(resource string) string {
	plural, _, _ := strings.Cut(resource, ".")
	return strings.TrimSuffix(plural, "s")
}

// policyRemedies adds the remedies for a ValidatingAdmissionPolicy. The errors name its binding.
func (r rejection) policyRemedies(resolve []diagnosis.Remedy) []diagnosis.Remedy {
	remedies := []diagnosis.Remedy{diagnosis.Inspect(shell.Command(
		"kubectl get validatingadmissionpolicy %s --output=yaml", r.name))}
	for _, binding := range denial.DenyingBindings(r.name, diagnosis.TextsOf(r.evidence())...) {
		remedies = append(remedies, diagnosis.Inspect(shell.Command(
			"kubectl get validatingadmissionpolicybinding %s --output=yaml", binding)))
		resolve = append(resolve,
			diagnosis.ResolveWith("Or exclude this namespace with the binding's namespaceSelector",
				shell.Command("kubectl edit validatingadmissionpolicybinding %s", binding)),
			diagnosis.ResolveWith("If the policy is no longer needed, delete its binding",
				shell.Command("kubectl delete validatingadmissionpolicybinding %s", binding)))
	}
	return append(remedies, resolve...)
}

// writeRemedies returns the remedy for rejected writes of the operator to the Namespace.
func (r rejection) writeRemedies() []diagnosis.Remedy {
	if !r.isOfWrite {
		return nil
	}
	return []diagnosis.Remedy{diagnosis.Resolve(remedyWriteRejected)}
}

// effect describes what the rejection prevents.
func (r rejection) effect() string {
	switch {
	case len(r.dryRuns) == 0 && r.isOfWrite:
		return rejectedWrite
	case len(r.dryRuns) == 0:
		return "the content of the namespace cannot be deleted"
	}
	first := r.dryRuns[0]
	if at := slices.IndexFunc(r.dryRuns, func(dryRun diagnosis.DryRun) bool {
		return !dryRun.IsOfNamespace() || dryRun.Finalizer != ""
	}); at > 0 {
		first = r.dryRuns[at] // Without conditions, a namespace can still be deleted.
	}
	switch {
	case first.Finalizer != "":
		return fmt.Sprintf("finalizer %s cannot be removed from %s %q", first.Finalizer, first.Type, first.Name)
	case first.IsOfNamespace():
		return fmt.Sprintf(rejectedStatus, first.Type, first.Name)
	case len(r.dryRuns) == 1:
		return fmt.Sprintf("%s %q cannot be deleted", first.Type, first.Name)
	}
	return fmt.Sprintf("%s %q and other objects cannot be deleted", first.Type, first.Name)
}

// evidence returns the errors returned to the dry runs and to the namespace controller.
func (r rejection) evidence() []diagnosis.Evidence {
	var texts []string
	for _, dryRun := range r.dryRuns {
		text := diagnosis.OneLine(dryRun.Err.Error())
		switch {
		case dryRun.Finalizer != "":
			text = fmt.Sprintf("dry run of the removal of finalizer %s from %s %q: %s",
				dryRun.Finalizer, dryRun.Type, dryRun.Name, text)
		case dryRun.IsOfNamespace():
			text = fmt.Sprintf(evidenceDryRunStatus, dryRun.Type, dryRun.Name, text)
		default:
			text = fmt.Sprintf(evidenceDryRunDelete, dryRun.Type, dryRun.Name, text)
		}
		texts = append(texts, text)
	}
	return append(diagnosis.Proven(texts[:min(len(texts), diagnosis.MaxObjects)]...), r.quotes...)
}

// finalizer returns the finalizer that cannot be removed, or "" if there is more than one.
func (r rejection) finalizer() string {
	first := r.dryRuns[0].Finalizer
	if slices.ContainsFunc(r.dryRuns, func(dryRun diagnosis.DryRun) bool { return dryRun.Finalizer != first }) {
		return ""
	}
	return first
}

func (r rejection) objects(namespace string) []diagnosis.Object {
	var objects []diagnosis.Object
	for _, dryRun := range r.dryRuns {
		object := diagnosis.Object{Resource: dryRun.Type.String(), Namespace: namespace, Name: dryRun.Name}
		if dryRun.IsOfNamespace() {
			object.Namespace = ""
		}
		objects = append(objects, object)
	}
	if r.isOfWrite {
		objects = append(objects, diagnosis.Object{Resource: diagnosis.NamespaceType.String(), Name: namespace})
	}
	return objects
}
