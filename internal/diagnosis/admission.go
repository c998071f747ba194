// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// findAdmission blames webhooks and policies that refuse the deletion of objects, or the
// removal of a finalizer, and validation that refuses the latter.
func findAdmission(f *Facts) []Finding {
	var findings []Finding
	for _, name := range namesIn(webhookFailing, f.refusals()...) {
		findings = append(findings, f.blameDeadWebhook(f.rejection(webhookFailing, name)))
	}
	for _, name := range namesIn(webhookDenied, f.refusals()...) {
		findings = append(findings, f.blameWebhook(f.rejection(webhookDenied, name))...)
	}
	for _, name := range namesIn(policyDenied, f.refusals()...) {
		findings = append(findings, f.blamePolicy(f.rejection(policyDenied, name))...)
	}
	findings = append(findings, f.findOtherRefusals()...)
	return append(findings, f.findInvalid()...)
}

// rejection is everything that was refused in one name.
type rejection struct {
	name   string
	trials []Trial
	// quotes are the conditions of the Namespace which say the same: the namespace
	// controller was refused, too.
	quotes []string
	// isContradicted says that the API server would do what the condition says is refused.
	isContradicted bool
}

func (f *Facts) rejection(pattern *regexp.Regexp, name string) rejection {
	result := rejection{name: name}
	for _, trial := range f.Trials {
		if trial.Err != nil && slices.Contains(namesIn(pattern, trial.Err.Error()), name) {
			result.trials = append(result.trials, trial)
		}
	}
	text := f.failure(corev1.NamespaceDeletionContentFailure)
	if slices.Contains(namesIn(pattern, text), name) {
		result.quotes = f.quotes(corev1.NamespaceDeletionContentFailure)
	}
	result.isContradicted = len(result.trials) == 0 && slices.ContainsFunc(f.Trials, func(trial Trial) bool {
		return trial.Verb == VerbDelete && trial.Err == nil && strings.Contains(text, `"`+trial.Name+`"`)
	})
	return result
}

// isRefusal tells whether admission, and not the right of who asks, is why something was
// refused.
func (f *Facts) isRefusal(err error) bool {
	return isAdmission(err.Error()) || apierrors.IsForbidden(err) && !isMissingRight(err)
}

// isDeletionRefused tells whether the deletion of an object was tried and refused.
func (f *Facts) isDeletionRefused(i item) bool {
	return slices.ContainsFunc(f.Trials, func(trial Trial) bool {
		return trial.Verb == VerbDelete && trial.Type.GroupResource() == i.GroupResource() &&
			trial.Name == i.Name && trial.Err != nil && f.isRefusal(trial.Err)
	})
}

// isCorroborated tells whether a refusal that may depend on who asks may be blamed: the
// namespace controller was refused as well, or should long have been done.
func (f *Facts) isCorroborated(r rejection) bool {
	return len(r.quotes) > 0 || f.isOverdue(f.Namespace.DeletionTimestamp.Time)
}

func (f *Facts) blameDeadWebhook(r rejection) Finding {
	finding := Finding{
		Cause: CauseAdmissionWebhookFailing, Certainty: Proven,
		Message:  fmt.Sprintf("admission webhook %q does not answer, and without it %s", r.name, f.whatIsRefused(r)),
		Evidence: r.evidence(),
		Loss: "without the webhook nothing checks what it was there to check, in all namespaces that it was asked " +
			"about",
	}
	if r.isContradicted {
		finding.Certainty = Likely
	}
	f.addWebhook(&finding, r.name)
	return finding.about(append(finding.Objects, r.objects(f.Namespace.Name)...))
}

// blameWebhook: a webhook sees who asks, so that what it says to us it may not say to the
// namespace controller.
func (f *Facts) blameWebhook(r rejection) []Finding {
	if !f.isCorroborated(r) {
		return nil
	}
	finding := Finding{
		Cause: CauseAdmissionRefused, Certainty: Likely,
		Message:  fmt.Sprintf("admission webhook %q refuses: %s", r.name, f.whatIsRefused(r)),
		Evidence: r.evidence(),
		Loss:     "what the webhook protects by refusing",
	}
	if len(r.quotes) > 0 && !r.isContradicted {
		finding.Certainty = Proven
	}
	f.addWebhook(&finding, r.name)
	return []Finding{finding.about(append(finding.Objects, r.objects(f.Namespace.Name)...))}
}

func (f *Facts) blamePolicy(r rejection) []Finding {
	at := slices.IndexFunc(f.Policies, func(policy Policy) bool { return policy.Name == r.name })
	isPersonal := at < 0 || f.Policies[at].IsPersonal
	if len(r.quotes) == 0 && (at >= 0 && f.Policies[at].IsGate || isPersonal && !f.isCorroborated(r)) {
		return nil
	}
	finding := Finding{
		Cause: CauseAdmissionRefused, Certainty: Proven,
		Message:  fmt.Sprintf("ValidatingAdmissionPolicy %q refuses: %s", r.name, f.whatIsRefused(r)),
		Evidence: r.evidence(),
		Remedies: []string{
			shell.Command("kubectl get validatingadmissionpolicy %s --output=yaml", r.name),
			"kubectl get validatingadmissionpolicybindings",
			"Satisfy the policy, or take this namespace out of its binding by its namespaceSelector",
		},
		Loss: "what the policy protects by refusing",
	}
	if r.isContradicted || len(r.quotes) == 0 && isPersonal {
		finding.Certainty = Likely
	}
	return []Finding{finding.about(r.objects(f.Namespace.Name))}
}

