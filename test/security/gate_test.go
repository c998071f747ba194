// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// serviceBusGroup has a namespaced resource with the plural "namespaces", like the group
// servicebus.azure.com.
const serviceBusGroup = "servicebus.test.example.com"

func makeServiceBus(namespace, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetAPIVersion(serviceBusGroup + "/v1")
	object.SetKind("Namespace")
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

var _ = Describe("The gate for custom resources with the plural namespaces", Ordered, ContinueOnFailure, func() {
	var initializing, initialized *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		installCRD(ctx, serviceBusGroup, "namespaces", "namespace", "Namespace", "sb", "Namespaced")
		initialized = framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("initialized"))
		initializing = cluster.CreateInitializing(ctx, "plural")
		for _, namespace := range []*corev1.Namespace{initializing, initialized} {
			Eventually(cluster.Initializer.Create).WithContext(ctx).
				WithArguments(makeServiceBus(namespace.Name, "existing")).Should(Succeed())
		}
	}, NodeTimeout(specTimeout))

	writes := map[string]func(ctx context.Context, namespace string) error{
		"CREATE": func(ctx context.Context, namespace string) error {
			return cluster.Ordinary.Create(ctx, makeServiceBus(namespace, framework.Unique("new")))
		},
		"CREATE with the initializing label": func(ctx context.Context, namespace string) error {
			object := makeServiceBus(namespace, framework.Unique("new"))
			object.SetLabels(map[string]string{"nslifecycle.dev/initializing": "true"})
			return cluster.Ordinary.Create(ctx, object)
		},
		"PUT": func(ctx context.Context, namespace string) error {
			object := makeServiceBus(namespace, "existing")
			if err := cluster.Ordinary.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			object.SetLabels(map[string]string{"a": framework.Unique("b")})
			return cluster.Ordinary.Update(ctx, object)
		},
		"merge patch": func(ctx context.Context, namespace string) error {
			return cluster.Ordinary.Patch(ctx, makeServiceBus(namespace, "existing"),
				mergePatch(`{"spec":{"a":"`+framework.Unique("b")+`"}}`))
		},
		"server-side apply": func(ctx context.Context, namespace string) error {
			object := makeServiceBus(namespace, framework.Unique("applied"))
			return cluster.Ordinary.Patch(ctx, object, client.RawPatch(types.ApplyPatchType, mustEncode(object)),
				&client.PatchOptions{FieldManager: "test"})
		},
		"status patch": func(ctx context.Context, namespace string) error {
			return cluster.Ordinary.Status().Patch(ctx, makeServiceBus(namespace, "existing"),
				mergePatch(`{"status":{"a":"`+framework.Unique("b")+`"}}`))
		},
		"DELETE": func(ctx context.Context, namespace string) error {
			return cluster.Ordinary.Delete(ctx, makeServiceBus(namespace, "existing"), client.DryRunAll)
		},
	}
	for name, write := range writes {
		It("rejects writes to an initializing namespace, but not to an initialized one: "+name, func(ctx context.Context) {
			Expect(write(ctx, initializing.Name)).To(BeForbiddenBy("gate",
				`namespace "`+initializing.Name+`" is being initialized`))
			Expect(write(ctx, initialized.Name)).To(Succeed())
		}, SpecTimeout(5*time.Minute))
	}

	It("does not apply to Namespaces of the core group", func(ctx context.Context) {
		framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("core"))
		_, err := cluster.Kubectl(ctx, cluster.Ordinary.Config, "label", "namespace", initializing.Name, "team=a")
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("A terminating namespace that was being initialized", Ordered, ContinueOnFailure, func() {
	var namespace *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		namespace = cluster.CreateInitializing(ctx, "terminating")
		for _, object := range []client.Object{wrappers.MakePod("", "held"), wrappers.MakeConfigMap("", "untouched")} {
			object.SetNamespace(namespace.Name)
			object.SetFinalizers([]string{"test.example.com/hold"})
			Eventually(cluster.Initializer.Create).WithContext(ctx).WithArguments(object).Should(Succeed())
			DeferCleanup(func(ctx context.Context) { _ = cluster.Admin.Patch(ctx, object, withoutFinalizers) })
		}
		Expect(cluster.Ordinary.Delete(ctx, namespace)).To(Succeed())
		// The operator deletes Pods first, so the ConfigMap is not terminating yet.
		Eventually(func(g Gomega) {
			held := &corev1.Pod{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "held"}, held)).To(Succeed())
			g.Expect(held.DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(5*time.Minute))

	It("does not let a user update an object that is not terminating", func(ctx context.Context) {
		Expect(cluster.Ordinary.Patch(ctx, wrappers.MakeConfigMap(namespace.Name, "untouched"),
			mergePatch(`{"data":{"a":"b"}}`))).To(BeForbiddenBy("gate"))
	}, SpecTimeout(5*time.Minute))

	It("does not let a user add an ephemeral container, even to a terminating Pod", func(ctx context.Context) {
		_, err := cluster.Ordinary.Clientset().CoreV1().Pods(namespace.Name).Patch(ctx, "held", types.StrategicMergePatchType,
			[]byte(`{"spec":{"ephemeralContainers":[{"name":"d","image":"example.com/debug"}]}}`), metav1.PatchOptions{},
			"ephemeralcontainers")
		Expect(err).To(BeForbiddenBy("gate"))
	}, SpecTimeout(5*time.Minute))

	It("allows a user to delete an object", func(ctx context.Context) {
		Expect(cluster.Ordinary.Delete(ctx, wrappers.MakeConfigMap(namespace.Name, "untouched"), client.DryRunAll)).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("allows a controller without the initialize verb to remove its finalizer from a terminating object", func(ctx context.Context) {
		Expect(cluster.Ordinary.Patch(ctx, wrappers.MakePod(namespace.Name, "held"), withoutFinalizers)).To(Succeed())
	}, SpecTimeout(5*time.Minute))
})
