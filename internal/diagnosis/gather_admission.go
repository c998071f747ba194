// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// readAdmission reads the webhooks and policies that have refused something.
func (g *gathering) readAdmission(ctx context.Context) {
	texts := g.facts.refusals()
	webhooks := append(namesIn(webhookFailing, texts...), namesIn(webhookDenied, texts...)...)
	var reads []func()
	if len(webhooks) > 0 {
		reads = append(reads, func() { g.readValidating(ctx, webhooks) }, func() { g.readMutating(ctx, webhooks) })
	}
	for _, policy := range namesIn(policyDenied, texts...) {
		reads = append(reads, func() { g.readPolicy(ctx, policy) })
	}
	sideBySide(reads...)
	g.note(func(facts *Facts) {
		slices.SortFunc(facts.Webhooks, func(a, b Webhook) int {
			return strings.Compare(a.Name+" "+a.Configuration, b.Name+" "+b.Configuration)
		})
		slices.SortFunc(facts.Policies, func(a, b Policy) int { return strings.Compare(a.Name, b.Name) })
	})
}

// refusals returns everything that the API server has said about why it does not do
// something: to us, and to the namespace controller.
func (f *Facts) refusals() []string {
	texts := []string{f.failure(corev1.NamespaceDeletionContentFailure)}
	for _, trial := range f.Trials {
		if trial.Err != nil {
			texts = append(texts, trial.Err.Error())
		}
	}
	return texts
}

func (g *gathering) readValidating(ctx context.Context, names []string) {
	list := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if !g.list(ctx, SourceValidating, list) {
		return
	}
	for _, configuration := range list.Items {
		for _, webhook := range configuration.Webhooks {
			g.noteWebhook(names, Webhook{
				Name: webhook.Name, Resource: string(SourceValidating), Configuration: configuration.Name,
				IsPersonal: isPersonal(webhook.MatchConditions),
			}, webhook.ClientConfig)
		}
	}
}

func (g *gathering) readMutating(ctx context.Context, names []string) {
	list := &admissionregistrationv1.MutatingWebhookConfigurationList{}
	if !g.list(ctx, SourceMutating, list) {
		return
	}
	for _, configuration := range list.Items {
		for _, webhook := range configuration.Webhooks {
			g.noteWebhook(names, Webhook{
				Name: webhook.Name, Resource: string(SourceMutating), Configuration: configuration.Name,
				IsPersonal: isPersonal(webhook.MatchConditions),
			}, webhook.ClientConfig)
		}
	}
}

func (g *gathering) noteWebhook(
	names []string, webhook Webhook, clientConfig admissionregistrationv1.WebhookClientConfig,
) {
	if !slices.Contains(names, webhook.Name) {
		return
	}
	webhook.URL = ptr.Deref(clientConfig.URL, "")
	if service := clientConfig.Service; service != nil {
		webhook.Service = &types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
	}
	g.note(func(facts *Facts) { facts.Webhooks = append(facts.Webhooks, webhook) })
}

func (g *gathering) readPolicy(ctx context.Context, name string) {
	list := &admissionregistrationv1.ValidatingAdmissionPolicyList{}
	if !g.list(ctx, SourcePolicies, list, named(name)) {
		return
	}
	for i := range list.Items {
		policy := &list.Items[i]
		g.note(func(facts *Facts) {
			facts.Policies = append(facts.Policies, Policy{
				Name: policy.Name, IsPersonal: isPersonal(policy.Spec),
				IsGate: policy.Labels[v1alpha1.LabelPolicy] == v1alpha1.PolicyGate,
			})
		})
	}
}

var personal = regexp.MustCompile(`request\s*\.\s*userInfo|authorizer`)

// isPersonal tells whether any CEL expression in a spec asks who makes the request.
func isPersonal(spec any) bool {
	text, err := json.Marshal(spec)
	return err != nil || personal.Match(text)
}

// readBackends reads the Services behind what does not answer.
func (g *gathering) readBackends(ctx context.Context) {
	var reads []func()
	for _, name := range g.facts.backendsInQuestion() {
		reads = append(reads, func() { g.readBackend(ctx, name) })
	}
	sideBySide(reads...)
}

// backendsInQuestion returns the Services of all webhooks and API servers that matter.
func (f *Facts) backendsInQuestion() []types.NamespacedName {
	var names []types.NamespacedName
	for i := range f.APIServices {
		if f.isDown(&f.APIServices[i]) {
			names = append(names, f.APIServices[i].Service)
		}
	}
	for _, webhook := range f.Webhooks {
		if webhook.Service != nil {
			names = append(names, *webhook.Service)
		}
	}
	for i := range f.Definitions {
		if service := conversionService(&f.Definitions[i]); service != nil {
			names = append(names, *service)
		}
	}
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(names)
}

func (g *gathering) readBackend(ctx context.Context, name types.NamespacedName) {
	services, slicesOf := &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}
	isRead := g.list(ctx, SourceServices, services, inNamespace(name.Namespace), named(name.Name))
	if !isRead {
		return
	}
	backend := Backend{Exists: len(services.Items) > 0}
	if backend.Exists {
		backend.IsAddressed = services.Items[0].Spec.Type == corev1.ServiceTypeExternalName
		isRead = g.list(ctx, SourceEndpointSlices, slicesOf, inNamespace(name.Namespace),
			client.MatchingLabels{discoveryv1.LabelServiceName: name.Name})
		if !isRead {
			return
		}
	}
	for _, slice := range slicesOf.Items {
		for _, endpoint := range slice.Endpoints {
			backend.IsAddressed = backend.IsAddressed || ptr.Deref(endpoint.Conditions.Ready, true)
		}
	}
	g.note(func(facts *Facts) {
		if facts.Backends == nil {
			facts.Backends = map[types.NamespacedName]Backend{}
		}
		facts.Backends[name] = backend
	})
}

// whatOf says what is wrong with a Service, or nothing if it is not known to be wrong.
func (f *Facts) whatOf(name types.NamespacedName) string {
	backend, isKnown := f.Backends[name]
	switch {
	case !isKnown:
		return ""
	case !backend.Exists && name.Namespace == f.Namespace.Name:
		return f.service(name) + " was in this namespace and was deleted with it"
	case !backend.Exists:
		return f.service(name) + " does not exist"
	case !backend.IsAddressed:
		return f.service(name) + " has no ready endpoint"
	}
	return ""
}
