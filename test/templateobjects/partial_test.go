// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// Lists contain only parts of a large Namespace, without its labels.
var _ = Describe("The rollout to a large namespace", func() {
	// fill makes a Namespace too large for the cache.
	fill := func(ctx context.Context, ns *corev1.Namespace) {
		GinkgoHelper()
		patchNamespace(ctx, ns, fmt.Sprintf(`{"metadata":{"annotations":{"fill":%q}}}`, strings.Repeat("x", 17<<10)))
	}
	It("does not wait for it as a canary, which it is not", func(ctx context.Context) {
		template := newTemplate(framework.Unique("canary"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Rollout.Canary = &v1alpha1.NamespaceSelector{MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{{
					Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []v1alpha1.LabelValue{"production"},
				}}}
			})
		create(ctx, template)
		dev := selectedBy(template.Name)
		prod := wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", template.Name).Label("tier", "production").Obj()
		createOpen(ctx, dev)
		createOpen(ctx, prod)
		fill(ctx, prod)
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		change(ctx, template.Name, only("config", configMap("config", "b")))
		expectReached(ctx, template.Name)
	})

	It("begins with it if it is a canary", func(ctx context.Context) {
		template := newTemplate(framework.Unique("canary"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Rollout.PauseAfterFailures = 1
				spec.Rollout.Canary = &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"tier": "dev"}}
			})
		create(ctx, template)
		dev := wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", template.Name).Label("tier", "dev").Obj()
		createOpen(ctx, dev)
		var others []*corev1.Namespace
		for range 6 {
			o := selectedBy(template.Name)
			createOpen(ctx, o)
			others = append(others, o)
		}
		fill(ctx, dev)
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "b"))(spec)
			spec.Rollout.RatePerSecond = 1
			spec.Objects = append(spec.Objects, objectNamed("rejected", rejected("rejected")))
		})
		Consistently(func() bool {
			return slices.ContainsFunc(others, func(o *corev1.Namespace) bool {
				return get(ctx, o, "config", &corev1.ConfigMap{}).Data["key"] == "b"
			})
		}).WithContext(ctx).WithTimeout(4 * time.Second).Should(BeFalse())
	})

	It("does not wait for it if the template no longer selects it, and a finalizer keeps an object", func(ctx context.Context) {
		template := newTemplate(framework.Unique("unselected"), only("config", configMap("config", "a")), withPrune)
		create(ctx, template)
		hostile, other := selectedBy(template.Name), selectedBy(template.Name)
		createOpen(ctx, hostile)
		createOpen(ctx, other)
		config := get(ctx, hostile, "config", &corev1.ConfigMap{})
		Expect(cluster.Admin.Patch(ctx, config, client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":["test.example.com/keep"]}}`)))).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(cluster.Admin.Patch(ctx, config, client.RawPatch(types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		})
		fill(ctx, hostile)
		patchNamespace(ctx, hostile, `{"metadata":{"labels":{"kind":null}}}`)
		Eventually(func(g Gomega) {
			g.Expect(get(ctx, hostile, "config", &corev1.ConfigMap{}).DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).WithTimeout(15 * time.Second).Should(Succeed())
		change(ctx, template.Name, only("config", configMap("config", "b")))
		expectValue(ctx, other, "config", "b")
		expectReached(ctx, template.Name)
	})
})
