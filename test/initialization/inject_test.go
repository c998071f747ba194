// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("Injection", func() {
	It("injects the pending list into a namespace with generateName", func(ctx context.Context) {
		cluster.Register(ctx, "generate-name", "a.test.example.com")
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "generated-"}}
		cluster.Ordinary.Creates(ctx, namespace)
		Expect(namespace.Name).To(HavePrefix("generated-"))
		Expect(framework.PendingOf(namespace)).To(Equal("a.test.example.com"))
		cluster.Finish(ctx, namespace.Name)
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonInitialized))
	})

	It("removes user-supplied labels and annotations with the prefix of the project without initializers", func(ctx context.Context) {
		cluster.ExpectInjected(ctx)
		namespace := wrappers.MakeNamespace(framework.Unique("sent")).
			Label(v1alpha1.LabelInitializing, "false").Label("nslifecycle.dev/other", "x").Label("team", "a").
			Annotation(v1alpha1.AnnotationRequestedBy, "another-user").
			Annotation(v1alpha1.AnnotationPendingInitializers, "mine.test.example.com").
			Annotation(v1alpha1.AnnotationInitializers, "").
			Annotation(v1alpha1.AnnotationSelectedTemplates, "team").
			Annotation(v1alpha1.AnnotationInitializationResult, `{"status":"Failure"}`).
			Annotation("nslifecycle.dev/x", "x").
			Annotation("example.com/note", "kept").Label(v1alpha1.LabelDeletionProtection, "enabled").Obj()
		cluster.Ordinary.Creates(ctx, namespace)
		Expect(namespace.Labels).To(Equal(map[string]string{
			corev1.LabelMetadataName: namespace.Name, "team": "a", v1alpha1.LabelDeletionProtection: "enabled",
		}))
		Expect(namespace.Annotations).To(Equal(map[string]string{"example.com/note": "kept"}))
	})

	It("removes the maximum number of keys with the prefix, and keeps other keys", func(ctx context.Context) {
		cluster.Register(ctx, "bound", "a.test.example.com")
		namespace := wrappers.MakeNamespace(framework.Unique("bound")).Label(v1alpha1.LabelDeletionProtection, "enabled").
			Annotation("example.com/note", "kept")
		for i := range 999 {
			namespace.Label(fmt.Sprintf("nslifecycle.dev/%d", i), "").Annotation(fmt.Sprintf("nslifecycle.dev/%d", i), "")
		}
		made := namespace.Obj()
		cluster.Ordinary.Creates(ctx, made)
		Expect(made.Labels).To(And(HaveLen(3), HaveKey(v1alpha1.LabelInitializing), HaveKey(v1alpha1.LabelDeletionProtection)))
		Expect(made.Annotations).To(And(HaveLen(4), HaveKey("example.com/note"), HaveKey(v1alpha1.AnnotationRequestedBy)))
	})

	It("injects the pending list into a namespace that is created with server-side apply", func(ctx context.Context) {
		cluster.Register(ctx, "apply", "a.test.example.com")
		name := framework.Unique("applied")
		manifest := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + name + `",
			"labels":{"nslifecycle.dev/initializing":"false"},
			"annotations":{"nslifecycle.dev/pending-initializers":"","nslifecycle.dev/requested-by":"mallory"}}}`
		_, err := cluster.KubectlWithInput(ctx, cluster.Ordinary.Config, manifest, "apply", "--server-side", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		namespace := cluster.GetNamespace(Default, ctx, name)
		Expect(namespace.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
		Expect(framework.PendingOf(namespace)).To(Equal("a.test.example.com"))
		Expect(namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser))

		By("rejecting a second apply of the same manifest")
		_, err = cluster.KubectlWithInput(ctx, cluster.Ordinary.Config, manifest, "apply", "--server-side", "--force-conflicts", "-f", "-")
		Expect(err).To(BeDeniedBy("guard"))
	})

	It("does not inject a pending list into namespaces that are older than the configuration", func(ctx context.Context) {
		cluster.ExpectInjected(ctx)
		before := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("before"))
		cluster.Register(ctx, "later", "a.test.example.com")
		Expect(framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("after")).Labels).To(HaveKey(v1alpha1.LabelInitializing))
		Consistently(cluster.GetNamespace).WithContext(ctx).WithArguments(before.Name).
			Should(HaveField("Labels", Not(HaveKey(v1alpha1.LabelInitializing))))
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(before.Name).
			Should(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonInitialized))
	})

	It("injects a set with the maximum number of initializers", func(ctx context.Context) {
		long := strings.Repeat("x", 63) + "." + strings.Repeat("y", 63) + "." + strings.Repeat("z", 63)
		for i := range internalv1alpha1.MaxInitializers/64 + 1 {
			var names []string
			for j := range 64 {
				names = append(names, strings.ReplaceAll(framework.Unique("n"), "-", "")+"."+string(rune('a'+i))+string(rune('a'+j%26))+"."+long[:180])
			}
			configuration := wrappers.MakeConfiguration("many-" + string(rune('a'+i))).Initializers(names...).Obj()
			cluster.Admin.Creates(ctx, configuration)
			DeferCleanup(func(ctx context.Context) {
				cluster.Admin.Deletes(ctx, configuration)
				cluster.ExpectDeregistered(ctx, configuration.Name)
			})
			if i < internalv1alpha1.MaxInitializers/64 {
				cluster.ExpectActive(ctx, configuration.Name)
				continue
			}
			Eventually(func(g Gomega) {
				var left v1alpha1.NamespaceInitializerConfiguration
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(configuration), &left)).To(Succeed())
				for conditionType, status := range map[string]metav1.ConditionStatus{
					v1alpha1.ConditionReady: metav1.ConditionFalse, v1alpha1.ConditionStalled: metav1.ConditionTrue,
				} {
					g.Expect(left.Status.Conditions).To(ContainElement(And(HaveField("Type", conditionType),
						HaveField("Status", status), HaveField("Reason", v1alpha1.ReasonTooManyInitializers))))
				}
			}).WithContext(ctx).Should(Succeed())
		}
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("many"))
		Expect(strings.Split(framework.PendingOf(namespace), ",")).To(HaveLen(internalv1alpha1.MaxInitializers))

		By("rejecting a write with a message that truncates the pending list")
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "early"))).To(
			BeForbiddenBy("gate", "and 251 more", "kubectl get namespace"))
		By("removing an initializer from the pending list")
		cluster.Finish(ctx, namespace.Name)
		Expect(strings.Split(framework.PendingOf(cluster.GetNamespace(Default, ctx, namespace.Name)), ",")).To(HaveLen(internalv1alpha1.MaxInitializers - 1))
	})
})
