// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/config/mutating"
	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// Names of the webhooks and of their match conditions.
const (
	injectWebhook            = "inject.nslifecycle.dev"
	completeWebhook          = "complete.nslifecycle.dev"
	restoreWebhook           = "restore.nslifecycle.dev"
	restoreLockedWebhook     = "restore-locked.nslifecycle.dev"
	restoreConditionsWebhook = "restore-conditions.nslifecycle.dev"

	// Match conditions. An administrator can add others.
	conditionSomethingToDo = "something-to-do"
	conditionInitializer   = "is-initializer"
	conditionNoInitializer = "is-no-initializer"
)

// Settings are the fields of the webhooks that the manifest does not contain, so that applying it again does not change
// them.
type Settings struct {
	// IsNeeded is false if the webhooks select no requests. IsAfterPolicies is true if the policies can have changed them.
	IsNeeded, IsAfterPolicies bool
	// IsOptional is true if the API server may ignore failures of the webhook that injects.
	IsOptional bool
	// URL is the address of the webhooks for an API server that cannot reach their Service; empty otherwise.
	URL string
	Set *internalv1alpha1.NamespaceInitializerSet
}

// Configure changes the webhooks according to the settings.
func Configure(configuration *admissionv1.MutatingWebhookConfiguration, s Settings) {
	inject, complete := policyIn(mutating.Inject), policyIn(mutating.Complete)
	with := func(conditions []admissionv1.MatchCondition, name, expression string) []admissionv1.MatchCondition {
		return append(slices.Clone(conditions), admissionv1.MatchCondition{Name: name, Expression: expression})
	}
	for i := range configuration.Webhooks {
		webhook := &configuration.Webhooks[i]
		switch webhook.Name {
		case injectWebhook:
			if s.IsOptional || len(webhook.Rules) == 0 { // In the second case, until a dry run succeeds.
				webhook.FailurePolicy = ptr.To(admissionv1.Ignore)
			}
			s.apply(webhook, inject, pathInject+strconv.FormatInt(s.Set.Generation, 10),
				with(nil, conditionSomethingToDo, injectCondition(s.Set)))
		case completeWebhook:
			// The guard policy cannot distinguish a write in which an initializer omits the list and the label from a
			// completion, so the API server must not skip this webhook. After the policy, it can.
			path := pathComplete
			webhook.FailurePolicy = ptr.To(admissionv1.Fail)
			if s.IsAfterPolicies {
				path = pathCompleteAfterPolicy
				webhook.FailurePolicy = ptr.To(admissionv1.Ignore)
			}
			s.apply(webhook, complete, path, with(complete.Spec.MatchConditions, conditionInitializer, mayInitialize))
		case restoreWebhook:
			s.apply(webhook, complete, pathRestore,
				with(complete.Spec.MatchConditions, conditionNoInitializer, "!"+mayInitialize))
		case restoreLockedWebhook:
			s.apply(webhook, complete, pathRestoreLocked, with(nil, conditionSomethingToDo, omitsLocked))
		case restoreConditionsWebhook:
			s.apply(webhook, complete, pathRestoreConditions, with(nil, conditionSomethingToDo, changesConditions))
		}
	}
}

// apply makes a webhook select the requests of a policy.
func (s *Settings) apply(
	webhook *admissionv1.MutatingWebhook, policy *admissionv1.MutatingAdmissionPolicy, path string,
	conditions []admissionv1.MatchCondition,
) {
	ours := []string{conditionSomethingToDo, conditionInitializer, conditionNoInitializer}
	for _, condition := range slices.Concat(policy.Spec.MatchConditions, conditions) {
		ours = append(ours, condition.Name)
	}
	webhook.MatchConditions = slices.DeleteFunc(webhook.MatchConditions, func(c admissionv1.MatchCondition) bool {
		return slices.Contains(ours, c.Name)
	})
	webhook.Rules = nil
	if !s.IsNeeded {
		return
	}
	webhook.MatchConditions = append(conditions, webhook.MatchConditions...)
	for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
		webhook.Rules = append(webhook.Rules, rule.RuleWithOperations)
	}
	webhooks.SetPath(&webhook.ClientConfig, s.URL, path)
}

// injectCondition returns the match condition of the webhook for new Namespaces, which replaces that of the policy
// inject. It excludes the exempt Namespaces, so that they can be created while no manager runs. A Namespace with a
// generated name is never exempt. If the set is empty, the condition matches only requests with reserved keys, which
// the webhook removes.
func injectCondition(set *internalv1alpha1.NamespaceInitializerSet) string {
	if len(set.Initializers)+len(set.Templates) == 0 {
		return hasReservedKeys
	}
	return "!(object.metadata.?name.orValue('') in ['" +
		strings.Join(initialization.Exempt(set.SystemNamespace, set.SourceNamespace), "', '") + "']) ||\n" + hasReservedKeys
}

// policyIn returns the policy in a manifest.
func policyIn(manifest []byte) *admissionv1.MutatingAdmissionPolicy {
	policy := &admissionv1.MutatingAdmissionPolicy{}
	object := policies.Decode(manifest)[0].Object
	utilruntime.Must(runtime.DefaultUnstructuredConverter.FromUnstructured(object, policy))
	return policy
}

// Injecting returns the webhook that injects.
func Injecting(configuration *admissionv1.MutatingWebhookConfiguration) *admissionv1.MutatingWebhook {
	for i := range configuration.Webhooks {
		if configuration.Webhooks[i].Name == injectWebhook {
			return &configuration.Webhooks[i]
		}
	}
	return &admissionv1.MutatingWebhook{}
}