// findOtherRefusals is for admission plug-ins of the API server itself.
func (f *Facts) findOtherRefusals() []Finding {
	var others rejection
	for _, trial := range f.Trials {
		if trial.Err != nil && f.isRefusal(trial.Err) && !isAdmission(trial.Err.Error()) {
			others.trials = append(others.trials, trial)
		}
	}
	if len(others.trials) == 0 || !f.isCorroborated(others) {
		return nil
	}
	finding := Finding{
		Cause: CauseAdmissionRefused, Certainty: Likely,
		Message:  "the API server refuses: " + f.whatIsRefused(others),
		Evidence: others.evidence(),
		Remedies: []string{"See what the refusal says, and satisfy it"},
	}
	return []Finding{finding.about(others.objects(f.Namespace.Name))}
}

// findInvalid blames objects which are not valid any more, such as after a stricter schema.
func (f *Facts) findInvalid() []Finding {
	byFinalizer := map[string]rejection{}
	for _, trial := range f.Trials {
		if trial.Verb == VerbPatch && trial.Err != nil && isInvalid(trial.Err) {
			r := byFinalizer[trial.Type.String()]
			r.trials = append(r.trials, trial)
			byFinalizer[trial.Type.String()] = r
		}
	}
	var findings []Finding
	for resource, r := range sorted(byFinalizer) {
		first := r.trials[0]
		finding := Finding{
			Cause: CauseFinalizerRemovalInvalid, Certainty: Proven, Finalizer: r.finalizer(),
			Message: fmt.Sprintf("finalizer %s cannot be taken off %s %q, since the object is not valid any more",
				first.Finalizer, resource, first.Name),
			Evidence: r.evidence(),
			Remedies: []string{
				"Correct what the error names, in the same patch that removes the finalizer",
				shell.Command("kubectl edit %s %s --namespace=%s", resource, first.Name, f.Namespace.Name),
				"If the schema of a CustomResourceDefinition has become stricter, relax it until the object is deleted",
			},
			Loss: lossOfOwner,
		}
		findings = append(findings, finding.about(r.objects(f.Namespace.Name)))
	}
	return findings
}

// addWebhook adds what is known of a webhook: who registers it, and what is wrong with the
// Service behind it.
func (f *Facts) addWebhook(finding *Finding, name string) {
	for _, webhook := range f.Webhooks {
		if webhook.Name != name {
			continue
		}
		if webhook.IsPersonal && finding.Cause == CauseAdmissionWebhookFailing &&
			!strings.Contains(strings.Join(finding.Evidence, ""), "condition ") {
			finding.Certainty = Likely
		}
		finding.Remedies = append(finding.Remedies,
			shell.Command("kubectl get %s %s --output=yaml", webhook.Resource, webhook.Configuration))
		if webhook.Service == nil {
			finding.Evidence = append(finding.Evidence, fmt.Sprintf("%s %q calls %s", webhook.Resource,
				webhook.Configuration, webhook.URL))
			continue
		}
		finding.Evidence = append(finding.Evidence, fmt.Sprintf("%s %q calls Service %s", webhook.Resource,
			webhook.Configuration, webhook.Service))
		if what := f.whatOf(*webhook.Service); what != "" && finding.Cause == CauseAdmissionWebhookFailing {
			finding.Message += ": " + what
			finding.Evidence = append(finding.Evidence, what)
		}
		finding.Remedies = append(finding.Remedies,
			shell.Command("kubectl get service,endpointslices,pods --namespace=%s", webhook.Service.Namespace))
	}
	switch finding.Cause {
	case CauseAdmissionWebhookFailing:
		finding.Remedies = append(finding.Remedies,
			"Bring the webhook back; if it was uninstalled for good, delete the configuration that still names it")
	default:
		finding.Remedies = append(finding.Remedies,
			"Satisfy the webhook, or take this namespace out of its namespaceSelector")
	}
}

// whatIsRefused says what does not happen.
func (f *Facts) whatIsRefused(r rejection) string {
	if len(r.trials) == 0 {
		return "what is in the namespace cannot be deleted"
	}
	first := r.trials[0]
	if first.Verb == VerbPatch {
		return fmt.Sprintf("finalizer %s cannot be taken off %s %q", first.Finalizer, first.Type, first.Name)
	}
	if len(r.trials) == 1 {
		return fmt.Sprintf("%s %q cannot be deleted", first.Type, first.Name)
	}
	return fmt.Sprintf("%s %q and other objects cannot be deleted", first.Type, first.Name)
}

// evidence is what was said, each text once: to us, and to the namespace controller.
func (r rejection) evidence() []string {
	var texts []string
	for _, trial := range r.trials {
		what := "a dry run of the deletion of"
		if trial.Verb == VerbPatch {
			what = "a dry run of taking finalizer " + trial.Finalizer + " off"
		}
		texts = append(texts, fmt.Sprintf("%s %s %q: %s", what, trial.Type, trial.Name, oneLine(trial.Err.Error())))
	}
	return append(texts[:min(len(texts), mostObjects)], r.quotes...)
}

// finalizer is the one that could not be taken off, empty if there are several.
func (r rejection) finalizer() string {
	first := r.trials[0].Finalizer
	if slices.ContainsFunc(r.trials, func(trial Trial) bool { return trial.Finalizer != first }) {
		return ""
	}
	return first
}

func (r rejection) objects(namespace string) []Object {
	var objects []Object
	for _, trial := range r.trials {
		objects = append(objects, Object{Resource: trial.Type.String(), Namespace: namespace, Name: trial.Name})
	}
	return objects
}
