// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("A restricted template", func() {
	restricted := func(name string, selector *v1alpha1.NamespaceSelector) v1alpha1.EffectiveTemplate {
		return v1alpha1.EffectiveTemplate{Name: name, Access: v1alpha1.AccessRestricted, NamespaceSelector: selector}
	}
	forbidden := func(name string) OmegaMatcher {
		return BeForbiddenBy(v1alpha1.PolicyTemplates, `is not allowed to use template "`+name+`"`, `verb "use"`)
	}

	It("can be chosen only by holders of the use verb on it", func(ctx context.Context) {
		publish(ctx, restricted("gold", selecting("tier", "gold")), restricted("silver", nil))
		create := func(key, value string) error {
			namespace := wrappers.MakeNamespace("shop").Label(key, value).Obj()
			return cluster.Ordinary.Create(ctx, namespace, client.DryRunAll)
		}
		open := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("relabelled"))
		for _, label := range [][2]string{{"tier", "gold"}, {v1alpha1.LabelTemplate, "gold"}} {
			Expect(create(label[0], label[1])).To(forbidden("gold"))
			Expect(tryPatch(ctx, cluster.Ordinary, open.Name, "labels", label[0], &label[1])).To(forbidden("gold"))
		}
		allow(ctx, framework.OrdinaryUser, "use", v1alpha1.GroupVersion.Group, "namespacetemplates", "gold")
		Eventually(create).WithArguments("tier", "gold").Should(Succeed())
		Expect(create(v1alpha1.LabelTemplate, "gold")).To(Succeed())
		Expect(create(v1alpha1.LabelTemplate, "silver")).To(forbidden("silver"))
		Expect(tryPatch(ctx, cluster.Ordinary, open.Name, "labels", "tier", new("gold"))).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("does not affect updates of a namespace that the template selects already", func(ctx context.Context) {
		publish(ctx, restricted("gold", &v1alpha1.NamespaceSelector{}))
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeNamespace("shop").Obj(), client.DryRunAll)).To(forbidden("gold"))
		namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("gold"))
		Expect(tryPatch(ctx, cluster.Ordinary, namespace.Name, "labels", "note", new("x"))).To(Succeed())
		Expect(tryPatch(ctx, cluster.Ordinary, namespace.Name, "labels", v1alpha1.LabelTemplate, new("gold"))).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	// The API server can know a new template for inject, but not yet for this policy.
	It("is not recorded for a namespace if the policy does not know it yet", func(ctx context.Context) {
		publish(ctx, restricted("gold", nil))
		binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metaOf("nslifecycle-inject")}
		Expect(cluster.Admin.Delete(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(cluster.InstallMutating(ctx)).To(Succeed())
			publish(ctx)
		})
		send := func(selected string) error {
			return cluster.Ordinary.Create(ctx, wrappers.MakeNamespace("shop").
				Label(v1alpha1.LabelInitializing, "true").Initializers(v1alpha1.TemplatesInitializer).
				Annotation(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser).
				Annotation(v1alpha1.AnnotationSelectedTemplates, selected).Obj(), client.DryRunAll)
		}
		Eventually(send).WithArguments("gold,silver").WithContext(ctx).
			Should(BeDeniedBy(v1alpha1.PolicyTemplates, `NamespaceTemplate "silver"`, "repeat the request"))
		Expect(send("gold")).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("is counted: a request can choose eight", func(ctx context.Context) {
		var templates []v1alpha1.EffectiveTemplate
		for i := range 9 {
			templates = append(templates, restricted(fmt.Sprintf("t%d", i), selecting("tier", "gold")))
		}
		publish(ctx, templates[:8]...)
		namespace := wrappers.MakeNamespace("shop").Label("tier", "gold")
		allow(ctx, framework.OrdinaryUser, "use", v1alpha1.GroupVersion.Group, "namespacetemplates",
			"t0", "t1", "t2", "t3", "t4", "t5", "t6")
		Eventually(func() error {
			return cluster.Ordinary.Create(ctx, namespace.Obj(), client.DryRunAll)
		}).Should(forbidden("t7"))
		allow(ctx, framework.OrdinaryUser, "use", v1alpha1.GroupVersion.Group, "namespacetemplates", "t7", "t8")
		Eventually(func() error { return cluster.Ordinary.Create(ctx, namespace.Obj(), client.DryRunAll) }).Should(Succeed())
		publish(ctx, templates...)
		Expect(cluster.Ordinary.Create(ctx, namespace.Obj())).
			To(BeForbiddenBy(v1alpha1.PolicyTemplates, "chooses 9 restricted templates", "at most 8"))
	}, SpecTimeout(5*time.Minute))
})
