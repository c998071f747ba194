// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestConfigure(t *testing.T) {
	g := NewWithT(t)
	configuration := makeWebhooks()

	Configure(configuration, "https://localhost:9443", true, []v1alpha1.Subject{
		{Kind: v1alpha1.SubjectServiceAccount, Namespace: "argocd", Name: "controller"},
		{Kind: v1alpha1.SubjectGroup, Name: `a"b`},
		{Kind: v1alpha1.SubjectUser, Name: "jürgen"},
	})
	waiting := configuration.Webhooks[1]
	g.Expect(waiting.ClientConfig.URL).To(HaveValue(Equal("https://localhost:9443/hold")))
	g.Expect(waiting.ClientConfig.Service).To(BeNil())
	g.Expect(waiting.Rules).To(HaveExactElements(HaveField("Operations", HaveLen(3))))
	g.Expect(configuration.Webhooks[0].Rules).To(Equal(waiting.Rules))
	g.Expect(IsHolding(configuration)).To(BeTrue())
	g.Expect(waiting.MatchConditions).To(Equal([]admissionregistrationv1.MatchCondition{
		{Name: "not-an-event", Expression: "true"},
		{Name: "an-initializer", Expression: "!(true)"},
		{Name: "waiting-subject", Expression: `request.userInfo.username in ["system:serviceaccount:argocd:controller", "j\u00fcrgen"] || ` +
			`request.userInfo.?groups.orValue([]).exists(g, g in ["a\"b"])`},
	}))
	g.Expect(configuration.Webhooks[0].MatchConditions).To(HaveLen(2), "the first webhook is unchanged")

	Configure(configuration, "https://localhost:9444", true, nil)
	g.Expect(IsHolding(configuration)).To(BeTrue())
	g.Expect(configuration.Webhooks[1].ClientConfig.URL).To(HaveValue(Equal("https://localhost:9444/hold")))
	g.Expect(configuration.Webhooks[1].Rules).To(BeEmpty())
	g.Expect(configuration.Webhooks[1].MatchConditions).To(BeEmpty())

	Configure(configuration, "", false, []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "dana"}})
	g.Expect(IsHolding(configuration)).To(BeFalse())
	g.Expect(configuration.Webhooks[1].Rules).To(BeEmpty())
	g.Expect(configuration.Webhooks[2].Rules).To(HaveLen(1), "the probe is unchanged")
}

// makeWebhooks returns a webhook, the one for its waiting subjects, and the one for probes.
func makeWebhooks() *admissionregistrationv1.MutatingWebhookConfiguration {
	target := admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Name: "hold", Namespace: "system", Path: new("/hold")},
	}
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "hold.nslifecycle.dev", ClientConfig: *target.DeepCopy(),
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "not-an-event", Expression: "true"}, {Name: "not-an-initializer", Expression: "true"},
			},
		}, {
			Name: "hold-waiting-subjects.nslifecycle.dev", ClientConfig: *target.DeepCopy(),
		}, {
			Name: "probe.nslifecycle.dev", ClientConfig: *target.DeepCopy(),
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			}},
		}},
	}
}
