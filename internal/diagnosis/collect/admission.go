// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/rules"
)

// readAdmission reads the webhooks and policies that rejected a request.
func (c *collection) readAdmission(ctx context.Context) {
	texts := c.facts.Rejections()
	webhooks := append(denial.FailingWebhooks(texts...), denial.DenyingWebhooks(texts...)...)
	var group sync.WaitGroup
	group.Go(func() { c.readUserDependent(ctx) })
	if len(webhooks) > 0 {
		group.Go(func() { c.readValidatingWebhooks(ctx, webhooks) })
		group.Go(func() { c.readMutatingWebhooks(ctx, webhooks) })
	}
	for _, policy := range denial.DenyingPolicies(texts...) {
		group.Go(func() { c.readPolicy(ctx, policy) })
	}
	group.Wait()
	c.update(func(facts *diagnosis.Facts) {
		slices.SortFunc(facts.Webhooks, func(a, b diagnosis.Webhook) int {
			return strings.Compare(a.Name+" "+a.Configuration, b.Name+" "+b.Configuration)
		})
		slices.SortFunc(facts.Policies, func(a, b diagnosis.Policy) int { return strings.Compare(a.Name, b.Name) })
	})
}

func (c *collection) readValidatingWebhooks(ctx context.Context, names []string) {
	list := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if !c.list(ctx, diagnosis.SourceValidatingWebhooks, list) {
		return
	}
	for _, configuration := range list.Items {
		for _, webhook := range configuration.Webhooks {
			if slices.Contains(names, webhook.Name) {
				c.addWebhook(diagnosis.SourceValidatingWebhooks, configuration.Name, webhook.Name, webhook.MatchConditions,
					webhook.ClientConfig)
			}
		}
	}
}

func (c *collection) readMutatingWebhooks(ctx context.Context, names []string) {
	list := &admissionregistrationv1.MutatingWebhookConfigurationList{}
	if !c.list(ctx, diagnosis.SourceMutatingWebhooks, list) {
		return
	}
	for _, configuration := range list.Items {
		for _, webhook := range configuration.Webhooks {
			if slices.Contains(names, webhook.Name) {
				c.addWebhook(diagnosis.SourceMutatingWebhooks, configuration.Name, webhook.Name, webhook.MatchConditions,
					webhook.ClientConfig)
			}
		}
	}
}

func (c *collection) addWebhook(
	source diagnosis.Source, configuration, name string, conditions []admissionregistrationv1.MatchCondition,
	clientConfig admissionregistrationv1.WebhookClientConfig,
) {
	webhook := diagnosis.Webhook{
		Name: name, Resource: string(source), Configuration: configuration,
		DependsOnUser: dependsOnUser(conditions), URL: ptr.Deref(clientConfig.URL, ""),
	}
	if service := clientConfig.Service; service != nil {
		webhook.Service = &types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
	}
	c.update(func(facts *diagnosis.Facts) { facts.Webhooks = append(facts.Webhooks, webhook) })
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
				IsGate: policy.Labels[v1alpha1.LabelPolicy] == v1alpha1.PolicyGate,
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
	c.update(func(facts *diagnosis.Facts) {
		if facts.Backends == nil {
			facts.Backends = map[types.NamespacedName]diagnosis.Backend{}
		}
		facts.Backends[name] = backend
	})
}
