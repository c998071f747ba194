// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
)

// errProbe is the error of a probe if the API server gets no response, errRefusal that of a policy of another project.
var (
	errProbe = apierrors.NewInternalError(errors.New(
		`failed calling webhook "probe.nslifecycle.dev": failed to call webhook: Post "https://localhost:9443/probe": EOF`))
	errRefusal = apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", errors.New("team is missing"))
)

// HoldReconciler and TemplateWebhookReconciler.
func TestWebhookReconcile(t *testing.T) {
	const url = "https://localhost:9443"
	tests := map[string]struct {
		isMissing bool
		url       string
		subjects  []v1alpha1.Subject
		// These are the errors that requests return.
		getError, updateError, probeError error
		// probeDelay is the time that a probe takes. isHolding is true if the webhooks have rules before.
		probeDelay time.Duration
		isHolding  bool
		// wantHold and wantTemplates are the URLs in the configurations that are written; empty if none is.
		wantHold, wantTemplates string
		wantConditions          int
		wantIdle                bool
		want                    time.Duration
		wantError               string
	}{
		"it does not exist":   {isMissing: true, url: url},
		"it cannot be read":   {url: url, getError: errOutage, wantError: errOutage.Error()},
		"nothing has changed": {isHolding: true, want: webhookProbeInterval},
		"a URL":               {url: url, wantHold: url + "/hold", wantTemplates: url + "/templates", want: webhookProbeInterval},
		"subjects whose writes wait": {
			url: url, subjects: []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "dana"}},
			wantHold: url + "/hold", wantConditions: 1, wantTemplates: url + "/templates",
			want: webhookProbeInterval,
		},
		"the webhooks time out": {
			isHolding: true, probeError: errProbe, probeDelay: 2 * time.Second, wantHold: "/hold", wantIdle: true,
			want: webhookProbeInterval,
		},
		"the webhooks still time out": {probeError: errProbe, probeDelay: 2 * time.Second, want: webhookProbeInterval},
		"no replica is running":       {isHolding: true, probeError: errProbe, want: webhookProbeRetry},
		"no replica has been running": {probeError: errProbe, want: webhookProbeRetry},
		"another project refuses": {
			probeError: errRefusal, probeDelay: 2 * time.Second, wantHold: "/hold", want: webhookProbeInterval,
		},
		"the API server does not respond": {probeError: errOutage, wantError: errOutage.Error()},
		"another client was faster":       {url: url, updateError: errConflict, wantHold: url + "/hold", wantTemplates: url + "/templates", want: conflictRetry},
		"it cannot be written":            {url: url, updateError: errOutage, wantHold: url + "/hold", wantTemplates: url + "/templates", wantError: errOutage.Error()},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				target := func(path string) admissionv1.WebhookClientConfig {
					return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Name: "webhooks", Namespace: systemNamespace, Path: &path}}
				}
				mutating := &admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{
					{Name: "hold.nslifecycle.dev", ClientConfig: target("/hold")}, {Name: "hold-waiting-subjects.nslifecycle.dev", ClientConfig: target("/hold")},
				}}
				validating := &admissionv1.ValidatingWebhookConfiguration{
					Webhooks: []admissionv1.ValidatingWebhook{{Name: "templates.nslifecycle.dev", ClientConfig: target("/templates")}},
				}
				if test.isHolding {
					hold.Configure(mutating, "", true, nil)
				}
				mutating.Name, validating.Name = internalv1alpha1.HoldConfiguration, internalv1alpha1.HoldConfiguration
				set := policytest.Set()
				set.WaitingSubjects = test.subjects
				objects := []client.Object{set}
				if !test.isMissing {
					objects = append(objects, mutating, validating)
				}
				held, templates, conditions, isIdle := "", "", 0, false
				api := newFakeClient(interceptor.Funcs{
					Get: func(
						ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption,
					) error {
						if test.getError != nil {
							return test.getError
						}
						return c.Get(ctx, key, object, opts...)
					},
					Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
						time.Sleep(test.probeDelay)
						return test.probeError
					},
					Update: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.UpdateOption) error {
						switch object := object.(type) {
						case *admissionv1.MutatingWebhookConfiguration:
							last := object.Webhooks[1]
							held, conditions = ptr.Deref(last.ClientConfig.URL, "/hold"), len(last.MatchConditions)
							isIdle = !hold.IsHolding(object)
						case *admissionv1.ValidatingWebhookConfiguration:
							templates = ptr.Deref(object.Webhooks[0].ClientConfig.URL, "")
						}
						return test.updateError
					},
				}, objects...)
				for _, reconciler := range []reconcile.Reconciler{
					&HoldReconciler{Client: api, URL: test.url}, &TemplateWebhookReconciler{Client: api, URL: test.url},
				} {
					result, err := reconciler.Reconcile(t.Context(), requestFor(internalv1alpha1.HoldConfiguration))
					_, isProbing := reconciler.(*HoldReconciler)
					if isProbing || test.updateError != nil {
						g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: test.want}))
					}
					if test.wantError == "" || test.probeError != nil && !isProbing {
						g.Expect(err).NotTo(HaveOccurred())
					} else {
						g.Expect(err).To(MatchError(ContainSubstring(test.wantError)))
					}
				}
				g.Expect(held).To(Equal(test.wantHold))
				g.Expect(isIdle).To(Equal(test.wantIdle))
				g.Expect(conditions).To(Equal(test.wantConditions))
				g.Expect(templates).To(Equal(test.wantTemplates))
			})
		})
	}
}

func TestHoldProbesLessOftenWhileNoReplicaIsRunning(t *testing.T) {
	synctest.Test(t, testHoldProbesLessOften)
}

func testHoldProbesLessOften(t *testing.T) {
	g := NewWithT(t)
	var probeError error = errProbe
	configuration := &admissionv1.MutatingWebhookConfiguration{}
	configuration.Name = internalv1alpha1.HoldConfiguration
	api := newFakeClient(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return probeError
		},
	}, configuration)
	reconciler := &HoldReconciler{Client: api}
	delay := func() time.Duration {
		result, err := reconciler.Reconcile(t.Context(), requestFor(internalv1alpha1.HoldConfiguration))
		g.Expect(err).NotTo(HaveOccurred())
		return result.RequeueAfter
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		g.Expect(delay()).To(Equal(want * time.Second))
		g.Expect(delay()).To(Equal(want*time.Second), "a watch event before the next probe")
		time.Sleep(want * time.Second)
	}
	probeError = nil
	g.Expect(delay()).To(Equal(webhookProbeInterval))
	probeError = errProbe
	g.Expect(delay()).To(Equal(webhookProbeRetry))
}
