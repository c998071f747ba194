// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/rules"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("A namespace", func() {
	It("results in a NotFound error if it does not exist", func(ctx context.Context) {
		collector, err := collect.New(plane.Admin)
		Expect(err).NotTo(HaveOccurred())
		_, err = collector.Collect(ctx, "does-not-exist")
		Expect(err).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	It("has no findings while it is active", func(ctx context.Context) {
		namespace := createNamespace(ctx, "healthy")
		result := diagnose(ctx, namespace.Name)
		Expect(result.State).To(Equal(diagnosis.Healthy))
		Expect(result.Stage).To(Equal(diagnosis.StageActive))
		Expect(result.Findings).To(BeEmpty())
		Expect(result.Unread).To(BeEmpty())
	})

	It("has no findings before the progress deadline", func(ctx context.Context) {
		namespace := createNamespace(ctx, "before-deadline")
		held := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, held)
		deleteObject(ctx, namespace, held)
		result := rules.Diagnose(collectFacts(ctx, plane.Admin, namespace.Name, diagnosis.DefaultProgressDeadline))
		Expect(result.State).To(Equal(diagnosis.Progressing))
		Expect(result.Findings).To(BeEmpty())
		Expect(result.Summary).To(ContainSubstring("1 configmaps"))
	})

	It("is blocked by a finalizer without an owner in the cluster", func(ctx context.Context) {
		namespace := createNamespace(ctx, "finalizer")
		held := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, held)
		deleteObject(ctx, namespace, held)
		result := diagnose(ctx, namespace.Name)
		Expect(result.State).To(Equal(diagnosis.Blocked))
		Expect(causesOf(result)).To(ConsistOf(diagnosis.CauseFinalizerOwnerNotFound))
		finding := findingOf(result, diagnosis.CauseFinalizerOwnerNotFound)
		Expect(finding.Rank).To(Equal(diagnosis.RankInferred), "the owner may run outside the cluster")
		Expect(finding.Objects).To(ConsistOf(diagnosis.Object{
			Resource: "configmaps", Namespace: namespace.Name, Name: "held",
		}))
		Expect(finding.Message).To(ContainSubstring(testFinalizer))
	})

	It("is blocked by an unavailable aggregated API server", func(ctx context.Context) {
		namespace := createNamespace(ctx, "apiservice")
		group := unique("unavailable") + ".example.com"
		apiService := fromJSON(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.` + group +
			`"},"spec":{"group":"` + group + `","version":"v1","groupPriorityMinimum":1000,"versionPriority":10,` +
			`"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"missing","port":443}}}`)
		create(ctx, apiService)
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(apiService), apiService)).To(Succeed())
			conditions, _, _ := unstructured.NestedSlice(apiService.Object, "status", "conditions")
			g.Expect(conditions).To(ContainElement(HaveKeyWithValue("reason", "ServiceNotFound")))
		}).WithContext(ctx).Should(Succeed())
		deleteObject(ctx, namespace)
		Eventually(func(g Gomega) {
			result := diagnose(ctx, namespace.Name)
			g.Expect(causesOf(result)).To(ConsistOf(diagnosis.CauseAPIServiceUnavailable))
			finding := findingOf(result, diagnosis.CauseAPIServiceUnavailable)
			g.Expect(finding.Rank).To(Equal(diagnosis.RankProven))
			g.Expect(finding.Message).To(ContainSubstring("Service default/missing does not exist"))
		}).WithContext(ctx).Should(Succeed())
	})

	It("is blocked by a policy that denies the deletion of its content", func(ctx context.Context) {
		namespace := createNamespace(ctx, "policy")
		protected := wrappers.MakeConfigMap(namespace.Name, "protected")
		create(ctx, protected)
		policy := denyByPolicy(ctx, namespace.Name, protected.Name)
		deleteObject(ctx, namespace)
		result := diagnose(ctx, namespace.Name)
		Expect(causesOf(result)).To(ConsistOf(diagnosis.CauseAdmissionRefused))
		finding := findingOf(result, diagnosis.CauseAdmissionRefused)
		Expect(finding.Rank).To(Equal(diagnosis.RankProven))
		Expect(finding.Message).To(ContainSubstring(policy))
		Expect(finding.Evidence).To(ContainElement(HaveField("Text", ContainSubstring("deletion is protected"))))
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(protected), protected)).To(Succeed(), "the diagnosis uses dry runs")
		Expect(protected.DeletionTimestamp).To(BeNil())
	})

	It("is blocked by the finalizer of an object whose CustomResourceDefinition is terminating", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "definition")
		held := withFinalizer(custom.object(namespace.Name, "held"))
		createCustom(ctx, custom, held)
		deleteObject(ctx, namespace)
		deleteObject(ctx, custom.definition())
		Eventually(func(g Gomega) {
			result := diagnose(ctx, namespace.Name)
			g.Expect(causesOf(result)).To(ConsistOf(diagnosis.CauseFinalizerOwnerNotFound))
			g.Expect(result.Findings[len(result.Findings)-1].Evidence).To(ContainElement(HaveField("Text", And(
				ContainSubstring("CustomResourceDefinition %q has deletionTimestamp", custom.String()),
				ContainSubstring("Terminating=True")))))
		}).WithContext(ctx).Should(Succeed())
	})

	// Long: this spec creates hundreds of CustomResourceDefinitions.
	It("is diagnosed within 10 s in a cluster with 300 additional resource types", Label("long"), func(ctx context.Context) {
		const extra = 300
		for range extra {
			create(ctx, makeCustomType().definition())
		}
		namespace := createNamespace(ctx, "fast")
		held := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, held)
		deleteObject(ctx, namespace, held)
		var facts *diagnosis.Facts
		Eventually(func(g Gomega) {
			facts = collectFacts(ctx, plane.Admin, namespace.Name, 0)
			g.Expect(len(facts.ResourceTypes.Types)).To(BeNumerically(">", extra))
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())

		for range 5 {
			begin := time.Now()
			result := rules.Diagnose(collectFacts(ctx, plane.Admin, namespace.Name, 0))
			took := time.Since(begin)
			AddReportEntry("time", fmt.Sprintf("%d types: %s", len(facts.ResourceTypes.Types), took.Round(time.Millisecond)),
				ReportEntryVisibilityAlways)
			Expect(causesOf(result)).To(ConsistOf(diagnosis.CauseFinalizerOwnerNotFound))
			Expect(took).To(BeNumerically("<", 10*time.Second))
		}
	})
})

// denyByPolicy creates a policy that denies the deletion of objects with the given name in a
// namespace, waits until the policy is enforced, and returns the name of the policy.
func denyByPolicy(ctx context.Context, namespace, name string) string {
	GinkgoHelper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	policy.Name = unique("denial")
	policy.Spec = admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"},
					},
				},
			}},
		},
		Validations: []admissionregistrationv1.Validation{{
			Expression: `request.name != "` + name + `"`, Message: "deletion is protected",
		}},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	binding.Name = policy.Name
	binding.Spec.PolicyName = policy.Name
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	create(ctx, policy, binding)
	Eventually(func() error {
		return admin.Delete(ctx, wrappers.MakeConfigMap(namespace, name), client.DryRunAll)
	}).WithContext(ctx).ShouldNot(Succeed())
	return policy.Name
}
