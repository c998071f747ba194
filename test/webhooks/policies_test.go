// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// foreignPolicy is a policy of another project that has the label of this project's policies.
const foreignPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: other.example.com, labels: {nslifecycle.dev/policy: other}}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [podtemplates]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: "[JSONPatch{op: 'test', path: '/kind', value: 'PodTemplate'}]"}
`

// restoredWithin is less than a minute, after which the operator verifies the policies without an event.
const restoredWithin = 40 * time.Second

// policyNames are the names of the policies and of their bindings.
var policyNames = []string{"nslifecycle-complete", "nslifecycle-inject", "nslifecycle-require-set"}

// installed returns the names of the policies and bindings of this project.
func installed(g Gomega, ctx context.Context) (policies, bindings []string) {
	var policyList admissionv1.MutatingAdmissionPolicyList
	var bindingList admissionv1.MutatingAdmissionPolicyBindingList
	ours := client.MatchingLabels{"app.kubernetes.io/name": "nslifecycle"}
	g.Expect(cluster.Admin.List(ctx, &policyList, ours)).To(Succeed())
	g.Expect(cluster.Admin.List(ctx, &bindingList, ours)).To(Succeed())
	for _, policy := range policyList.Items {
		policies = append(policies, policy.Name)
	}
	for _, binding := range bindingList.Items {
		bindings = append(bindings, binding.Name)
	}
	return policies, bindings
}

func expectInstalled(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		policies, bindings := installed(g, ctx)
		g.Expect(policies).To(ConsistOf(policyNames))
		g.Expect(bindings).To(ConsistOf(policyNames))
	}).WithContext(ctx).WithTimeout(restoredWithin).Should(Succeed())
}

func deleteInstalled(ctx context.Context) {
	GinkgoHelper()
	_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", "mutatingadmissionpolicybindings,mutatingadmissionpolicies",
		"--selector=app.kubernetes.io/name=nslifecycle")
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("On an API server with MutatingAdmissionPolicy, the operator", Ordered, func() {
	BeforeAll(func(ctx context.Context) {
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "there is nothing to apply")
		_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, foreignPolicy, "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			cluster.Admin.Deletes(ctx, policyObject("other.example.com"))
		})
	}, NodeTimeout(8*time.Minute))

	It("applies the policies, owned by the gate policy", func(ctx context.Context) {
		expectInstalled(ctx)
		cluster.Register(ctx, "policies", first)
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("policies"))
		Expect(framework.PendingOf(namespace)).To(Equal(first))
		gate := validatingPolicy("nslifecycle-gate")
		cluster.Admin.Reads(ctx, gate)
		owner := metav1.OwnerReference{
			APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy", Name: gate.Name, UID: gate.UID,
		}
		for _, name := range policyNames {
			policy, binding := policyObject(name), bindingObject(name)
			for _, object := range []client.Object{policy, binding} {
				cluster.Admin.Reads(ctx, object)
			}
			Expect(policy.OwnerReferences).To(ConsistOf(owner), name)
			ownerOfBinding := owner
			if name == internalv1alpha1.InjectConfiguration { // An administrator can have applied the policy.
				ownerOfBinding.Kind, ownerOfBinding.Name, ownerOfBinding.UID = "MutatingAdmissionPolicy", name, policy.UID
			}
			Expect(binding.OwnerReferences).To(ConsistOf(ownerOfBinding), name)
		}
	}, SpecTimeout(5*time.Minute))

	DescribeTable("restores what an administrator changes or deletes, within seconds",
		func(ctx context.Context, object client.Object, patch string) {
			cluster.Register(ctx, "restored", first)
			cluster.Admin.Reads(ctx, object)
			want := object.DeepCopyObject().(client.Object)
			if patch == "" {
				cluster.Admin.Deletes(ctx, object)
			} else {
				cluster.Admin.Patches(ctx, object, patch)
			}
			Eventually(func(g Gomega) {
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
				g.Expect(specOf(object)).To(Equal(specOf(want)))
				g.Expect(object.GetLabels()).To(Equal(want.GetLabels()))
			}).WithContext(ctx).WithTimeout(restoredWithin).Should(Succeed())
			Expect(specOf(object)).NotTo(BeNil())
			cluster.ExpectInjected(ctx)
			cluster.ExpectActive(ctx, "restored")
		},
		Entry("a deleted policy", policyObject("nslifecycle-inject"), ""),
		Entry("a deleted binding", bindingObject("nslifecycle-complete"), ""),
		Entry("the rules of a policy", policyObject("nslifecycle-complete"), `{"spec":{"matchConditions":null,
			"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'test', path: '/kind'}]"}}]}}`),
		Entry("the requests of a binding", bindingObject("nslifecycle-inject"), `{"spec":{"matchResources":{
			"objectSelector":{"matchLabels":{"none":"none"}}}}}`),
		Entry("the label that identifies a policy", policyObject("nslifecycle-inject"),
			`{"metadata":{"labels":{"nslifecycle.dev/policy":null}}}`),
		Entry("a deleted validating policy", validatingPolicy("nslifecycle-templates"), ""),
		Entry("a deleted binding of one", validatingBinding("nslifecycle-waiting-subjects"), ""),
		Entry("the rules of one", validatingPolicy("nslifecycle-initializer-subjects"),
			`{"spec":{"matchConditions":null,"validations":[{"expression":"true"}]}}`),
		Entry("the requests of its binding", validatingBinding("nslifecycle-templates"), `{"spec":{"matchResources":{
			"objectSelector":{"matchLabels":{"none":"none"}}}}}`),
	)

	It("does not change the policies of other projects", func(ctx context.Context) {
		other := policyObject("other.example.com")
		cluster.Admin.Reads(ctx, other)
		Expect(other.Generation).To(Equal(int64(1)))
		Expect(other.ManagedFields).To(HaveLen(1))
	}, SpecTimeout(time.Minute))

	It("reports missing policies without its permission, and uses those that an administrator applies",
		func(ctx context.Context) {
			cluster.StopManager()
			deleteInstalled(ctx)
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "nslifecycle-webhook-policies"}}
			cluster.Admin.Deletes(ctx, role)
			manual := wrappers.MakeConfiguration("manual").Initializers(first).Obj()
			DeferCleanup(func(ctx context.Context) {
				cluster.StopManager()
				deleteInstalled(ctx)
				cluster.Admin.Deletes(ctx, manual)
				cluster.Install(ctx, "default")
				restartManager(ctx)
				cluster.ExpectDeregistered(ctx, "manual")
			})
			cluster.StartManager(ctx) // The webhooks need permissions, too.
			cluster.Admin.Creates(ctx, manual)
			cluster.ExpectReason(ctx, manual.Name, v1alpha1.ReasonPolicyMissing)
			policies, bindings := installed(Default, ctx)
			Expect(append(policies, bindings...)).To(BeEmpty())

			_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-f", filepath.Join(controlplane.Root(), "config", "mutating"))
			Expect(err).NotTo(HaveOccurred())
			cluster.ExpectActive(ctx, "manual")
			cluster.ExpectInjected(ctx)
			for _, name := range policyNames {
				policy := policyObject(name)
				cluster.Admin.Reads(ctx, policy)
				Expect(policy.OwnerReferences).To(BeEmpty())
			}
		})

	It("lets the garbage collector delete the policies with the gate policy", func(ctx context.Context) {
		collector, err := cluster.StartControllerManager(ctx, "--controllers=garbage-collector-controller")
		if errors.Is(err, controlplane.ErrNoControllerManager) {
			Skip(err.Error())
		}
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			Expect(collector.Stop()).To(Succeed())
			cluster.StopManager()
			cluster.Install(ctx, "default")
			restartManager(ctx)
		})
		expectInstalled(ctx)
		cluster.Admin.Deletes(ctx, validatingPolicy("nslifecycle-gate"))
		Eventually(func(g Gomega) {
			policies, bindings := installed(g, ctx)
			g.Expect(append(policies, bindings...)).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))
})

func policyObject(name string) *admissionv1.MutatingAdmissionPolicy {
	return &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func bindingObject(name string) *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func validatingPolicy(name string) *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func validatingBinding(name string) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func specOf(object client.Object) any {
	switch object := object.(type) {
	case *admissionv1.MutatingAdmissionPolicy:
		return object.Spec
	case *admissionv1.MutatingAdmissionPolicyBinding:
		return object.Spec
	case *admissionv1.ValidatingAdmissionPolicy:
		spec := object.Spec.DeepCopy()
		spec.FailurePolicy = nil // It is Fail if an earlier spec has used the policy, and Ignore after a deletion.
		return *spec
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		return object.Spec
	}
	return nil
}
