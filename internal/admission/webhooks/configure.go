// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/config/mutating"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/policyapply"
	"github.com/nslifecycle/nslifecycle/internal/webhooks"
)

// Names of the webhooks.
const (
	injectWebhook            = "inject.nslifecycle.dev"
	completeWebhook          = "complete.nslifecycle.dev"
	restoreWebhook           = "restore.nslifecycle.dev"
	restoreLockedWebhook     = "restore-locked.nslifecycle.dev"
	restoreConditionsWebhook = "restore-conditions.nslifecycle.dev"
)

// Names of match conditions. An administrator can add others.
const (
	conditionSomethingToDo = "something-to-do"
	conditionInitializer   = "is-initializer"
	conditionNoInitializer = "is-no-initializer"
)

// settings are the fields of the webhooks that the manifest does not contain, so that applying it again does not change
// them.
type settings struct {
	// isNeeded is false if the webhooks select no requests. isAfterPolicies is true if the policies can have changed them.
	isNeeded, isAfterPolicies bool
	// isOptional is true if the API server may ignore failures of the webhook that injects.
	isOptional bool
	// url is the address of the webhooks for an API server that cannot reach their Service; empty otherwise.
	url string
	set *internalv1alpha1.NamespaceInitializerSet
}

// configure changes the webhooks according to the settings.
func configure(configuration *admissionv1.MutatingWebhookConfiguration, s settings) {
	inject, complete := policyIn(mutating.Inject), policyIn(mutating.Complete)
	for i := range configuration.Webhooks {
		webhook := &configuration.Webhooks[i]
		switch webhook.Name {
		case injectWebhook:
			if s.isOptional || len(webhook.Rules) == 0 { // In the second case, until a dry run succeeds.
				webhook.FailurePolicy = ptr.To(admissionv1.Ignore)
			}
			s.apply(webhook, inject, pathInject+strconv.FormatInt(s.set.Generation, 10), injectCondition(s.set))
		case completeWebhook:
			// The guard policy cannot distinguish a write in which an initializer omits the list and the label from a
			// completion, so the API server must not skip this webhook. After the policy, it can.
			path := pathComplete
			webhook.FailurePolicy = ptr.To(admissionv1.Fail)
			if s.isAfterPolicies {
				path = pathCompleteAfterPolicy
				webhook.FailurePolicy = ptr.To(admissionv1.Ignore)
			}
			s.apply(webhook, complete, path, append(conditionsOf(complete),
				admissionv1.MatchCondition{Name: conditionInitializer, Expression: mayInitialize})...)
		case restoreWebhook:
			s.apply(webhook, complete, pathRestore, append(conditionsOf(complete),
				admissionv1.MatchCondition{Name: conditionNoInitializer, Expression: "!" + mayInitialize})...)
		case restoreLockedWebhook:
			s.apply(webhook, complete, pathRestoreLocked,
				admissionv1.MatchCondition{Name: conditionSomethingToDo, Expression: omitsLocked})
		case restoreConditionsWebhook:
			s.apply(webhook, complete, pathRestoreConditions,
				admissionv1.MatchCondition{Name: conditionSomethingToDo, Expression: changesConditions})
		}
	}
}

// apply makes a webhook select the requests of a policy.
func (s *settings) apply(
	webhook *admissionv1.MutatingWebhook, policy *admissionv1.MutatingAdmissionPolicy, path string,
	conditions ...admissionv1.MatchCondition,
) {
	ours := []string{conditionSomethingToDo, conditionInitializer, conditionNoInitializer}
	for _, condition := range append(conditionsOf(policy), conditions...) {
		ours = append(ours, condition.Name)
	}
	webhook.MatchConditions = slices.DeleteFunc(webhook.MatchConditions, func(c admissionv1.MatchCondition) bool {
		return slices.Contains(ours, c.Name)
	})
	webhook.Rules = nil
	if !s.isNeeded {
		return
	}
	webhook.MatchConditions = append(conditions, webhook.MatchConditions...)
	for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
		webhook.Rules = append(webhook.Rules, rule.RuleWithOperations)
	}
	webhooks.SetPath(&webhook.ClientConfig, s.url, path)
}

func conditionsOf(policy *admissionv1.MutatingAdmissionPolicy) []admissionv1.MatchCondition {
	return slices.Clone(policy.Spec.MatchConditions)
}

// injectCondition returns the match condition of the webhook for new Namespaces, which replaces that of the policy
// inject. It excludes the exempt Namespaces, so that they can be created while no manager runs. A Namespace with a
// generated name is never exempt. If the set is empty, the condition matches only requests with reserved keys, which
// the webhook removes.
func injectCondition(set *internalv1alpha1.NamespaceInitializerSet) admissionv1.MatchCondition {
	condition := admissionv1.MatchCondition{Name: conditionSomethingToDo, Expression: hasReservedKeys}
	if len(set.Initializers)+len(set.Templates) > 0 {
		condition.Expression = "!(object.metadata.?name.orValue('') in ['" +
			strings.Join(initialization.Exempt(set.SystemNamespace, set.SourceNamespace), "', '") + "']) ||\n" + hasReservedKeys
	}
	return condition
}

// policyIn returns the policy in a manifest.
func policyIn(manifest []byte) *admissionv1.MutatingAdmissionPolicy {
	policy := &admissionv1.MutatingAdmissionPolicy{}
	object := policyapply.Decode(manifest)[0].Object
	utilruntime.Must(runtime.DefaultUnstructuredConverter.FromUnstructured(object, policy))
	return policy
}

// injectIn returns the webhook that injects.
func injectIn(configuration *admissionv1.MutatingWebhookConfiguration) *admissionv1.MutatingWebhook {
	for i := range configuration.Webhooks {
		if configuration.Webhooks[i].Name == injectWebhook {
			return &configuration.Webhooks[i]
		}
	}
	return &admissionv1.MutatingWebhook{}
}
