// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

const teams = v1alpha1.PrefixParameter + "teams"

// forEachTeam makes a template contain an object for each team.
func forEachTeam(spec *v1alpha1.NamespaceTemplateSpec) {
	spec.Parameters = []v1alpha1.TemplateParameter{{Name: "teams", Type: v1alpha1.ParameterList}}
	spec.Variables = nil
	object := objectNamed("team", configMap("team-${item}", "${item} of ${string(params.teams.size())}"))
	object.ForEach = "teams"
	spec.Objects = []v1alpha1.TemplateObject{object, objectNamed("static", configMap("static", "x"))}
}

// expectConfigs waits until a Namespace contains exactly these ConfigMaps of templates.
func expectConfigs(ctx context.Context, namespace *corev1.Namespace, names ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list := &corev1.ConfigMapList{}
		g.Expect(cluster.Admin.List(ctx, list, client.InNamespace(namespace.Name),
			client.HasLabels{v1alpha1.LabelManagedByTemplate})).To(Succeed())
		found := make([]string, 0, len(list.Items))
		for _, config := range list.Items {
			found = append(found, config.Name)
		}
		g.Expect(found).To(ConsistOf(names))
	}).WithContext(ctx).Should(Succeed())
}

func setTeams(ctx context.Context, namespace *corev1.Namespace, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{teams: value}}})
	Expect(err).NotTo(HaveOccurred())
	return cluster.Admin.Patch(ctx, namespace.DeepCopy(), framework.MergePatch(string(patch)))
}

var _ = Describe("A parameter that is a list", func() {
	It("adds and removes the objects of its elements", func(ctx context.Context) {
		template := createTemplate(ctx, "lists", forEachTeam)
		namespace := selectedBy(template.Name)
		namespace.Annotations = map[string]string{teams: "red,green,blue"}
		createInitialized(ctx, namespace)
		expectConfigs(ctx, namespace, "team-red", "team-green", "team-blue", "static")
		Expect(valueIn(ctx, namespace, "team-red")).To(Equal("red of 3"))

		By("removing one element and adding others")
		Expect(setTeams(ctx, namespace, "blue,red,a,b")).To(Succeed())
		expectConfigs(ctx, namespace, "team-red", "team-blue", "team-a", "team-b", "static")
		expectValue(ctx, namespace, "team-red", "red of 4")

		By("an element that is not part of a name")
		Expect(setTeams(ctx, namespace, "blue,A B")).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(getTemplate(g, ctx, template.Name).Status.Failures).To(ContainElement(And(
				HaveField("Namespace", namespace.Name), HaveField("Object", "team"),
				HaveField("Reason", v1alpha1.ReasonInvalidObject), HaveField("Message", ContainSubstring(`element "A B" of teams`)))))
		}).WithContext(ctx).Should(Succeed())
		expectConfigs(ctx, namespace, "team-red", "team-blue", "team-a", "team-b", "static")

		By("values that the API server rejects")
		many := strings.TrimSuffix(strings.Repeat("abc,", 33), ",")
		for _, value := range []string{many, "red,red", "red,,blue", ",", strings.Repeat(",", 1023), strings.Repeat("a", 1025)} {
			Expect(setTeams(ctx, namespace, value)).To(MatchError(ContainSubstring(`of parameter "teams"`)), "%.20q", value)
		}

		By("the empty list")
		Expect(setTeams(ctx, namespace, "")).To(Succeed())
		expectConfigs(ctx, namespace, "static")
	})
})

var _ = Describe("The metadata of all objects of a template", func() {
	It("are in each object and copy, and follow parameters", func(ctx context.Context) {
		cluster.Admin.Creates(ctx, newConfig(controlplane.SourceNamespace, "copied", "x"))
		template, namespace := createSelecting(ctx, "common", func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.ObjectMetadata = &v1alpha1.TemplateObjectMetadata{
				Labels:      map[string]v1alpha1.ObjectMetadataValue{"size": "s-${params.size}", "app": "common"},
				Annotations: map[string]v1alpha1.ObjectMetadataValue{"example.com/owner": "${requestedBy}"},
			}
			copied := v1alpha1.TemplateObject{Name: "copied", SourceRef: &v1alpha1.TemplateSourceReference{
				Kind: "ConfigMap", Name: "copied",
			}}
			spec.Objects = []v1alpha1.TemplateObject{
				objectNamed("plain", configMap("plain", "x")), copied,
				objectNamed("own", strings.Replace(configMap("own", "x"), `{"name"`, `{"labels":{"app":"own"},"name"`, 1)),
			}
		})
		expect := func(size string) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				for name, app := range map[string]string{"plain": "common", "copied": "common", "own": "own"} {
					config := &corev1.ConfigMap{}
					g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: name}, config)).To(Succeed())
					g.Expect(config.Labels).To(And(HaveKeyWithValue("size", "s-"+size), HaveKeyWithValue("app", app)))
					g.Expect(config.Annotations).To(HaveKeyWithValue("example.com/owner", alice))
				}
			}).WithContext(ctx).Should(Succeed())
		}
		expect("s")
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), fmt.Sprintf(`{"metadata":{"annotations":{"%ssize":"l"}}}`, v1alpha1.PrefixParameter))
		expect("l")
		By("a template without them")
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ObjectMetadata = nil })
		Eventually(func(g Gomega) {
			for _, name := range []string{"plain", "copied"} {
				config := &corev1.ConfigMap{}
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: name}, config)).To(Succeed())
				g.Expect(config.Labels).NotTo(HaveKey("size"))
			}
		}).WithContext(ctx).Should(Succeed())
	})
})
