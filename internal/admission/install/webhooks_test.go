// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/admission/verify"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
)

func TestConfigureWebhooks(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	api := newServer(true, webhookConfiguration(internalv1alpha1.InjectConfiguration))
	installer := api.installer()
	installed := func() *admissionv1.MutatingWebhookConfiguration {
		found := webhookConfiguration(internalv1alpha1.InjectConfiguration)
		g.Expect(api.Get(ctx, client.ObjectKeyFromObject(found), found)).To(Succeed())
		return found
	}
	expect := func(servesMutating, isSelecting bool, failurePolicy admissionv1.FailurePolicyType) *Result {
		t.Helper()
		result := &Result{Installed: verify.Installed{ServesMutating: servesMutating}, set: policytest.Set("rbac.corp.com")}
		g.Expect(installer.configureWebhooks(ctx, result)).To(Succeed())
		matcher := BeEmpty()
		if isSelecting {
			matcher = Not(BeEmpty())
		}
		g.Expect(result.Webhooks).To(matcher)
		g.Expect(installed().Webhooks[0].Rules).To(matcher)
		g.Expect(installed().Webhooks[0].FailurePolicy).To(HaveValue(Equal(failurePolicy)))
		return result
	}
	setFail := func(result *Result) {
		t.Helper()
		status := verify.Status{WebhooksMayFail: true}
		g.Expect(installer.SetFail(ctx, result, &status)).To(Succeed())
		g.Expect(installed().Webhooks[0].FailurePolicy).To(HaveValue(Equal(admissionv1.Fail)))
	}
	expect(true, false, admissionv1.Ignore)
	setFail(expect(false, true, admissionv1.Ignore))

	// After an upgrade, the webhooks remain for API servers that do not serve the policies. New namespaces depend on them
	// until all API servers can be expected to serve the policies.
	inject := policytest.MutatingPolicy(internalv1alpha1.InjectConfiguration, internalv1alpha1.PolicyInject)
	g.Expect(api.Create(ctx, inject)).To(Succeed())
	installer.ServerClock = servertime.NewClock(clocktesting.NewFakePassiveClock(inject.CreationTimestamp.Add(optionalAfter - time.Second)))
	expect(true, true, admissionv1.Fail)
	installer.ServerClock = servertime.NewClock(clocktesting.NewFakePassiveClock(inject.CreationTimestamp.Add(optionalAfter)))
	expect(true, true, admissionv1.Ignore)

	// After a downgrade, new namespaces depend on them again.
	setFail(expect(false, true, admissionv1.Ignore))

	// An administrator can end this.
	without := installed()
	for i := range without.Webhooks {
		without.Webhooks[i].Rules = nil
	}
	g.Expect(api.Update(ctx, without)).To(Succeed())
	expect(true, false, admissionv1.Ignore)
}
