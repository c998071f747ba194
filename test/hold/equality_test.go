// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("An object of a held write", func() {
	It("equals an object that is created after the initialization", func(ctx context.Context) {
		mutateSelected(ctx)
		namespace := cluster.CreateInitializing(ctx, "equal").Name
		create := func(name string) map[string]client.Object {
			objects := makeObjects(namespace, name)
			for _, object := range objects {
				Expect(cluster.Ordinary.Create(ctx, object)).To(Succeed())
			}
			return objects
		}
		held := make(chan map[string]client.Object, 1)
		before := receivedWrites()
		go func() {
			defer GinkgoRecover()
			defer close(held)
			held <- create("held")
		}()
		Eventually(receivedWrites).WithContext(ctx).Should(BeNumerically(">", before))

		By("adding defaults and a label that selects the namespace for a policy")
		Expect(cluster.Initializer.Create(ctx, &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Name: "defaults", Namespace: namespace},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type:    corev1.LimitTypeContainer,
				Default: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
			}}},
		})).To(Succeed())
		addLabel(ctx, namespace)
		cluster.Finish(ctx, namespace)

		var got map[string]client.Object
		Eventually(held).WithContext(ctx).Should(Receive(&got))
		for kind, want := range create("later") {
			Expect(normalized(got[kind])).To(Equal(normalized(want)), kind)
		}
		pod := got["Pod"].(*corev1.Pod)
		Expect(pod.Spec.Containers[0].Resources.Limits).To(HaveKey(corev1.ResourceMemory))
		Expect(pod.Annotations).To(HaveKey("example.com/mutated"))
	})
})

// selectedLabel selects namespaces for a mutating policy.
const selectedLabel = "test.example.com/selected"

func addLabel(ctx context.Context, name string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+selectedLabel+`":""}}}`))
	Expect(cluster.Initializer.Patch(ctx, namespace, patch)).To(Succeed())
}

func makeObjects(namespace, name string) map[string]client.Object {
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
	return map[string]client.Object{
		"Pod": &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web:1"}},
		}},
		"PersistentVolumeClaim": &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		}},
		"Service": &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
	}
}

// normalized returns an object without the fields that differ between any two objects.
func normalized(object client.Object) client.Object {
	object.SetName("")
	object.SetUID("")
	object.SetResourceVersion("")
	object.SetCreationTimestamp(metav1.Time{})
	object.SetManagedFields(nil)
	if service, ok := object.(*corev1.Service); ok {
		service.Spec.ClusterIP, service.Spec.ClusterIPs = "", nil
	}
	return object
}

// mutateSelected adds an annotation to all objects in namespaces with selectedLabel.
func mutateSelected(ctx context.Context) {
	GinkgoHelper()
	selected := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("selected"))
	addLabel(ctx, selected.Name)
	name := framework.Unique("mutate")
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      ptr.To(admissionregistrationv1.Fail),
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule: admissionregistrationv1.Rule{
							APIGroups: []string{""}, APIVersions: []string{"v1"},
							Resources: []string{"pods", "services", "persistentvolumeclaims"},
						},
					},
				}},
			},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
					Expression: `Object{metadata: Object.metadata{annotations: {"example.com/mutated": "true"}}}`,
				},
			}},
		},
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: name,
			MatchResources: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: selectedLabel, Operator: metav1.LabelSelectorOpExists},
				}},
			},
		},
	}
	for _, object := range []client.Object{policy, binding} {
		Expect(cluster.Admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, object)).To(Succeed()) })
	}
	// The API server compiles a policy a few milliseconds after its creation.
	Eventually(func(g Gomega) {
		probe := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: selected.Name},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		g.Expect(cluster.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Annotations).To(HaveKey("example.com/mutated"))
	}).WithContext(ctx).Should(Succeed())
}
