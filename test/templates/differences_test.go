// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"maps"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

const (
	configOfTwo = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"key":"a","dropped":"x"}}`
	configOfOne = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"key":"b"}}`
)

// expectData waits until a ConfigMap contains exactly the data.
func expectData(ctx context.Context, namespace *corev1.Namespace, name string, data map[string]string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		config := &corev1.ConfigMap{}
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: name}, config)).To(Succeed())
		g.Expect(config.Data).To(Equal(data))
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("A field that the template no longer contains, and that another client also claims,", func() {
	both := map[string]string{"key": "a", "dropped": "x"}

	It("is removed from an object that the template has created", func(ctx context.Context) {
		template := createTemplate(ctx, "dropped", only("config", configOfTwo))
		namespace := createInitialized(ctx, selectedBy(template.Name))
		all := maps.Clone(both)
		all["own"] = "y"
		Expect(cluster.Admin.Apply(ctx, applycorev1.ConfigMap("config", namespace.Name).WithData(all),
			client.FieldOwner("scaler"), client.ForceOwnership)).To(Succeed())
		change(ctx, template.Name, only("config", configOfOne))
		expectData(ctx, namespace, "config", map[string]string{"key": "b", "own": "y"})
		expectCondition(ctx, template.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "All 1")
		By("the other client sets the field again, which then belongs to it")
		all["key"] = "b"
		Expect(cluster.Admin.Apply(ctx, applycorev1.ConfigMap("config", namespace.Name).WithData(all),
			client.FieldOwner("scaler"), client.ForceOwnership)).To(Succeed())
		change(ctx, template.Name, only("config", configMap("config", "c")))
		expectData(ctx, namespace, "config", map[string]string{"key": "c", "own": "y", "dropped": "x"})
	})

	It("is removed from an adopted object, and from an adopted copy", func(ctx context.Context) {
		source := newSource("a")
		source.Data = maps.Clone(both)
		cluster.Admin.Creates(ctx, source)
		template := newTemplate(framework.Unique("dropped"), copying(source), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Scope = v1alpha1.ScopeAllNamespaces
			spec.Objects = append(spec.Objects, objectNamed("config", configOfTwo))
		})
		namespace := framework.CreateAs(ctx, cluster.Admin, selectedBy(template.Name))
		for _, name := range []string{source.Name, "config"} {
			existing := newConfig(namespace.Name, name, "a")
			existing.Data = maps.Clone(both)
			Expect(cluster.Admin.Create(ctx, existing, client.FieldOwner("replicator"))).To(Succeed())
		}
		create(ctx, template)
		expectCondition(ctx, template.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "All 1")
		cluster.Admin.Patches(ctx, source, `{"data":{"key":"b","dropped":null}}`)
		expectData(ctx, namespace, source.Name, map[string]string{"key": "b"})
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects[1] = objectNamed("config", configOfOne)
		})
		expectData(ctx, namespace, "config", map[string]string{"key": "b"})
	})
})

var _ = Describe("A value that admission changes", func() {
	// startMutating makes API servers replace a value in the ConfigMaps of namespaces with a label.
	startMutating := func(ctx context.Context, kind string) {
		GinkgoHelper()
		name := framework.Unique("mutate")
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{"kind": kind}}
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "the spec mutates objects by a policy")
		policy := &admissionregistrationv1.MutatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
				ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
				MatchConstraints: &admissionregistrationv1.MatchResources{
					NamespaceSelector: selector,
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
						RuleWithOperations: admissionregistrationv1.RuleWithOperations{
							Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
							Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
						},
					}},
				},
				Mutations: []admissionregistrationv1.Mutation{{
					PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
					ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
						Expression: `Object{data: {"key": "theirs"}, metadata: Object.metadata{labels: {"added": "yes"}}}`,
					},
				}},
			},
		}
		cluster.Admin.Creates(ctx, policy)
		cluster.Admin.Creates(ctx, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
		})
		DeferCleanup(func(ctx context.Context) {
			cluster.Admin.Deletes(ctx, policy)
		})
		probe := framework.CreateAs(ctx, cluster.Admin, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("probe"), Labels: map[string]string{"kind": kind}},
		})
		Eventually(func(g Gomega) {
			config := newConfig(probe.Name, "probe", "a")
			g.Expect(cluster.Admin.Create(ctx, config, client.DryRunAll)).To(Succeed())
			g.Expect(config.Data).To(HaveKeyWithValue("key", "theirs"))
		}).WithContext(ctx).Should(Succeed())
	}

	AfterEach(restoreManager)

	It("is reported, delays no namespace, and causes no further writes, also after a restart", func(ctx context.Context) {
		name := framework.Unique("mutated")
		startMutating(ctx, name)
		template := newTemplate(name, only("config", configMap("config", "ours")))
		create(ctx, template)
		namespace := createInitialized(ctx, selectedBy(name))
		expectReported := func() {
			GinkgoHelper()
			expectCondition(ctx, name, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
			Expect(getTemplate(Default, ctx, name).Status.Failures).To(HaveExactElements(And(
				HaveField("Namespace", namespace.Name), HaveField("Object", "config"), HaveField("Reason", "FieldsDiffer"),
				HaveField("Message", ContainSubstring("data.key")))))
		}
		expectReported()
		expectEvents(ctx, namespace, "TemplateFieldsDiffer")
		version := getConfig(ctx, namespace, "config").ResourceVersion
		intercepted := restartManager(ctx, nil)
		// The status of the template is that of the earlier process until all namespaces were processed.
		Eventually(func() int {
			return countContaining(intercepted.requestsSoFar(), "/configmaps/config?dryRun=All")
		}).WithContext(ctx).Should(BeNumerically(">", 0))
		Consistently(func() []string { return writes(intercepted.requestsSoFar()) }).WithContext(ctx).
			WithTimeout(3 * time.Second).ShouldNot(ContainElement(ContainSubstring("/configmaps/")))
		expectReported()
		Expect(getConfig(ctx, namespace, "config").ResourceVersion).To(Equal(version))
		By("a change of the template to the value of admission")
		change(ctx, name, only("config", configMap("config", "theirs")))
		expectCondition(ctx, name, v1alpha1.ConditionConflicted, metav1.ConditionFalse)
		Expect(getTemplate(Default, ctx, name).Status.Failures).To(BeEmpty())
	})
})
