// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// labelsRequired is a policy of another project, which denies the dry runs of the operator.
const labelsRequired = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: labels.corp.example.com}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}]
  validations: [{expression: "'corp.example.com/owner' in object.metadata.?labels.orValue({})"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: labels.corp.example.com}
spec: {policyName: labels.corp.example.com, validationActions: [Deny]}
`

var _ = Describe("A new installation with all samples", Ordered, func() {
	BeforeAll(startCluster)

	// It takes longer than a minute until every API server can be expected to recognize the kind of the set.
	It("has only ready configurations and templates, and policies with failurePolicy Fail", func(ctx context.Context) {
		Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
		Expect(cluster.AggregateClusterRoles(ctx)).To(Succeed())
		startManager(ctx) // Its parts have the permissions of their own ServiceAccounts.
		kubectl(ctx, "apply", "-k", filepath.Join(controlplane.Root(), "config", "provisioner"))
		admin.Creates(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SourceNamespace, Name: "regcred"}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
		})
		samples := readSamples()
		isNamespace := func(object *unstructured.Unstructured) bool { return object.GetKind() == "Namespace" }
		for _, areNamespaces := range []bool{true, false} { // The initializers of the samples do not run.
			for i := range samples {
				if isNamespace(&samples[i]) == areNamespaces {
					createResource(ctx, &samples[i])
				}
			}
		}
		for i := range samples {
			if samples[i].GetKind() == "NamespaceTemplate" {
				grantPermissions(ctx, samples[i].GetName())
			}
		}
		expectReady(ctx, Not(ContainSubstring("not confirmed")))
		Eventually(func(g Gomega) {
			var policy admissionv1.ValidatingAdmissionPolicy
			g.Expect(admin.Get(ctx, client.ObjectKey{Name: "nslifecycle-templates"}, &policy)).To(Succeed())
			g.Expect(policy.Spec.FailurePolicy).To(HaveValue(Equal(admissionv1.Fail)))
		}).WithContext(ctx).Should(Succeed())

		By("reporting the policy of another project that denies the dry runs")
		_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, labelsRequired, "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error {
			return admin.Create(ctx, wrappers.MakeNamespace(framework.Unique("probe")).Obj(), client.DryRunAll)
		}).WithContext(ctx).Should(MatchError(ContainSubstring("labels.corp.example.com")))
		createResource(ctx, wrappers.MakeConfiguration("later").Initializers("a.test.example.com").Obj())
		expectReady(ctx, ContainSubstring("'labels.corp.example.com'"))
	}, SpecTimeout(8*time.Minute))
})

// readSamples returns the objects in config/samples whose types the API server serves. config/samples/agent, which is
// another installation, has a spec in test/finalization.
func readSamples() (objects []unstructured.Unstructured) {
	GinkgoHelper()
	directory := filepath.Join(controlplane.Root(), "config", "samples")
	Expect(filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || entry.IsDir() && entry.Name() == "agent":
			return fs.SkipDir
		case filepath.Ext(path) != ".yaml" || entry.Name() == "kustomization.yaml":
			return nil
		}
		content, err := os.ReadFile(path)
		for _, object := range parse(string(content)) {
			if group := object.GroupVersionKind().Group; !strings.Contains(group, "fluxcd.io") && group != "argoproj.io" {
				objects = append(objects, object)
			}
		}
		return err
	})).To(Succeed())
	Expect(len(objects)).To(BeNumerically(">", 20))
	return objects
}

// expectReady waits until all configurations and templates are ready, and the message of Active of the former matches.
func expectReady(ctx context.Context, message OmegaMatcher) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var templates v1alpha1.NamespaceTemplateList
		var configurations v1alpha1.NamespaceInitializerConfigurationList
		g.Expect(admin.List(ctx, &templates)).To(Succeed())
		g.Expect(admin.List(ctx, &configurations)).To(Succeed())
		for _, template := range templates.Items {
			g.Expect(meta.IsStatusConditionTrue(template.Status.Conditions, v1alpha1.ConditionReady)).To(BeTrue(),
				"%s: %v", template.Name, template.Status.Conditions)
		}
		for _, configuration := range configurations.Items {
			g.Expect(meta.IsStatusConditionTrue(configuration.Status.Conditions, v1alpha1.ConditionReady)).To(BeTrue(),
				"%s: %v", configuration.Name, configuration.Status.Conditions)
			g.Expect(activeCondition(g, ctx, configuration.Name).Message).To(message)
		}
	}).WithContext(ctx).Should(Succeed())
}

// grantPermissions creates what a template requires, unless the sample contains it.
func grantPermissions(ctx context.Context, name string) {
	GinkgoHelper()
	for _, object := range cluster.TemplatePermissions(ctx, name) {
		Expect(client.IgnoreAlreadyExists(admin.Create(ctx, object))).To(Succeed())
	}
}
