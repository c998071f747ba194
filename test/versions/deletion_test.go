// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("The deletion of a namespace", func() {
	It("completes when the namespace is empty", func(ctx context.Context) {
		name := unique("deletion")
		namespace := create(ctx, name)
		for _, object := range []client.Object{
			wrappers.MakeConfigMap(name, "settings"),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "password"}},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "worker"}},
		} {
			Expect(ordinary.Create(ctx, object)).To(Succeed())
		}
		Expect(ordinary.Delete(ctx, namespace)).To(Succeed())
		expectDeleted(ctx, name)
		// The objects of the namespace must also be deleted.
		secrets := &corev1.SecretList{}
		Expect(admin.List(ctx, secrets, client.InNamespace(name))).To(Succeed())
		Expect(secrets.Items).To(BeEmpty())
	})

	It("waits for a finalizer, which a condition reports", func(ctx context.Context) {
		name := unique("held")
		namespace := create(ctx, name)
		held := wrappers.MakeConfigMap(name, "held")
		held.SetFinalizers([]string{"corp.example.com/held"})
		Expect(ordinary.Create(ctx, held)).To(Succeed())
		Expect(ordinary.Delete(ctx, namespace)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, name).Status.Conditions).To(ContainElement(HaveField("Type", corev1.NamespaceFinalizersRemaining)))
		}).WithContext(ctx).Should(Succeed())
		output, err := plugin(ctx, "explain", name)
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(output).To(And(ContainSubstring("Namespace "+name+": Terminating"), ContainSubstring("1 configmaps")))
		Expect(ordinary.Get(ctx, client.ObjectKeyFromObject(held), held)).To(Succeed())
		held.SetFinalizers(nil)
		Expect(ordinary.Update(ctx, held)).To(Succeed())
		expectDeleted(ctx, name)
	})
})

var _ = Describe("kubectl nslifecycle", func() {
	It("prints the pending initializer of a namespace", func(ctx context.Context) {
		register(ctx, "explained", rbac, quota)
		name := createInjected(ctx, unique("explained")).Name
		output, err := plugin(ctx, "explain", name)
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(output).To(ContainSubstring(rbac))
		finish(ctx, name)
		finish(ctx, name)
		expectWritable(ctx, name, v1alpha1.ReasonCompleted)
		output, err = plugin(ctx, "explain", name)
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(output).NotTo(ContainSubstring("waiting"))
	})

	It("creates a namespace and waits for its initializers", func(ctx context.Context) {
		register(ctx, "created", rbac)
		serve(ctx, rbac, func(ctx context.Context, clientset kubernetes.Interface, namespace *corev1.Namespace) error {
			_, err := clientset.CoreV1().ConfigMaps(namespace.Name).Apply(ctx,
				applycorev1.ConfigMap("prepared", namespace.Name), metav1.ApplyOptions{FieldManager: rbac, Force: true})
			return err
		})
		name := unique("created")
		output, err := plugin(ctx, "create", name, "--wait")
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(output).To(ContainSubstring("ready"))
		Expect(admin.Get(ctx, client.ObjectKey{Namespace: name, Name: "prepared"}, &corev1.ConfigMap{})).To(Succeed())
	})

	It("prints its version", func(ctx context.Context) {
		output, err := plugin(ctx, "version")
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(output).To(HavePrefix("kubectl-nslifecycle "))
		output, err = plugin(ctx, "use", preExistingName)
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(output).To(ContainSubstring(preExistingName))
	})
})
