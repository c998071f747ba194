// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package graceperiod

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// clusterScoped contains the cluster-scoped built-in resources that webhooks commonly match, by API
// group. A resource with the same name in another group can be namespaced.
var clusterScoped = map[string][]string{
	"": {"componentstatuses", "namespaces", "nodes", "persistentvolumes"},
	"admissionregistration.k8s.io": {
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
	},
	"apiextensions.k8s.io":         {"customresourcedefinitions"},
	"apiregistration.k8s.io":       {"apiservices"},
	"certificates.k8s.io":          {"certificatesigningrequests"},
	"flowcontrol.apiserver.k8s.io": {"flowschemas", "prioritylevelconfigurations"},
	"networking.k8s.io":            {"ingressclasses"},
	"node.k8s.io":                  {"runtimeclasses"},
	"rbac.authorization.k8s.io":    {"clusterrolebindings", "clusterroles"},
	"scheduling.k8s.io":            {"priorityclasses"},
	"storage.k8s.io":               {"csidrivers", "csinodes", "storageclasses", "volumeattachments"},
}

// DelayingWebhooks returns the webhooks that can delay a CREATE or CONNECT request in a namespace
// until after the namespace is deleted. The API server checks that the namespace is not terminating
// before it calls any webhook, and evaluates the gate policy before it calls validating webhooks.
// It does not repeat these checks afterwards. UPDATE and DELETE requests cannot be delayed in this
// way, because the API server repeats their admission if the object has been replaced in the
// meantime.
//
// DelayingWebhooks ignores selectors and matchConditions, because labels can change. It does not return
// the hold webhooks of this project: they admit no CREATE that they have held, unless they do not respond.
func DelayingWebhooks(
	mutating []admissionv1.MutatingWebhookConfiguration, validating []admissionv1.ValidatingWebhookConfiguration,
) []string {
	var names []string
	for i := range mutating {
		if mutating[i].Name == internalv1alpha1.HoldConfiguration {
			continue
		}
		for j := range mutating[i].Webhooks {
			if webhook := &mutating[i].Webhooks[j]; slices.ContainsFunc(webhook.Rules, canDelay) {
				names = append(names, fmt.Sprintf("%q in MutatingWebhookConfiguration %q", webhook.Name, mutating[i].Name))
			}
		}
	}
	for i := range validating {
		for j := range validating[i].Webhooks {
			if webhook := &validating[i].Webhooks[j]; slices.ContainsFunc(webhook.Rules, canDelay) {
				names = append(names, fmt.Sprintf("%q in ValidatingWebhookConfiguration %q", webhook.Name, validating[i].Name))
			}
		}
	}
	return names
}

// canDelay reports whether a rule can match a CREATE or CONNECT request in a namespace.
func canDelay(rule admissionv1.RuleWithOperations) bool {
	if rule.Scope != nil && *rule.Scope == admissionv1.ClusterScope {
		return false
	}
	if !slices.ContainsFunc(rule.Operations, func(operation admissionv1.OperationType) bool {
		return operation != admissionv1.Update && operation != admissionv1.Delete
	}) {
		return false
	}
	return slices.ContainsFunc(rule.APIGroups, func(group string) bool {
		return slices.ContainsFunc(rule.Resources, func(resource string) bool {
			resource, _, _ = strings.Cut(resource, "/") // without its subresource
			return !slices.Contains(clusterScoped[group], resource)
		})
	})
}
