// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/selectors"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	both = v1alpha1.TemplatesInitializer + "," + initializer
	size = v1alpha1.PrefixParameter + "size"
)

func withDefault(name, value string) v1alpha1.TemplateParameter {
	return v1alpha1.TemplateParameter{Name: name, Default: &value}
}

// dryRun creates a namespace as a dry run as the ordinary user, and returns the response.
func dryRun(ctx context.Context, wrapper *wrappers.NamespaceWrapper) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrapper.Obj()
	Expect(cluster.Ordinary.Create(ctx, namespace, client.DryRunAll)).To(Succeed())
	return namespace
}

var _ = Describe("Injection with templates", func() {
	It("adds the initializer of the templates only if a template selects the namespace", func(ctx context.Context) {
		publish(ctx, v1alpha1.EffectiveTemplate{Name: "by-name"},
			v1alpha1.EffectiveTemplate{Name: "by-label", NamespaceSelector: selecting("team", "a")})
		Expect(framework.PendingOf(dryRun(ctx, wrappers.MakeNamespace("shop")))).To(Equal(initializer))
		Expect(framework.PendingOf(dryRun(ctx, wrappers.MakeNamespace("shop").Label("team", "b")))).To(Equal(initializer))
		Expect(framework.PendingOf(dryRun(ctx, wrappers.MakeNamespace("shop").Label("team", "a")))).To(Equal(both))
		for _, name := range []string{"by-name", "by-label"} {
			namespace := dryRun(ctx, wrappers.MakeNamespace("shop").Label(v1alpha1.LabelTemplate, name))
			Expect(framework.PendingOf(namespace)).To(Equal(both))
			Expect(namespace.Labels).To(HaveKeyWithValue(v1alpha1.LabelTemplate, name))
		}
		generated := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "shop-", Labels: map[string]string{v1alpha1.LabelTemplate: "by-name"},
		}}
		Expect(cluster.Ordinary.Create(ctx, generated)).To(Succeed())
		Expect(framework.PendingOf(generated)).To(Equal(both))
	}, SpecTimeout(5*time.Minute))

	It("selects the same namespaces as the operator, for all kinds of selectors and labels", func(ctx context.Context) {
		for name, selector := range selectors.All() {
			By(name)
			publish(ctx, v1alpha1.EffectiveTemplate{Name: "team", NamespaceSelector: selector})
			set := cluster.EffectiveSet(Default, ctx)
			for of, labels := range selectors.Labels() {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-", Labels: labels}}
				Expect(cluster.Ordinary.Create(ctx, namespace, client.DryRunAll)).To(Succeed())
				Expect(initialization.SplitNames(framework.PendingOf(namespace))).
					To(Equal(initialization.Names(initialization.Selected(set, namespace.Labels))), of)
				Expect(initialization.SplitNames(namespace.Annotations[v1alpha1.AnnotationSelectedTemplates])).
					To(Equal(initialization.SelectedTemplates(set, namespace.Labels)), of)
			}
		}
	}, SpecTimeout(5*time.Minute))

	It("adds the defaults of the selected templates", func(ctx context.Context) {
		publish(ctx,
			v1alpha1.EffectiveTemplate{
				Name: "first", NamespaceSelector: selecting("team", "a"), Parameters: []v1alpha1.TemplateParameter{
					withDefault("size", "first"), withDefault("tier", ""), {Name: "optional"}, {Name: "kind", Label: kind},
				},
			},
			v1alpha1.EffectiveTemplate{Name: "second", Parameters: []v1alpha1.TemplateParameter{
				withDefault("size", "second"), withDefault("hostile", "\"'\n\\ ${x} \u2028 é"),
			}},
			v1alpha1.EffectiveTemplate{Name: "third", Parameters: []v1alpha1.TemplateParameter{withDefault("other", "x")}},
		)
		chosen := func() *wrappers.NamespaceWrapper {
			return wrappers.MakeNamespace("shop").Label("team", "a").Label(v1alpha1.LabelTemplate, "second")
		}
		injected := map[string]string{
			size: "first", v1alpha1.PrefixParameter + "tier": "", v1alpha1.PrefixParameter + "hostile": "\"'\n\\ ${x} \u2028 é",
			v1alpha1.AnnotationPendingInitializers: both, v1alpha1.AnnotationInitializers: both,
			v1alpha1.AnnotationRequestedBy: framework.OrdinaryUser, v1alpha1.AnnotationSelectedTemplates: "first,second",
		}
		By("sending no annotations")
		Expect(dryRun(ctx, chosen()).Annotations).To(Equal(injected))
		By("sending other annotations, and records")
		namespace := dryRun(ctx, chosen().Annotation("note", "x").Annotation(v1alpha1.AnnotationTemplates, record).
			Annotation(v1alpha1.AnnotationSelectedTemplates, "third"))
		injected["note"] = "x"
		Expect(namespace.Annotations).To(Equal(injected))
		By("sending values")
		namespace = dryRun(ctx, chosen().Annotation("note", "x").Annotation(size, "sent"))
		injected[size] = "sent"
		Expect(namespace.Annotations).To(Equal(injected))
		By("not selecting a template")
		Expect(dryRun(ctx, wrappers.MakeNamespace("shop").Annotation(size, "sent")).Annotations).
			To(And(HaveKeyWithValue(size, "sent"), Not(HaveKey(v1alpha1.PrefixParameter+"tier"))))
	}, SpecTimeout(5*time.Minute))

	It("adds nothing to exempt namespaces, and removes keys in a cluster without initializers", func(ctx context.Context) {
		publish(ctx, v1alpha1.EffectiveTemplate{
			Name: "all", NamespaceSelector: &v1alpha1.NamespaceSelector{},
			Parameters: []v1alpha1.TemplateParameter{withDefault("size", "s"), {Name: "owner", Required: true}},
		})
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeNamespace("shop").Obj(), client.DryRunAll)).
			To(BeDeniedBy(v1alpha1.PolicyTemplates, "owner"))
		system := cluster.GetNamespace(Default, ctx, metav1.NamespaceDefault)
		system.Labels["note"] = framework.Unique("x")
		Expect(cluster.Ordinary.Update(ctx, system)).To(Succeed())

		publishSet(ctx, func(set *v1alpha1.NamespaceInitializerSet) { set.Initializers = nil })
		namespace := dryRun(ctx, wrappers.MakeNamespace("shop").Annotation(v1alpha1.AnnotationTemplates, record).
			Annotation(v1alpha1.AnnotationSelectedTemplates, "all").Label("nslifecycle.dev/templat", "x").Label(v1alpha1.LabelDeletionProtection, ""))
		Expect(namespace.Annotations).To(BeEmpty())
		Expect(namespace.Labels).To(And(HaveKey(v1alpha1.LabelDeletionProtection), Not(HaveKey("nslifecycle.dev/templat"))))
	}, SpecTimeout(5*time.Minute))
})
