// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nslifecycle/nslifecycle/internal/mutation"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

func all() *admissionv1.MutatingWebhookConfiguration {
	return configuration(injectWebhook, completeWebhook, restoreWebhook, restoreConditionsWebhook, restoreLockedWebhook)
}

func newConfigurer(objects ...client.Object) *configurer {
	api := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).Build()
	return &configurer{Installer: &mutation.Installer{
		Client: api, Live: api, Clock: clocktesting.NewFakePassiveClock(time.Time{}),
		Watch: func(client.Object) error { return nil }, StartWebhooks: func() error { return nil },
	}}
}

func (c *configurer) installed(t *testing.T) *admissionv1.MutatingWebhookConfiguration {
	t.Helper()
	found := all()
	NewWithT(t).Expect(c.Get(t.Context(), client.ObjectKeyFromObject(found), found)).To(Succeed())
	return found
}

func TestEnsure(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	c := newConfigurer(all())
	expect := func(servesPolicies, isSelecting bool, failurePolicy admissionv1.FailurePolicyType) {
		t.Helper()
		id, err := c.Ensure(ctx, set("rbac.corp.com"), servesPolicies)
		g.Expect(err).NotTo(HaveOccurred())
		matcher := BeEmpty()
		if isSelecting {
			matcher = Not(BeEmpty())
		}
		g.Expect(id).To(matcher)
		g.Expect(injectIn(c.installed(t)).Rules).To(matcher)
		g.Expect(injectIn(c.installed(t)).FailurePolicy).To(HaveValue(Equal(failurePolicy)))
	}
	ensureFail := func() {
		t.Helper()
		g.Expect(c.EnsureFail(ctx)).To(Succeed())
		g.Expect(injectIn(c.installed(t)).FailurePolicy).To(HaveValue(Equal(admissionv1.Fail)))
	}
	expect(true, false, admissionv1.Ignore)
	g.Expect(c.EnsureFail(ctx)).To(Succeed())
	expect(true, false, admissionv1.Ignore)
	expect(false, true, admissionv1.Ignore)
	ensureFail()

	// After an upgrade, the webhooks remain for API servers that do not serve the policies. New namespaces depend on them
	// until all API servers can be expected to serve the policies.
	inject := &admissionv1.MutatingAdmissionPolicy{}
	inject.Name = all().Name
	g.Expect(c.Create(ctx, inject)).To(Succeed())
	expect(true, true, admissionv1.Fail)
	c.Clock = clocktesting.NewFakePassiveClock(inject.CreationTimestamp.Add(optionalAfter - time.Second))
	expect(true, true, admissionv1.Fail)
	c.Clock = clocktesting.NewFakePassiveClock(inject.CreationTimestamp.Add(optionalAfter))
	expect(true, true, admissionv1.Ignore)

	// After a downgrade, new namespaces depend on them again.
	expect(false, true, admissionv1.Ignore)
	ensureFail()

	// An administrator can end this.
	without := c.installed(t)
	for i := range without.Webhooks {
		without.Webhooks[i].Rules = nil
	}
	g.Expect(c.Update(ctx, without)).To(Succeed())
	expect(true, false, admissionv1.Ignore)
}

// failing returns an error for every object.
type failing struct {
	client.Reader
	err error
}

func (f failing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return f.err
}

func TestEnsureWithoutConfiguration(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	outage := errors.New("the API server is unavailable")
	for _, test := range []struct{ err, want error }{
		{}, {err: apierrors.NewForbidden(schema.GroupResource{}, "", nil)}, {err: outage, want: outage},
	} {
		c := newConfigurer()
		if test.err != nil {
			c.Live = failing{err: test.err}
		}
		id, err := c.Ensure(ctx, set("rbac.corp.com"), false)
		g.Expect(id).To(BeEmpty())
		if test.want == nil {
			g.Expect(err).NotTo(HaveOccurred())
		} else {
			g.Expect(err).To(MatchError(test.want))
		}
		g.Expect(c.EnsureFail(ctx)).To(Succeed())
	}
}
