// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

const (
	// account is the ServiceAccount of the templates.
	account = "provisioner"

	valid         = `{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {size: "${params.size}"}}`
	misspelt      = `{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {size: "${params.sise}"}}`
	clusterScoped = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: x}}`
	syntaxError   = `{apiVersion: v1, kind: ConfigMap, metadata: {name: z}, data: {a.b: "a ${1 +}"}}`
)

// The API server admits a template without the webhook if it does not respond within 2 s, so the specs repeat dry runs.
var _ = Describe("The webhook for templates", func() {
	BeforeEach(func(ctx context.Context) {
		Expect(client.IgnoreAlreadyExists(cluster.Admin.Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: account},
		}))).To(Succeed())
		waitForTemplateWebhook(ctx)
	})

	DescribeTable("rejects an invalid template with all its errors",
		func(ctx context.Context, templates []string, messages ...string) {
			Eventually(func(g Gomega) {
				output, err := apply(ctx, manifest("invalid", templates...), "--dry-run=server")
				g.Expect(err).To(HaveOccurred())
				for _, message := range messages {
					g.Expect(output).To(ContainSubstring(message))
				}
				GinkgoWriter.Println(output)
			}).WithContext(ctx).Should(Succeed())
		},
		Entry("misspelt parameter and syntax error", []string{misspelt, valid, syntaxError},
			`spec.objects[0].template.data.size: Invalid value: "params.sise": line 1, column 7: undefined field 'sise'`,
			`spec.objects[2].template.data["a.b"]: Invalid value: "1 +": line 1, column 4: Syntax error`,
			"NamespaceTemplate"),
		Entry("list", []string{`{apiVersion: v1, kind: List, metadata: {name: x}, items: []}`},
			"spec.objects[0].template.items: Forbidden: a list of objects"),
		Entry("stringData", []string{`{apiVersion: v1, kind: Secret, metadata: {name: x}, stringData: {a: b}}`},
			"spec.objects[0].template.stringData: Forbidden"),
		Entry("cluster-scoped kind", []string{valid, clusterScoped},
			`spec.objects[1].template.kind: Invalid value: "ClusterRole": kind "ClusterRole" in "rbac.authorization.k8s.io/v1" is cluster-scoped`),
	)

	It("returns causes with fields to clients", func(ctx context.Context) {
		var err error
		Eventually(func() error {
			err = cluster.Admin.Create(ctx, parse(manifest("invalid", misspelt)), client.DryRunAll)
			return err
		}).WithContext(ctx).Should(Satisfy(apierrors.IsInvalid))
		Expect(err.(apierrors.APIStatus).Status().Details.Causes).To(ConsistOf(SatisfyAll(
			HaveField("Type", metav1.CauseTypeFieldValueInvalid), HaveField("Field", "spec.objects[0].template.data.size"),
		)))
		Expect(err).To(MatchError(ContainSubstring(`NamespaceTemplate.nslifecycle.dev "invalid" is invalid: spec.objects[0]`)))
	}, SpecTimeout(5*time.Minute))

	It("warns of a missing ServiceAccount, an unknown kind and an unknown key", func(ctx context.Context) {
		text := manifest("warned", valid, `{apiVersion: test.example.com/v9, kind: Late, metadata: {name: x}}`,
			`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: x, labels: {a: b}}, spec: {podSelector: {}, ingress: [{form: []}]}}`)
		Eventually(func(g Gomega) {
			output, err := apply(ctx, strings.Replace(text, account, "missing", 1), "--dry-run=server")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(output).To(SatisfyAll(
				ContainSubstring(`Warning: ServiceAccount "missing" does not exist in namespace "nslifecycle-system"`),
				ContainSubstring(`Warning: spec.objects[1].template: the API server does not serve kind "Late" in "test.example.com/v9"`),
				ContainSubstring(`Warning: spec.objects[2].template: unknown field "spec.ingress[0].form"`),
			))
		}).WithContext(ctx).Should(Succeed())

		By("not warning without a reason")
		output, err := apply(ctx, manifest("valid", valid), "--dry-run=server")
		Expect(err).NotTo(HaveOccurred())
		Expect(output).NotTo(ContainSubstring("Warning"))
	}, SpecTimeout(5*time.Minute))

	It("admits a kind that has become namespaced", func(ctx context.Context) {
		text := manifest("rescoped", `{apiVersion: test.example.com/v1, kind: Widget, metadata: {name: x}}`)
		Expect(kubectl(ctx, widgets("Cluster"), "apply")).To(Succeed())
		DeferCleanup(func(ctx context.Context) { _ = kubectl(ctx, widgets("Cluster"), "delete", "--wait=false") })
		Eventually(func() string {
			output, _ := apply(ctx, text, "--dry-run=server")
			return output
		}).WithContext(ctx).Should(ContainSubstring(`kind "Widget" in "test.example.com/v1" is cluster-scoped`))

		// kubectl waits until the definition is deleted.
		Expect(kubectl(ctx, widgets("Cluster"), "delete")).To(Succeed())
		Expect(kubectl(ctx, widgets("Namespaced"), "apply")).To(Succeed())
		// Discovery is repeated at most every 5 s.
		Eventually(func() error {
			_, err := apply(ctx, text, "--dry-run=server")
			return err
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("is not required: the condition Valid shows the errors, and metadata can be changed", func(ctx context.Context) {
		name := framework.Unique("unchecked")
		cluster.StopManager()
		DeferCleanup(restartManager)
		_, err := apply(ctx, manifest(name, misspelt))
		Expect(err).NotTo(HaveOccurred())
		restartManager(ctx)
		waitForTemplateWebhook(ctx)
		template := &v1alpha1.NamespaceTemplate{}
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: name}, template)).To(Succeed())
			condition := meta.FindStatusCondition(template.Status.Conditions, v1alpha1.ConditionValid)
			g.Expect(condition).To(HaveValue(SatisfyAll(HaveField("Status", metav1.ConditionFalse),
				HaveField("Message", ContainSubstring("spec.objects[0].template.data.size")))))
		}).WithContext(ctx).Should(Succeed())

		By("rejecting changes of the spec that leave it invalid")
		base := template.DeepCopy()
		Eventually(func() error {
			template = base.DeepCopy()
			template.Spec.Scope = v1alpha1.ScopeAllNamespaces
			return cluster.Admin.Patch(ctx, template, client.MergeFrom(base), client.DryRunAll)
		}).WithContext(ctx).Should(Satisfy(apierrors.IsInvalid))

		By("admitting changes of labels and finalizers")
		template = base.DeepCopy()
		template.Labels = map[string]string{"a": "b"}
		template.Finalizers = []string{"test.example.com/hold"}
		Expect(cluster.Admin.Patch(ctx, template, client.MergeFrom(base))).To(Succeed())

		By("admitting changes while the template is deleted")
		cluster.Admin.Deletes(ctx, template)
		base = template.DeepCopy()
		template.Spec.Scope = v1alpha1.ScopeAllNamespaces
		template.Finalizers = nil
		Expect(cluster.Admin.Patch(ctx, template, client.MergeFrom(base))).To(Succeed())
		Expect(apierrors.IsNotFound(cluster.Admin.Get(ctx, client.ObjectKey{Name: name}, template))).To(BeTrue())
	}, SpecTimeout(5*time.Minute))
})

// waitForTemplateWebhook waits until the API server calls the webhook.
func waitForTemplateWebhook(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() string {
		output, _ := apply(ctx, manifest("probe", clusterScoped), "--dry-run=server")
		return output
	}).WithContext(ctx).Should(ContainSubstring("is cluster-scoped"))
}

// manifest returns a NamespaceTemplate with the given objects, which selects no Namespaces.
func manifest(name string, templates ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: nslifecycle.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: %s}
spec:
  serviceAccountName: %s
  parameters: [{name: size}]
  objects:
`, name, account)
	for i, template := range templates {
		fmt.Fprintf(&text, "  - {name: o%d, template: %s}\n", i, template)
	}
	return text.String()
}

// apply runs kubectl apply, and returns what it prints.
func apply(ctx context.Context, manifest string, flags ...string) (string, error) {
	GinkgoHelper()
	command := cluster.KubectlCommand(ctx, framework.KubeconfigFile(cluster.Admin.Config),
		append([]string{"apply", "-f", "-"}, flags...)...)
	command.Stdin = strings.NewReader(manifest)
	output, err := command.CombinedOutput()
	return string(output), err
}

// widgets returns a CustomResourceDefinition.
func widgets(scope string) string {
	return `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.test.example.com}
spec:
  group: test.example.com
  scope: ` + scope + `
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`
}

// kubectl runs a verb of kubectl with a manifest.
func kubectl(ctx context.Context, manifest string, args ...string) error {
	_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, manifest, append(args, "-f", "-")...)
	return err
}

func parse(manifest string) *v1alpha1.NamespaceTemplate {
	GinkgoHelper()
	template := &v1alpha1.NamespaceTemplate{}
	Expect(yaml.UnmarshalStrict([]byte(manifest), template)).To(Succeed())
	return template
}
