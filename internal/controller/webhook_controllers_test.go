// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
)

// HoldReconciler and TemplateWebhookReconciler.
func TestWebhookReconcile(t *testing.T) {
	const url = "https://localhost:9443"
	tests := map[string]struct {
		isMissing bool
		url       string
		subjects  []v1alpha1.Subject
		// These are the errors that requests return.
		getError, updateError error
		// wantHold and wantTemplates are the URLs in the configurations that are written; empty if none is.
		wantHold, wantTemplates string
		wantConditions          int
		want                    time.Duration
		wantError               string
	}{
		"it does not exist":   {isMissing: true, url: url},
		"it cannot be read":   {url: url, getError: errOutage, wantError: errOutage.Error()},
		"nothing has changed": {},
		"a URL":               {url: url, wantHold: url + "/hold", wantTemplates: url + "/templates"},
		"subjects whose writes wait": {
			url: url, subjects: []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "dana"}},
			wantHold: url + "/hold", wantConditions: 1, wantTemplates: url + "/templates",
		},
		"another client was faster": {url: url, updateError: errConflict, wantHold: url + "/hold", wantTemplates: url + "/templates", want: conflictRetry},
		"it cannot be written":      {url: url, updateError: errOutage, wantHold: url + "/hold", wantTemplates: url + "/templates", wantError: errOutage.Error()},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
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
			mutating.Name, validating.Name = internalv1alpha1.HoldConfiguration, internalv1alpha1.HoldConfiguration
			set := policytest.Set()
			set.WaitingSubjects = test.subjects
			objects := []client.Object{set}
			if !test.isMissing {
				objects = append(objects, mutating, validating)
			}
			hold, templates, conditions := "", "", 0
			api := newFakeClient(interceptor.Funcs{
				Get: func(
					ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption,
				) error {
					if test.getError != nil {
						return test.getError
					}
					return c.Get(ctx, key, object, opts...)
				},
				Update: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.UpdateOption) error {
					switch object := object.(type) {
					case *admissionv1.MutatingWebhookConfiguration:
						last := object.Webhooks[1]
						hold, conditions = ptr.Deref(last.ClientConfig.URL, ""), len(last.MatchConditions)
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
				g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: test.want}))
				if test.wantError == "" {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(err).To(MatchError(ContainSubstring(test.wantError)))
				}
			}
			g.Expect(hold).To(Equal(test.wantHold))
			g.Expect(conditions).To(Equal(test.wantConditions))
			g.Expect(templates).To(Equal(test.wantTemplates))
		})
	}
}
