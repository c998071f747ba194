// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("An object of a held write", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "no policies of other projects change the object")
		mutate(ctx)
	})

	DescribeTable("equals one that is created after the initialization",
		func(ctx context.Context, change func(ctx context.Context, namespace string), key, value string) {
			namespace := cluster.CreateInitializing(ctx, "equal").Name
			patchNamespace(ctx, namespace, `{"metadata":{"labels":{"`+removedLabel+`":""}}}`)
			held := makeObjects(namespace, "held")
			var writes errgroup.Group
			for _, object := range held {
				writes.Go(func() error { return cluster.Ordinary.Create(ctx, object) })
			}
			Eventually(heldWrites).WithContext(ctx).Should(BeEquivalentTo(len(held)))
			change(ctx, namespace)
			cluster.Finish(ctx, namespace)
			Expect(writes.Wait()).To(Succeed())
			for kind, want := range makeObjects(namespace, "later") {
				cluster.Ordinary.Creates(ctx, want)
				Expect(normalized(held[kind])).To(Equal(normalized(want)), kind)
				Expect(want.GetAnnotations()).To(HaveKeyWithValue(key, value), kind)
			}
		},
		Entry("whatever happens", func(context.Context, string) {}, "example.com/initializing", "false"),
		Entry("if a label is added that selects a policy", func(ctx context.Context, namespace string) {
			patchNamespace(ctx, namespace, `{"metadata":{"labels":{"`+selectedLabel+`":""}}}`)
		}, "example.com/selected", "true"),
		Entry("if a label is removed", func(ctx context.Context, namespace string) {
			patchNamespace(ctx, namespace, `{"metadata":{"labels":{"`+removedLabel+`":null}}}`)
		}, "example.com/label", "false"),
		Entry("if an annotation is set", func(ctx context.Context, namespace string) {
			patchNamespace(ctx, namespace, `{"metadata":{"annotations":{"test.example.com/annotation":"set"}}}`)
		}, "example.com/annotation", "set"),
		Entry("if the parameters of a policy are created", func(ctx context.Context, namespace string) {
			cluster.Initializer.Creates(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: parameters, Namespace: namespace}, Data: map[string]string{"team": "blue"},
			})
		}, "example.com/parameter", "blue"),
		Entry("if a LimitRange is created", func(ctx context.Context, namespace string) {
			cluster.Initializer.Creates(ctx, &corev1.LimitRange{
				ObjectMeta: metav1.ObjectMeta{Name: "defaults", Namespace: namespace},
				Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
					Type:    corev1.LimitTypeContainer,
					Default: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
				}}},
			})
		}, "example.com/initializing", "false"),
	)
})

const (
	// selectedLabel selects namespaces for a mutating policy. removedLabel is removed by the initializer.
	selectedLabel = "test.example.com/selected"
	removedLabel  = "test.example.com/removed"
	// parameters is the name of the ConfigMap with the parameters of a policy, in the namespace.
	parameters = "parameters"
)

func patchNamespace(ctx context.Context, name, patch string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cluster.Initializer.Patches(ctx, namespace, patch)
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

// mutate installs policies that annotate new objects with what they evaluate.
func mutate(ctx context.Context) {
	GinkgoHelper()
	type binding = admissionregistrationv1.MutatingAdmissionPolicyBindingSpec
	annotate := func(name, annotations string, binding binding) {
		GinkgoHelper()
		requests := framework.RequestsFor("", "pods", admissionregistrationv1.Create)
		requests.Resources = append(requests.Resources, "services", "persistentvolumeclaims")
		framework.MutateByPolicy(ctx, cluster.Admin, framework.Unique(name), requests,
			`Object{metadata: Object.metadata{annotations: {`+annotations+`}}}`, binding)
	}
	annotate("selected", `"example.com/selected": "true"`, binding{MatchResources: &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: selectedLabel, Operator: metav1.LabelSelectorOpExists},
		}},
	}})
	annotate("parameter", `"example.com/parameter": params.data.team`, binding{ParamRef: &admissionregistrationv1.ParamRef{
		Name: parameters, ParameterNotFoundAction: ptr.To(admissionregistrationv1.AllowAction),
	}})
	annotate("namespace", `
		"example.com/annotation": namespaceObject.metadata.?annotations[?"test.example.com/annotation"].orValue(""),
		"example.com/label": string("`+removedLabel+`" in namespaceObject.metadata.labels),
		"example.com/initializing": string("`+v1alpha1.LabelInitializing+`" in namespaceObject.metadata.labels)`, binding{})

	// The API server compiles a policy a few milliseconds after its creation.
	probes := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("probes")).Name
	patchNamespace(ctx, probes, `{"metadata":{"labels":{"`+selectedLabel+`":""}}}`)
	cluster.Admin.Creates(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: parameters, Namespace: probes}, Data: map[string]string{"team": "red"},
	})
	Eventually(func(g Gomega) {
		probe := makeObjects(probes, "probe")["Service"]
		g.Expect(cluster.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.GetAnnotations()).To(And(HaveKey("example.com/selected"), HaveKey("example.com/parameter"),
			HaveKey("example.com/label")))
	}).WithContext(ctx).Should(Succeed())
}
