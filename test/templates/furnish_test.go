// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const record = `{"team":"1"}`

var _ = Describe("A holder of the furnish verb", Ordered, func() {
	var namespace *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		publish(ctx, v1alpha1.EffectiveTemplate{Name: "team"})
		namespace = wrappers.MakeNamespace(framework.Unique("furnish")).Label(v1alpha1.LabelTemplate, "team").Obj()
		Expect(cluster.Ordinary.Create(ctx, namespace)).To(Succeed())
		Expect(namespace.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		patchNamespace(ctx, cluster.Initializer, namespace.Name, v1alpha1.AnnotationTemplates, new(record))
	}, NodeTimeout(5*time.Minute))

	It("can write to an initializing namespace", func(ctx context.Context) {
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "object"))).To(BeForbiddenBy("gate"))
		object := wrappers.MakeConfigMap(namespace.Name, "object")
		Expect(furnisher.Create(ctx, object)).To(Succeed())
		Expect(furnisher.Delete(ctx, object)).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	for key, values := range map[string][]string{
		v1alpha1.AnnotationPendingInitializers:  {"", v1alpha1.TemplatesInitializer, "x.test.example.com"},
		v1alpha1.AnnotationInitializationResult: {"{}", `{"status":"Failure"}`},
		v1alpha1.AnnotationTemplates:            {"", "{}"},
		v1alpha1.AnnotationInitializers:         {"", initializer},
		v1alpha1.AnnotationRequestedBy:          {"", furnisherUser},
		v1alpha1.AnnotationSelectedTemplates:    {"", "team,other"},
	} {
		It("cannot change annotation "+key, func(ctx context.Context) {
			for _, value := range values {
				Expect(tryPatch(ctx, furnisher, namespace.Name, "annotations", key, &value)).To(BeDeniedBy("guard"), value)
			}
		}, SpecTimeout(5*time.Minute))
	}

	It("cannot open the namespace by its label or with a PUT that omits the state", func(ctx context.Context) {
		Expect(tryPatch(ctx, furnisher, namespace.Name, "labels", v1alpha1.LabelInitializing, new("false"))).
			To(BeDeniedBy("guard"))
		before := cluster.GetNamespace(Default, ctx, namespace.Name)
		omitting := before.DeepCopy()
		omitting.Labels, omitting.Annotations = nil, nil
		Expect(furnisher.Update(ctx, omitting)).To(Succeed())
		Expect(omitting.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		Expect(omitting.Annotations).To(Equal(before.Annotations))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("The record of the templates", Ordered, func() {
	var namespace *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		publish(ctx)
		namespace = framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("record"))
		open(ctx, namespace.Name)
		patchNamespace(ctx, cluster.Initializer, namespace.Name, v1alpha1.AnnotationTemplates, new(record))
	}, NodeTimeout(5*time.Minute))

	It("is restored in an open namespace if a write omits it", func(ctx context.Context) {
		for _, user := range []*framework.User{cluster.Ordinary, cluster.Initializer} {
			omitting := cluster.GetNamespace(Default, ctx, namespace.Name)
			omitting.Annotations = nil
			Expect(user.Update(ctx, omitting)).To(Succeed())
			Expect(omitting.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationTemplates, record))
			Expect(user.SubResource("status").Update(ctx, withoutAnnotations(omitting))).To(Succeed())
			Expect(tryPatch(ctx, user, namespace.Name, "annotations", v1alpha1.AnnotationTemplates, nil)).To(Succeed())
			Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Annotations).
				To(HaveKeyWithValue(v1alpha1.AnnotationTemplates, record))
		}
	}, SpecTimeout(5*time.Minute))

	It("can be changed and removed only with the initialize verb", func(ctx context.Context) {
		for _, user := range []*framework.User{cluster.Ordinary, furnisher} {
			for _, value := range []string{"", "{}"} {
				Expect(tryPatch(ctx, user, namespace.Name, "annotations", v1alpha1.AnnotationTemplates, &value)).
					To(BeForbiddenBy("guard", "annotation nslifecycle.dev/templates", `verb "initialize"`))
			}
		}
		patchNamespace(ctx, cluster.Initializer, namespace.Name, v1alpha1.AnnotationTemplates, new(""))
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Annotations[v1alpha1.AnnotationTemplates]).To(BeEmpty())
		Expect(tryPatch(ctx, cluster.Ordinary, namespace.Name, "annotations", v1alpha1.AnnotationTemplates, new("{}"))).
			To(BeForbiddenBy("guard"))
	}, SpecTimeout(5*time.Minute))

	It("is removed from new namespaces, or rejects them", func(ctx context.Context) {
		namespace := wrappers.MakeNamespace(framework.Unique("record")).
			Annotation(v1alpha1.AnnotationTemplates, record).Obj()
		Expect(cluster.Ordinary.Create(ctx, namespace)).To(Succeed())
		Expect(namespace.Annotations).NotTo(HaveKey(v1alpha1.AnnotationTemplates))
	}, SpecTimeout(5*time.Minute))
})

func withoutAnnotations(namespace *corev1.Namespace) *corev1.Namespace {
	changed := namespace.DeepCopy()
	changed.Annotations = nil
	return changed
}

// tryPatch sets a label or an annotation of a namespace. A nil value removes it.
func tryPatch(ctx context.Context, user client.Client, name, field, key string, value *string) error {
	patch, err := mergePatch(field, key, value)
	Expect(err).NotTo(HaveOccurred())
	return user.Patch(ctx, &corev1.Namespace{ObjectMeta: metaOf(name)}, patch)
}

// patchNamespace sets an annotation of a namespace.
func patchNamespace(ctx context.Context, user client.Client, name, key string, value *string) {
	GinkgoHelper()
	Expect(tryPatch(ctx, user, name, "annotations", key, value)).To(Succeed())
}
