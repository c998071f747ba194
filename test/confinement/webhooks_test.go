// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package confinement

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// configuration is a MutatingWebhookConfiguration. For a ValidatingWebhookConfiguration, it has the same fields.
type configuration = admissionv1.MutatingWebhookConfiguration

var _ = Describe("A webhook configuration", Ordered, func() {
	const inject, hold, templates = v1alpha1.InjectConfiguration, v1alpha1.HoldConfiguration, v1alpha1.TemplatesConfiguration

	BeforeAll(func(ctx context.Context) {
		Expect(cluster.InstallHold(ctx, "default")).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(admin.Delete(ctx, &configuration{ObjectMeta: metaOf("", hold)})).To(Succeed())
			Expect(admin.Delete(ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metaOf("", templates)})).To(Succeed())
		})
		By("adding a match condition as an administrator")
		current := &configuration{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: inject}, current)).To(Succeed())
		current.Webhooks[0].MatchConditions = []admissionv1.MatchCondition{{Name: "not-recovery", Expression: "true"}}
		Expect(admin.Update(ctx, current)).To(Succeed())
	})

	update := func(ctx context.Context, name string, change func(*configuration)) error {
		GinkgoHelper()
		if name != templates {
			current := &configuration{}
			Expect(admin.Get(ctx, client.ObjectKey{Name: name}, current)).To(Succeed())
			change(current)
			return operator.Update(ctx, current, client.DryRunAll)
		}
		current := &admissionv1.ValidatingWebhookConfiguration{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: name}, current)).To(Succeed())
		validating := &current.Webhooks[0]
		changed := &configuration{ObjectMeta: current.ObjectMeta, Webhooks: []admissionv1.MutatingWebhook{{
			ClientConfig: validating.ClientConfig, Rules: validating.Rules, FailurePolicy: validating.FailurePolicy,
			MatchConditions: validating.MatchConditions,
		}}}
		change(changed)
		webhook := &changed.Webhooks[0]
		current.ObjectMeta = changed.ObjectMeta
		validating.ClientConfig, validating.Rules = webhook.ClientConfig, webhook.Rules
		validating.FailurePolicy, validating.MatchConditions = webhook.FailurePolicy, webhook.MatchConditions
		return operator.Update(ctx, current, client.DryRunAll)
	}
	// of changes a webhook.
	of := func(index int, change func(*admissionv1.MutatingWebhook)) func(*configuration) {
		return func(c *configuration) { change(&c.Webhooks[index]) }
	}
	rule := func(group, version, resource string, operations ...admissionv1.OperationType) func(*admissionv1.MutatingWebhook) {
		return func(w *admissionv1.MutatingWebhook) {
			w.Rules = []admissionv1.RuleWithOperations{{Operations: operations, Rule: admissionv1.Rule{
				APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}, Scope: new(admissionv1.AllScopes),
			}}}
		}
	}
	failurePolicy := func(policy admissionv1.FailurePolicyType) func(*admissionv1.MutatingWebhook) {
		return func(w *admissionv1.MutatingWebhook) { w.FailurePolicy = &policy }
	}
	url := func(w *admissionv1.MutatingWebhook) {
		w.ClientConfig.Service, w.ClientConfig.URL = nil, new("https://manager.example.com/hold")
	}
	path := func(w *admissionv1.MutatingWebhook) { w.ClientConfig.Service.Path = new("/path") }
	ca := func(w *admissionv1.MutatingWebhook) { w.ClientConfig.CABundle = []byte("x") }
	condition := func(w *admissionv1.MutatingWebhook) {
		w.MatchConditions = append(w.MatchConditions, admissionv1.MatchCondition{Name: "is-initializer", Expression: "true"})
	}
	noCondition := func(w *admissionv1.MutatingWebhook) { w.MatchConditions = nil }
	rulesOfHold := func(c *configuration) { c.Webhooks[2].Rules = c.Webhooks[0].Rules }
	const create, updateOperation = admissionv1.Create, admissionv1.Update

	DescribeTable("of the operator gets what the cluster requires", func(ctx context.Context, name string, change func(*configuration)) {
		Expect(update(ctx, name, change)).To(Succeed())
	},
		Entry("CA", inject, of(0, ca)),
		Entry("CA of hold", hold, of(3, ca)),
		Entry("CA of templates", templates, of(0, ca)),
		Entry("path", inject, of(0, path)),
		Entry("condition", inject, of(1, condition)),
		Entry("rule", inject, of(0, rule("", "v1", "namespaces", create))),
		Entry("rule for a subresource", inject, of(2, rule("", "v1", "namespaces/finalize", updateOperation, create))),
		Entry("failurePolicy", inject, of(0, failurePolicy(admissionv1.Ignore))),
		Entry("rules of waiting subjects", hold, rulesOfHold),
		Entry("conditions of waiting subjects", hold, of(3, condition)),
	)

	DescribeTable("gets nothing else", func(ctx context.Context, name string, change func(*configuration)) {
		Expect(update(ctx, name, change)).To(BeRefused(name))
	},
		Entry("Service", inject, of(0, func(w *admissionv1.MutatingWebhook) { w.ClientConfig.Service.Name = "other" })),
		Entry("namespace of the Service", inject, of(2, func(w *admissionv1.MutatingWebhook) { w.ClientConfig.Service.Namespace = "default" })),
		Entry("port", inject, of(0, func(w *admissionv1.MutatingWebhook) { w.ClientConfig.Service.Port = new(int32(444)) })),
		Entry("URL", inject, of(0, url)),
		Entry("URL of hold", hold, of(0, url)),
		Entry("URL of templates", templates, of(0, url)),
		Entry("path of hold", hold, of(0, path)),
		Entry("Service of templates", templates, of(0, func(w *admissionv1.MutatingWebhook) { w.ClientConfig.Service.Name = "other" })),
		Entry("rule for Pods", inject, of(0, rule("", "v1", "pods", create))),
		Entry("rule for everything", inject, of(0, rule("*", "*", "*/*", create))),
		Entry("rule for another group", inject, of(0, rule("example.com", "v1", "namespaces", create))),
		Entry("rule for all groups", inject, of(0, rule("*", "v1", "namespaces", create))),
		Entry("rule for all versions", inject, of(0, rule("", "*", "namespaces", create))),
		Entry("rule for deletions", inject, of(0, rule("", "v1", "namespaces", create, admissionv1.Delete))),
		Entry("rule for all operations", inject, of(0, rule("", "v1", "namespaces", admissionv1.OperationAll))),
		Entry("rule for all subresources", inject, of(0, rule("", "v1", "namespaces/*", updateOperation))),
		Entry("rule of hold", hold, of(0, rule("", "v1", "nodes", create))),
		Entry("removed rules of hold", hold, of(0, func(w *admissionv1.MutatingWebhook) { w.Rules = nil })),
		Entry("rule of waiting subjects", hold, of(2, rule("*", "*", "*/*", create))),
		Entry("rule of templates", templates, of(0, rule("", "v1", "secrets", create))),
		Entry("failurePolicy of restore", inject, of(2, failurePolicy(admissionv1.Fail))),
		Entry("failurePolicy of hold", hold, of(0, failurePolicy(admissionv1.Fail))),
		Entry("failurePolicy of waiting subjects", hold, of(2, failurePolicy(admissionv1.Fail))),
		Entry("failurePolicy of templates", templates, of(0, failurePolicy(admissionv1.Fail))),
		Entry("the administrator's condition", inject, of(0, noCondition)),
		Entry("an additional condition of hold", hold, of(0, condition)),
		Entry("no condition of hold", hold, of(1, noCondition)),
		Entry("no condition of templates", templates, of(0, noCondition)),
		Entry("namespaceSelector", hold, of(2, func(w *admissionv1.MutatingWebhook) { w.NamespaceSelector = &metav1.LabelSelector{} })),
		Entry("objectSelector", inject, of(0, func(w *admissionv1.MutatingWebhook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		})),
		Entry("timeout", inject, of(0, func(w *admissionv1.MutatingWebhook) { w.TimeoutSeconds = new(int32(30)) })),
		Entry("side effects", inject, of(0, func(w *admissionv1.MutatingWebhook) {
			w.SideEffects = new(admissionv1.SideEffectClassNoneOnDryRun)
		})),
		Entry("reinvocation", inject, of(0, func(w *admissionv1.MutatingWebhook) {
			w.ReinvocationPolicy = new(admissionv1.IfNeededReinvocationPolicy)
		})),
		Entry("matchPolicy", inject, of(0, func(w *admissionv1.MutatingWebhook) { w.MatchPolicy = new(admissionv1.Exact) })),
		Entry("review version", inject, of(0, func(w *admissionv1.MutatingWebhook) {
			w.AdmissionReviewVersions = append(w.AdmissionReviewVersions, "v1beta1")
		})),
		Entry("no webhook", hold, func(c *configuration) { c.Webhooks = nil }),
		Entry("fewer webhooks", hold, func(c *configuration) { c.Webhooks = c.Webhooks[:3] }),
		Entry("another order", hold, func(c *configuration) { c.Webhooks[0], c.Webhooks[1] = c.Webhooks[1], c.Webhooks[0] }),
		Entry("another webhook", inject, func(c *configuration) {
			added := *c.Webhooks[0].DeepCopy()
			added.Name = "other.nslifecycle.dev"
			c.Webhooks = append(c.Webhooks, added)
		}),
		Entry("another name", inject, of(0, func(w *admissionv1.MutatingWebhook) { w.Name = "other.nslifecycle.dev" })),
		Entry("label", inject, func(c *configuration) { c.Labels["a"] = "b" }),
		Entry("annotation", templates, func(c *configuration) { c.Annotations = map[string]string{"a": "b"} }),
		Entry("finalizer", hold, func(c *configuration) { c.Finalizers = []string{"example.com/x"} }),
		Entry("owner", hold, func(c *configuration) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "x", UID: "x"}}
		}),
	)

	It("is neither created nor deleted, and no other configuration is updated", func(ctx context.Context) {
		none := admissionv1.SideEffectClassNone
		mutating := &configuration{ObjectMeta: metaOf("", "other"), Webhooks: []admissionv1.MutatingWebhook{{
			Name: "inject.nslifecycle.dev", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none,
			ClientConfig: admissionv1.WebhookClientConfig{URL: new("https://example.com")},
		}}}
		validating := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metaOf("", inject), Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "inject.nslifecycle.dev", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none,
			ClientConfig: admissionv1.WebhookClientConfig{URL: new("https://example.com")},
		}}}
		for _, object := range []client.Object{mutating, validating} {
			Expect(operator.Create(ctx, object.DeepCopyObject().(client.Object))).To(BeRefused())
			Expect(admin.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, object)).To(Succeed()) })
			Expect(operator.Delete(ctx, object.DeepCopyObject().(client.Object))).To(BeRefused())
		}
		ca(&mutating.Webhooks[0])
		Expect(operator.Update(ctx, mutating)).To(BeRefused("other"))
		validating.Webhooks[0].ClientConfig.CABundle = []byte("x")
		Expect(operator.Update(ctx, validating)).To(BeRefused(inject))
	})

	It("gets another URL after an administrator has set one", func(ctx context.Context) {
		Expect(cluster.SetWebhookURL(ctx, "https://localhost:9443")).To(Succeed())
		for _, name := range []string{inject, hold, templates} {
			Expect(update(ctx, name, of(0, url))).To(Succeed())
			Expect(update(ctx, name, of(0, func(w *admissionv1.MutatingWebhook) {
				w.ClientConfig.URL, w.ClientConfig.Service = nil, &admissionv1.ServiceReference{Namespace: "default", Name: "other"}
			}))).To(BeRefused("Service"))
		}
	})
})
