// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// configuration returns the webhooks as in config/webhook.
func configuration(names ...string) *admissionv1.MutatingWebhookConfiguration {
	made := &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: internalv1alpha1.InjectConfiguration, UID: "configuration-uid"},
	}
	for _, name := range names {
		made.Webhooks = append(made.Webhooks, admissionv1.MutatingWebhook{
			Name: name, FailurePolicy: ptr.To(admissionv1.Fail), ClientConfig: admissionv1.WebhookClientConfig{
				Service: &admissionv1.ServiceReference{Name: "nslifecycle-webhook"}, CABundle: []byte("ca"),
			},
		})
	}
	return made
}

func set(initializers ...string) *internalv1alpha1.NamespaceInitializerSet {
	made := &internalv1alpha1.NamespaceInitializerSet{SystemNamespace: "nslifecycle-system"}
	made.Name, made.Generation = internalv1alpha1.EffectiveSetName, 7
	for _, name := range initializers {
		made.Initializers = append(made.Initializers, internalv1alpha1.EffectiveInitializer{
			Name: name, InitializerSettings: v1alpha1.DefaultInitializerSettings(),
		})
	}
	return made
}

func expressions(webhook admissionv1.MutatingWebhook) []string {
	var found []string
	for _, condition := range webhook.MatchConditions {
		found = append(found, condition.Name)
	}
	return found
}

func TestConfigure(t *testing.T) {
	g := NewWithT(t)
	webhooks := configuration(injectWebhook, completeWebhook, restoreWebhook, restoreConditionsWebhook, restoreLockedWebhook)
	own := admissionv1.MatchCondition{Name: "not-a-robot", Expression: "request.userInfo.username != 'robot'"}
	webhooks.Webhooks[0].MatchConditions = []admissionv1.MatchCondition{own}
	Configure(webhooks, Settings{IsNeeded: true, Set: set("rbac.corp.com")})

	inject, complete, restore := webhooks.Webhooks[0], webhooks.Webhooks[1], webhooks.Webhooks[2]
	g.Expect(inject.FailurePolicy).To(HaveValue(Equal(admissionv1.Ignore)))
	g.Expect(*inject.ClientConfig.Service.Path).To(Equal("/inject/7"))
	g.Expect(inject.Rules).To(HaveLen(1))
	g.Expect(inject.Rules[0].Operations).To(Equal([]admissionv1.OperationType{admissionv1.Create}))
	g.Expect(inject.Rules[0].Resources).To(Equal([]string{"namespaces"}))
	g.Expect(inject.MatchConditions).To(Equal([]admissionv1.MatchCondition{{
		Name: "something-to-do", Expression: "!(object.metadata.?name.orValue('') in " +
			"['default', 'kube-node-lease', 'kube-public', 'kube-system', 'nslifecycle-system']) ||\n" + hasReservedKeys,
	}, own}))
	g.Expect(inject.ClientConfig.CABundle).To(Equal([]byte("ca")))
	for _, webhook := range []admissionv1.MutatingWebhook{complete, restore} {
		g.Expect(webhook.Rules[0].Resources).To(Equal([]string{"namespaces", "namespaces/status", "namespaces/finalize"}))
		g.Expect(webhook.Rules[0].Operations).To(Equal([]admissionv1.OperationType{admissionv1.Update}))
	}
	g.Expect(expressions(complete)).To(Equal([]string{"something-left-out-or-emptied", "is-initializer"}))
	g.Expect(expressions(restore)).To(Equal([]string{"something-left-out-or-emptied", "is-no-initializer"}))
	g.Expect(webhooks.Webhooks[3].MatchConditions).To(Equal([]admissionv1.MatchCondition{
		{Name: "something-to-do", Expression: changesConditions},
	}))
	g.Expect(*webhooks.Webhooks[3].ClientConfig.Service.Path).To(Equal("/restore-conditions"))
	g.Expect(webhooks.Webhooks[4].MatchConditions).To(Equal([]admissionv1.MatchCondition{
		{Name: "something-to-do", Expression: omitsLocked},
	}))
	g.Expect(*webhooks.Webhooks[4].ClientConfig.Service.Path).To(Equal("/restore-locked"))
	g.Expect(restore.MatchConditions[1].Expression).To(Equal("!" + complete.MatchConditions[1].Expression))

	g.Expect(complete.FailurePolicy).To(HaveValue(Equal(admissionv1.Fail)))
	g.Expect(*complete.ClientConfig.Service.Path).To(Equal("/complete"))

	// A second call changes nothing, and does not reset the failurePolicy.
	webhooks.Webhooks[0].FailurePolicy = ptr.To(admissionv1.Fail)
	again := webhooks.DeepCopy()
	Configure(again, Settings{IsNeeded: true, Set: set("rbac.corp.com")})
	g.Expect(again).To(Equal(webhooks))

	Configure(again, Settings{IsNeeded: true, IsAfterPolicies: true, Set: set("rbac.corp.com")})
	g.Expect(*again.Webhooks[1].ClientConfig.Service.Path).To(Equal("/complete-after-policy"))
	g.Expect(again.Webhooks[1].FailurePolicy).To(HaveValue(Equal(admissionv1.Ignore)))

	// Without initializers, the webhook only removes keys, so that other creations do not depend on the manager.
	Configure(again, Settings{IsNeeded: true, Set: set()})
	g.Expect(again.Webhooks[0].MatchConditions).To(Equal([]admissionv1.MatchCondition{
		{Name: "something-to-do", Expression: hasReservedKeys}, own,
	}))

	Configure(again, Settings{Set: set("rbac.corp.com")})
	for _, webhook := range again.Webhooks {
		g.Expect(webhook.Rules).To(BeEmpty(), webhook.Name)
	}
	g.Expect(again.Webhooks[0].MatchConditions).To(Equal([]admissionv1.MatchCondition{own}))
}

func TestConfigureURL(t *testing.T) {
	g := NewWithT(t)
	webhooks := configuration(injectWebhook)
	Configure(webhooks, Settings{IsNeeded: true, URL: "https://manager.example.com:9443", Set: set("rbac.corp.com")})
	target := webhooks.Webhooks[0].ClientConfig
	g.Expect(target.Service).To(BeNil())
	g.Expect(*target.URL).To(Equal("https://manager.example.com:9443/inject/7"))
}
