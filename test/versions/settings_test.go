// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("Settings of an initializer", func() {
	const searchFinalizer corev1.FinalizerName = "search.example.com/index"
	team := func(name string) *v1alpha1.NamespaceSelector {
		return &v1alpha1.NamespaceSelector{
			MatchLabels: map[string]v1alpha1.LabelValue{"team": v1alpha1.LabelValue(name)},
			MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{
				{Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []v1alpha1.LabelValue{"free"}},
			},
		}
	}
	// in creates a namespace with labels, as the ordinary user.
	in := func(ctx context.Context, labels ...string) string {
		GinkgoHelper()
		wrapper := wrappers.MakeNamespace(unique("settings"))
		for i := 0; i < len(labels); i += 2 {
			wrapper.Label(labels[i], labels[i+1])
		}
		Expect(ordinary.Create(ctx, wrapper.Obj())).To(Succeed())
		return wrapper.Name
	}
	register := func(ctx context.Context, wrapper *wrappers.ConfigurationWrapper) {
		GinkgoHelper()
		configuration := wrapper.Obj()
		Expect(admin.Create(ctx, configuration)).To(Succeed())
		DeferCleanup(deregister, configuration)
		expectActive(ctx, configuration.Name, metav1.ConditionTrue, v1alpha1.ReasonEnforced)
	}

	It("select the namespaces that get the initializer and its finalizer", func(ctx context.Context) {
		register(ctx, wrappers.MakeConfiguration("settings").
			Initializer(rbac, v1alpha1.InitializerSettings{NamespaceSelector: team("a"), Finalizer: string(searchFinalizer)}).
			Initializer(quota, v1alpha1.InitializerSettings{NamespaceSelector: team("b")}))
		for _, test := range []struct {
			labels     []string
			list       string
			finalizers []corev1.FinalizerName
		}{
			{labels: []string{"team", "a"}, list: rbac, finalizers: []corev1.FinalizerName{searchFinalizer, corev1.FinalizerKubernetes}},
			{labels: []string{"team", "b"}, list: quota, finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		} {
			namespace := expectPending(ctx, in(ctx, test.labels...))
			Expect(namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPendingInitializers, test.list))
			Expect(namespace.Spec.Finalizers).To(ConsistOf(test.finalizers))
		}
		for _, labels := range [][]string{nil, {"team", "c"}, {"team", "a", "tier", "free"}} {
			namespace := expectWritable(ctx, in(ctx, labels...), v1alpha1.ReasonNotRequired)
			Expect(namespace.Spec.Finalizers).To(Equal([]corev1.FinalizerName{corev1.FinalizerKubernetes}))
		}
	})

	It("add the finalizer in the request that adds the list", func(ctx context.Context) {
		register(ctx, wrappers.MakeConfiguration("moment").
			Initializer(rbac, v1alpha1.InitializerSettings{Finalizer: string(searchFinalizer)}))
		clientset, err := kubernetes.NewForConfig(controlplane.Unlimited(plane.Admin))
		Expect(err).NotTo(HaveOccurred())
		name := unique("moment")
		watching, err := clientset.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(),
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(watching.Stop)
		create(ctx, name)
		for isListed := false; !isListed; {
			var event watch.Event
			Eventually(watching.ResultChan()).WithContext(ctx).Should(Receive(&event))
			namespace := event.Object.(*corev1.Namespace)
			isListed = namespace.Annotations[v1alpha1.AnnotationPendingInitializers] != ""
			Expect(slices.Contains(namespace.Spec.Finalizers, searchFinalizer)).To(Equal(isListed))
			_, isLabelled := namespace.Labels[v1alpha1.LabelInitializing]
			Expect(isLabelled).To(Equal(isListed))
		}

		By("deleting the namespace, which requires that the responsible controller removes the finalizer")
		Expect(ordinary.Delete(ctx, wrappers.MakeNamespace(name).Obj())).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, name).Spec.Finalizers).To(Equal([]corev1.FinalizerName{searchFinalizer}))
		}).WithContext(ctx).Should(Succeed())
		Eventually(func() error {
			held := get(Default, ctx, name)
			held.Spec.Finalizers = nil
			return initializer.SubResource("finalize").Update(ctx, held)
		}).WithContext(ctx).Should(Succeed())
		expectDeleted(ctx, name)
	})

	It("do not allow other users to add the finalizer together with a list", func(ctx context.Context) {
		if !byOperator {
			Skip("the API server injects the list at creation")
		}
		stopManager()
		DeferCleanup(startManager)
		name := unique("forged")
		namespace := create(ctx, name)
		addList(namespace)
		namespace.Spec.Finalizers = append(namespace.Spec.Finalizers, searchFinalizer)
		Expect(initializer.SubResource("finalize").Update(ctx, namespace)).To(BeDeniedBy("guard"))
		Expect(get(Default, ctx, name).Spec.Finalizers).To(Equal([]corev1.FinalizerName{corev1.FinalizerKubernetes}))
	})
})
