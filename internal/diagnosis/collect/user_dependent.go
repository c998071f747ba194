// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// readUserDependent reads the webhooks and policies that can deny a write to the Namespace to the namespace controller,
// although they do not deny it to the diagnosis. They matter only if no such write has been observed.
func (c *collection) readUserDependent(ctx context.Context) {
	if c.facts.HasDeletionCondition() || !slices.ContainsFunc(c.facts.DryRuns, func(dryRun diagnosis.DryRun) bool {
		return dryRun.IsOfNamespace() && dryRun.Err == nil
	}) {
		return
	}
	inParallel([]func(context.Context){
		c.readUserDependentPolicies, c.readUserDependentValidatingWebhooks, c.readUserDependentMutatingWebhooks,
	}, func(read func(context.Context)) { read(ctx) })
	c.update(func(facts *diagnosis.Facts) { slices.Sort(facts.UserDependent) })
}

func (c *collection) readUserDependentPolicies(ctx context.Context) {
	list := &admissionregistrationv1.ValidatingAdmissionPolicyList{}
	if !c.list(ctx, diagnosis.SourcePolicies, list) {
		return
	}
	for i := range list.Items {
		policy := &list.Items[i]
		constraints := policy.Spec.MatchConstraints
		if constraints == nil || policy.Labels[v1alpha1.LabelPolicy] != "" || !dependsOnUser(policy.Spec) {
			continue // The policies of this project exempt namespace controllers.
		}
		for _, rule := range constraints.ResourceRules {
			c.addUserDependent("ValidatingAdmissionPolicy", policy.Name, rule.RuleWithOperations, constraints.NamespaceSelector,
				constraints.ObjectSelector)
		}
	}
}

// readUserDependentValidatingWebhooks adds all webhooks that match, because each receives the name of the user.
func (c *collection) readUserDependentValidatingWebhooks(ctx context.Context) {
	list := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if !c.list(ctx, diagnosis.SourceValidatingWebhooks, list) {
		return
	}
	for _, configuration := range list.Items {
		for _, webhook := range configuration.Webhooks {
			for _, rule := range webhook.Rules {
				c.addUserDependent("webhook", webhook.Name, rule, webhook.NamespaceSelector, webhook.ObjectSelector)
			}
		}
	}
}

func (c *collection) readUserDependentMutatingWebhooks(ctx context.Context) {
	list := &admissionregistrationv1.MutatingWebhookConfigurationList{}
	if !c.list(ctx, diagnosis.SourceMutatingWebhooks, list) {
		return
	}
	for _, configuration := range list.Items {
		for _, webhook := range configuration.Webhooks {
			for _, rule := range webhook.Rules {
				c.addUserDependent("webhook", webhook.Name, rule, webhook.NamespaceSelector, webhook.ObjectSelector)
			}
		}
	}
}

// addUserDependent adds a webhook or policy if a rule and its selectors match writes of a namespace controller.
func (c *collection) addUserDependent(
	kind, name string, rule admissionregistrationv1.RuleWithOperations, selectors ...*metav1.LabelSelector,
) {
	text := fmt.Sprintf("%s %q", kind, name)
	if !matchesNamespaceWrites(rule) || slices.ContainsFunc(selectors, func(selector *metav1.LabelSelector) bool {
		return selector != nil && !matches(selector, c.facts.Namespace.Labels)
	}) {
		return
	}
	c.update(func(facts *diagnosis.Facts) {
		if !slices.Contains(facts.UserDependent, text) {
			facts.UserDependent = append(facts.UserDependent, text)
		}
	})
}

func matches(selector *metav1.LabelSelector, set map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err != nil || parsed.Matches(labels.Set(set))
}

// matchesNamespaceWrites reports whether a rule matches writes of the status or the finalizers of a Namespace.
func matchesNamespaceWrites(rule admissionregistrationv1.RuleWithOperations) bool {
	hasAny := func(list []string, names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(list, name) })
	}
	isUpdate := slices.Contains(rule.Operations, admissionregistrationv1.Update) ||
		slices.Contains(rule.Operations, admissionregistrationv1.OperationAll)
	return isUpdate && hasAny(rule.APIGroups, "", "*") && hasAny(rule.APIVersions, "v1", "*") &&
		hasAny(rule.Resources, "namespaces/status", "namespaces/finalize", "namespaces/*", "*/status", "*/finalize", "*/*") &&
		(rule.Scope == nil || *rule.Scope != admissionregistrationv1.NamespacedScope)
}
