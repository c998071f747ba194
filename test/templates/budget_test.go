// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// largeSelector returns a selector that matches the namespaces with the labels of largeLabels.
func largeSelector() *v1alpha1.NamespaceSelector {
	selector := &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{}}
	for i := range 16 {
		key, value := fmt.Sprintf("l%d", i), v1alpha1.LabelValue(fmt.Sprintf("v%d", i))
		selector.MatchLabels[key] = value
		requirement := v1alpha1.NamespaceSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn}
		for j := range 8 {
			requirement.Values = append(requirement.Values, v1alpha1.LabelValue(fmt.Sprint(j)))
		}
		requirement.Values = append(requirement.Values, value)
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	return selector
}

// While failurePolicy is Ignore, a policy that exceeds its budget admits the request. These specs take
// longer than others because the API server stores and evaluates the largest objects.
var _ = Describe("The CEL budgets", Ordered, func() {
	const templates, parameters = v1alpha1.MaxSetTemplates - 1, 8 // One template is the marker.

	large := func() *wrappers.NamespaceWrapper {
		wrapper := wrappers.MakeNamespace("large")
		for i := range 900 {
			wrapper.Label(fmt.Sprintf("l%d", i), fmt.Sprintf("v%d", i))
		}
		return wrapper
	}

	BeforeAll(func(ctx context.Context) {
		publishSet(ctx, func(set *v1alpha1.NamespaceInitializerSet) {
			for i := range v1alpha1.MaxSetInitializers - 2 {
				set.Initializers = append(set.Initializers, v1alpha1.EffectiveInitializer{
					Name:                fmt.Sprintf("n%d.%s.example.com", i, strings.Repeat("x", 60)),
					InitializerSettings: v1alpha1.InitializerSettings{NamespaceSelector: largeSelector()},
				})
			}
			for i := range templates {
				template := v1alpha1.EffectiveTemplate{
					Name: fmt.Sprintf("large-%d", i), Access: v1alpha1.AccessOpen, NamespaceSelector: largeSelector(),
				}
				if i < v1alpha1.MaxSetTemplates/16 {
					template.Access = v1alpha1.AccessRestricted
				}
				for j := range parameters {
					template.Parameters = append(template.Parameters, v1alpha1.TemplateParameter{
						Name: fmt.Sprintf("p%d", j), Pattern: "^" + strings.Repeat("a*", 7) + "$", Immutable: true,
						Default: new(strings.Repeat("a", 64)),
					}, v1alpha1.TemplateParameter{
						Name: fmt.Sprintf("q%d", i%8*8+j), Enum: enum(8, 8), Default: new(enum(8, 8)[7]),
					})
				}
				set.Templates = append(set.Templates, template)
			}
		})
		allow(ctx, framework.OrdinaryUser, v1alpha1.VerbUse, v1alpha1.GroupVersion.Group, "namespacetemplates")
	}, NodeTimeout(5*time.Minute))

	It("suffice for the largest set and namespace", func(ctx context.Context) {
		wrapper := large()
		for i := range 900 {
			wrapper.Annotation(fmt.Sprintf("nslifecycle.dev/a%d", i), "")
		}
		for j := range parameters {
			wrapper.Annotation(fmt.Sprintf("%sp%d", v1alpha1.PrefixParameter, j), strings.Repeat("a", 1024))
		}
		namespace := dryRun(ctx, wrapper)
		Expect(initialization.SplitNames(framework.PendingOf(namespace))).To(HaveLen(v1alpha1.MaxSetInitializers))
		Expect(namespace.Annotations).To(HaveLen(4 + 9*8))

		By("rejecting an invalid value")
		wrapper.Annotation(v1alpha1.PrefixParameter+"p7", strings.Repeat("a", 1023)+"b")
		Expect(cluster.Ordinary.Create(ctx, wrapper.Obj(), client.DryRunAll)).To(BeRefused(`"p7" of template "large-0"`))
		By("rejecting a parameter that is not declared")
		wrapper = large()
		for i := range 64 {
			wrapper.Annotation(fmt.Sprintf("%sq%d", v1alpha1.PrefixParameter, i), enum(8, 8)[0])
		}
		for i := range 56 {
			wrapper.Annotation(fmt.Sprintf("%sx%d", v1alpha1.PrefixParameter, i), "x")
		}
		Expect(cluster.Ordinary.Create(ctx, wrapper.Obj(), client.DryRunAll)).To(BeRefused("no template that selects"))
	}, SpecTimeout(5*time.Minute))

	It("suffice for updates of a namespace with many annotations", func(ctx context.Context) {
		name := framework.Unique("annotated")
		namespace := wrappers.MakeNamespace(name).Annotation(v1alpha1.PrefixParameter+"p0", "a").Obj()
		Expect(cluster.Admin.Create(ctx, namespace)).To(Succeed())
		for namespace.Labels[v1alpha1.LabelInitializing] != "" {
			namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = ""
			Expect(cluster.Admin.Update(ctx, namespace)).To(Succeed())
		}
		const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
		for i := range 5000 {
			key := []byte{letters[i/62/62%62], letters[i/62%62], letters[i%62]}
			namespace.Annotations[string(key)] = ""
		}
		Expect(cluster.Admin.Update(ctx, namespace)).To(Succeed())
		namespace.Labels = large().Labels
		Expect(cluster.Ordinary.Update(ctx, namespace)).To(Succeed())
		Expect(tryPatch(ctx, cluster.Ordinary, name, "annotations", v1alpha1.PrefixParameter+"p0", new("aa"))).
			To(BeRefused(`"p0" of template "large-0" is immutable`))
		Expect(tryPatch(ctx, cluster.Ordinary, name, "annotations", v1alpha1.PrefixParameter+"p0", nil)).
			To(BeRefused(`"p0" of template "large-0" is immutable`))
		Expect(tryPatch(ctx, cluster.Ordinary, name, "labels", v1alpha1.LabelTemplate, new("none"))).
			To(BeRefused(`"none" does not exist`))
	}, SpecTimeout(5*time.Minute))

	It("bound the patterns", func(ctx context.Context) {
		var long []v1alpha1.TemplateParameter
		for i := range 32 {
			long = append(long, v1alpha1.TemplateParameter{Name: fmt.Sprintf("p%d", i), Pattern: strings.Repeat("a*", 127)})
		}
		two := []v1alpha1.EffectiveTemplate{
			{Name: "one", NamespaceSelector: selecting("long", "a"), Parameters: long},
			{Name: "two", NamespaceSelector: selecting("long", "a"), Parameters: long},
			{Name: "three", NamespaceSelector: selecting("long", "b"), Parameters: long[:3]},
		}
		publish(ctx, two...)
		wrapper := wrappers.MakeNamespace("shop").Label("long", "a")
		for i := range 32 {
			wrapper.Annotation(fmt.Sprintf("%sp%d", v1alpha1.PrefixParameter, i), strings.Repeat("a", 1024))
		}
		dryRun(ctx, wrapper)
		two[2].NamespaceSelector = two[1].NamespaceSelector
		publish(ctx, two...)
		Expect(cluster.Ordinary.Create(ctx, wrapper.Obj())).To(BeRefused("longer than 16384 characters"))
	}, SpecTimeout(5*time.Minute))
})
