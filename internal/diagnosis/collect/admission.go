// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/rules"
)

// readAdmission reads the webhooks and policies that rejected a request.
func (c *collection) readAdmission(ctx context.Context) {
	texts := c.facts.Rejections()
	for _, write := range c.facts.RejectedWrites {
		texts = append(texts, write.Text)
	}
	webhooks := append(denial.FailingWebhooks(texts...), denial.DenyingWebhooks(texts...)...)
	var group sync.WaitGroup
	group.Go(func() { c.readUserDependent(ctx) })
	if len(webhooks) > 0 {
		group.Go(func() { c.readWebhooks(ctx, webhooks) })
	}
	for _, policy := range denial.DenyingPolicies(texts...) {
		group.Go(func() { c.readPolicy(ctx, policy) })
	}
	group.Wait()
	c.update(func(facts *diagnosis.Facts) {
		sortBy(facts.Webhooks, func(of diagnosis.Webhook) []string { return []string{of.Name, of.Configuration} })
		sortBy(facts.Policies, func(policy diagnosis.Policy) []string { return []string{policy.Name} })
	})
}

func (c *collection) readWebhooks(ctx context.Context, names []string) {
	c.listWebhooks(ctx, func(
		source diagnosis.Source, configuration string, hook *admissionregistrationv1.ValidatingWebhook,
	) {
		if !slices.Contains(names, hook.Name) {
			return
		}
		webhook := diagnosis.Webhook{
			Name: hook.Name, Resource: string(source), Configuration: configuration,
			DependsOnUser: dependsOnUser(hook.MatchConditions), URL: ptr.Deref(hook.ClientConfig.URL, ""),
		}
		if service := hook.ClientConfig.Service; service != nil {
			webhook.Service = &types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
		}
		c.update(func(facts *diagnosis.Facts) { facts.Webhooks = append(facts.Webhooks, webhook) })
	})
}

// listWebhooks lists all admission webhooks, and calls a function for each. It passes a mutating webhook as a
// validating one.
func (c *collection) listWebhooks(
	ctx context.Context,
	visit func(source diagnosis.Source, configuration string, webhook *admissionregistrationv1.ValidatingWebhook),
) {
	validating := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	mutating := &admissionregistrationv1.MutatingWebhookConfigurationList{}
	var group sync.WaitGroup
	group.Go(func() { c.list(ctx, diagnosis.SourceValidatingWebhooks, validating) })
	group.Go(func() { c.list(ctx, diagnosis.SourceMutatingWebhooks, mutating) })
	group.Wait()
	for _, configuration := range validating.Items {
		for i := range configuration.Webhooks {
			visit(diagnosis.SourceValidatingWebhooks, configuration.Name, &configuration.Webhooks[i])
		}
	}
	for _, configuration := range mutating.Items {
		for _, one := range configuration.Webhooks {
			visit(diagnosis.SourceMutatingWebhooks, configuration.Name, &admissionregistrationv1.ValidatingWebhook{
				Name: one.Name, ClientConfig: one.ClientConfig, Rules: one.Rules, MatchConditions: one.MatchConditions,
				NamespaceSelector: one.NamespaceSelector, ObjectSelector: one.ObjectSelector,
			})
		}
	}
}

func (c *collection) readPolicy(ctx context.Context, name string) {
	list := &admissionregistrationv1.ValidatingAdmissionPolicyList{}
	if !c.list(ctx, diagnosis.SourcePolicies, list, named(name)) {
		return
	}
	for i := range list.Items {
		policy := &list.Items[i]
		c.update(func(facts *diagnosis.Facts) {
			facts.Policies = append(facts.Policies, diagnosis.Policy{
				Name: policy.Name, DependsOnUser: dependsOnUser(policy.Spec),
				IsGate: policy.Labels[internalv1alpha1.LabelPolicy] == internalv1alpha1.PolicyGate,
			})
		})
	}
}

var userExpression = regexp.MustCompile(`request\s*\.\s*userInfo|authorizer`)

// dependsOnUser reports whether a CEL expression in a spec depends on the user who sends the request.
func dependsOnUser(spec any) bool {
	text, err := json.Marshal(spec)
	return err != nil || userExpression.Match(text)
}

// readBackends reads the Services of webhooks and aggregated API servers that might have failed.
func (c *collection) readBackends(ctx context.Context) {
	inParallel(rules.BackendsNeeded(c.facts), func(name types.NamespacedName) { c.readBackend(ctx, name) })
}

func (c *collection) readBackend(ctx context.Context, name types.NamespacedName) {
	services, endpointSlices := &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}
	if !c.list(ctx, diagnosis.SourceServices, services, client.InNamespace(name.Namespace), named(name.Name)) {
		return
	}
	backend := diagnosis.Backend{Exists: len(services.Items) > 0}
	if backend.Exists {
		backend.HasReadyEndpoint = services.Items[0].Spec.Type == corev1.ServiceTypeExternalName
		if !c.list(ctx, diagnosis.SourceEndpointSlices, endpointSlices, client.InNamespace(name.Namespace),
			client.MatchingLabels{discoveryv1.LabelServiceName: name.Name}) {
			return
		}
	}
	for _, slice := range endpointSlices.Items {
		for _, endpoint := range slice.Endpoints {
			backend.HasReadyEndpoint = backend.HasReadyEndpoint || ptr.Deref(endpoint.Conditions.Ready, true)
		}
	}
	c.update(func(facts *diagnosis.Facts) { facts.Backends[name] = backend })
}

// readUserDependent reads the webhooks and policies whose decision about a write to the Namespace depends on the user:
// they can deny the write to the namespace controller, although they allow the dry run of the diagnosis. It reads
// nothing if the conditions of the Namespace show that the namespace controller has written to it.
func (c *collection) readUserDependent(ctx context.Context) {
	if c.facts.HasDeletionCondition() || !slices.ContainsFunc(c.facts.DryRuns, func(dryRun diagnosis.DryRun) bool {
		return dryRun.IsOfNamespace() && dryRun.Err == nil
	}) {
		return
	}
	inParallel([]func(context.Context){c.readUserDependentPolicies, c.readUserDependentWebhooks},
		func(read func(context.Context)) { read(ctx) })
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
		if constraints == nil || policy.Labels[internalv1alpha1.LabelPolicy] != "" || !dependsOnUser(policy.Spec) {
			continue // The policies of this project exempt namespace controllers.
		}
		for _, rule := range constraints.ResourceRules {
			c.addUserDependent("ValidatingAdmissionPolicy", policy.Name, rule.RuleWithOperations, constraints.NamespaceSelector,
				constraints.ObjectSelector)
		}
	}
}

// readUserDependentWebhooks adds all webhooks that match, because each receives the name of the user.
func (c *collection) readUserDependentWebhooks(ctx context.Context) {
	c.listWebhooks(ctx, func(_ diagnosis.Source, _ string, webhook *admissionregistrationv1.ValidatingWebhook) {
		for _, rule := range webhook.Rules {
			c.addUserDependent("webhook", webhook.Name, rule, webhook.NamespaceSelector, webhook.ObjectSelector)
		}
	})
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
