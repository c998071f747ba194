// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("Injection", func() {
	It("returns the pending list in the response to the CREATE request", func(ctx context.Context) {
		cluster.Register(ctx, "inject", "a.test.example.com", "b.test.example.com")
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("inject"))
		Expect(namespace.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
		Expect(namespace.Annotations).To(And(
			HaveKeyWithValue(v1alpha1.AnnotationPendingInitializers, "a.test.example.com,b.test.example.com"),
			HaveKeyWithValue(v1alpha1.AnnotationInitializers, "a.test.example.com,b.test.example.com"),
			HaveKeyWithValue(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser),
		))
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(BeInitializing(corev1.ConditionTrue, v1alpha1.ReasonPending))
		now := cluster.GetNamespace(Default, ctx, namespace.Name)
		Expect(framework.ConditionMessage(now, v1alpha1.ConditionInitializing)).To(ContainSubstring("a.test.example.com (1 of 2)"))
		Expect(now).To(HaveCondition("b.test.example.com/Initialized", corev1.ConditionFalse, v1alpha1.ReasonPending))
	}, SpecTimeout(5*time.Minute))

	It("injects the pending list into a namespace with generateName", func(ctx context.Context) {
		cluster.Register(ctx, "generate-name", "a.test.example.com")
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "generated-"}}
		Expect(cluster.Ordinary.Create(ctx, namespace)).To(Succeed())
		Expect(namespace.Name).To(HavePrefix("generated-"))
		Expect(framework.PendingOf(namespace)).To(Equal("a.test.example.com"))
		cluster.Finish(ctx, namespace.Name)
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonCompleted))
	}, SpecTimeout(5*time.Minute))

	It("removes user-supplied labels and annotations with the prefix of the project", func(ctx context.Context) {
		send := func(name string) *corev1.Namespace {
			return wrappers.MakeNamespace(name).
				Label(v1alpha1.LabelInitializing, "false").Label("nslifecycle.dev/other", "x").Label("team", "a").
				Annotation(v1alpha1.AnnotationRequestedBy, "another-user").
				Annotation(v1alpha1.AnnotationPendingInitializers, "mine.test.example.com").
				Annotation(v1alpha1.AnnotationInitializers, "").
				Annotation(v1alpha1.AnnotationSelectedTemplates, "team").
				Annotation(v1alpha1.AnnotationInitializationResult, `{"status":"Failure"}`).
				Annotation("example.com/note", "kept").Obj()
		}
		By("registering no initializer")
		cluster.ExpectInjected(ctx)
		namespace := send(framework.Unique("sent"))
		Expect(cluster.Ordinary.Create(ctx, namespace)).To(Succeed())
		Expect(namespace.Labels).To(And(HaveKeyWithValue("team", "a"), Not(HaveKey(HavePrefix(v1alpha1.Prefix)))))
		Expect(namespace.Annotations).To(Equal(map[string]string{"example.com/note": "kept"}))

		By("registering an initializer")
		cluster.Register(ctx, "sent", "a.test.example.com")
		namespace = send(framework.Unique("sent"))
		Expect(cluster.Ordinary.Create(ctx, namespace)).To(Succeed())
		Expect(namespace.Labels).To(And(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"),
			Not(HaveKey("nslifecycle.dev/other"))))
		Expect(namespace.Annotations).To(Equal(map[string]string{
			"example.com/note":                     "kept",
			v1alpha1.AnnotationPendingInitializers: "a.test.example.com",
			v1alpha1.AnnotationInitializers:        "a.test.example.com",
			v1alpha1.AnnotationRequestedBy:         framework.OrdinaryUser,
		}))
	}, SpecTimeout(5*time.Minute))

	It("keeps the labels and annotations that users can set: deletion protection and expiry", func(ctx context.Context) {
		send := func(name string) *wrappers.NamespaceWrapper {
			return wrappers.MakeNamespace(name).
				Label(v1alpha1.LabelDeletionProtection, "enabled").Annotation(v1alpha1.AnnotationTTL, "8h").
				Annotation(v1alpha1.AnnotationExpiresAt, "2099-01-01T00:00:00Z")
		}
		kept := And(HaveField("Labels", HaveKeyWithValue(v1alpha1.LabelDeletionProtection, "enabled")),
			HaveField("Annotations", And(HaveKeyWithValue(v1alpha1.AnnotationTTL, "8h"),
				HaveKeyWithValue(v1alpha1.AnnotationExpiresAt, "2099-01-01T00:00:00Z"))))
		// Users cannot set similar keys, or use a label instead of an annotation.
		stripped := []string{
			"nslifecycle.dev/deletion-protection-x", "nslifecycle.dev/ttl-x", "nslifecycle.dev/tt", "nslifecycle.dev/expires-a",
		}
		expectOnlyKept := func(namespace *corev1.Namespace) {
			GinkgoHelper()
			Expect(namespace).To(kept)
			for _, key := range append(stripped, v1alpha1.AnnotationTTL, v1alpha1.AnnotationExpiresAt) {
				Expect(namespace.Labels).NotTo(HaveKey(key))
			}
			for _, key := range append(stripped, v1alpha1.LabelDeletionProtection) {
				Expect(namespace.Annotations).NotTo(HaveKey(key))
			}
		}
		for _, registered := range []string{"", "kept"} {
			if registered == "" {
				By("registering no initializer")
				cluster.ExpectInjected(ctx)
			} else {
				By("registering an initializer")
				cluster.Register(ctx, registered, "a.test.example.com")
			}
			alone := send(framework.Unique("kept")).Obj()
			Expect(cluster.Ordinary.Create(ctx, alone)).To(Succeed())
			expectOnlyKept(alone)
			Expect(alone.Labels[v1alpha1.LabelInitializing]).To(Equal(map[string]string{"": "", "kept": "true"}[registered]))

			more := send(framework.Unique("kept")).Label(v1alpha1.AnnotationTTL, "x").Label(v1alpha1.AnnotationExpiresAt, "x").
				Annotation(v1alpha1.LabelDeletionProtection, "x")
			for _, key := range stripped {
				more.Label(key, "x").Annotation(key, "x")
			}
			namespace := more.Obj()
			Expect(cluster.Ordinary.Create(ctx, namespace)).To(Succeed())
			expectOnlyKept(namespace)
			Expect(namespace.Labels[v1alpha1.LabelInitializing]).To(Equal(alone.Labels[v1alpha1.LabelInitializing]))
		}
	}, SpecTimeout(5*time.Minute))

	It("removes the maximum number of keys with the prefix, and keeps other keys", func(ctx context.Context) {
		cluster.Register(ctx, "bound", "a.test.example.com")
		namespace := wrappers.MakeNamespace(framework.Unique("bound")).Label(v1alpha1.LabelDeletionProtection, "enabled").
			Annotation(v1alpha1.AnnotationTTL, "8h")
		for i := range 999 {
			namespace.Label(fmt.Sprintf("nslifecycle.dev/%d", i), "").Annotation(fmt.Sprintf("nslifecycle.dev/%d", i), "")
		}
		made := namespace.Obj()
		Expect(cluster.Ordinary.Create(ctx, made)).To(Succeed())
		Expect(made.Labels).To(And(HaveLen(3), HaveKey(v1alpha1.LabelInitializing), HaveKey(v1alpha1.LabelDeletionProtection)))
		Expect(made.Annotations).To(And(HaveLen(4), HaveKey(v1alpha1.AnnotationTTL), HaveKey(v1alpha1.AnnotationRequestedBy)))
	}, SpecTimeout(5*time.Minute))

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
	}, SpecTimeout(5*time.Minute))

	It("keeps the namespace finalizers that the creator sends", func(ctx context.Context) {
		cluster.Register(ctx, "finalizers", "a.test.example.com")
		namespace := wrappers.MakeNamespace(framework.Unique("finalizers")).Obj()
		namespace.Spec.Finalizers = []corev1.FinalizerName{"openshift.com/origin", "kubernetes"}
		Expect(cluster.Ordinary.Create(ctx, namespace)).To(Succeed())
		Expect(namespace.Spec.Finalizers).To(ConsistOf(corev1.FinalizerName("openshift.com/origin"), corev1.FinalizerKubernetes))
	}, SpecTimeout(5*time.Minute))

	It("does not inject a pending list into the system namespace or namespaces that every cluster requires", func(ctx context.Context) {
		cluster.Register(ctx, "exempt", "a.test.example.com")
		for _, name := range []string{
			metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease,
			controlplane.SystemNamespace,
		} {
			By(name)
			namespace := wrappers.MakeNamespace(name).Obj()
			// A dry run for an existing namespace fails after admission. Therefore, check the
			// result only if the namespace does not exist.
			err := cluster.Admin.Create(ctx, namespace, client.DryRunAll)
			if err == nil {
				Expect(namespace.Annotations).NotTo(HaveKey(v1alpha1.AnnotationPendingInitializers))
				continue
			}
			Expect(err).To(MatchError(ContainSubstring("already exists")))
			Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(name).
				Should(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonNotRequired))
		}
		Expect(cluster.EffectiveSet(Default, ctx).SystemNamespace).To(Equal(controlplane.SystemNamespace))
	}, SpecTimeout(5*time.Minute))

	It("does not inject a pending list into namespaces that are older than the configuration", func(ctx context.Context) {
		cluster.ExpectInjected(ctx)
		before := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("before"))
		cluster.Register(ctx, "later", "a.test.example.com")
		Expect(framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("after")).Labels).To(HaveKey(v1alpha1.LabelInitializing))
		Consistently(cluster.GetNamespace).WithContext(ctx).WithArguments(before.Name).
			Should(HaveField("Labels", Not(HaveKey(v1alpha1.LabelInitializing))))
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(before.Name).
			Should(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonNotRequired))
	}, SpecTimeout(5*time.Minute))

	It("merges three configurations, regardless of the order of their creation", func(ctx context.Context) {
		want := "one.a.example.com,two.a.example.com,one.b.example.com,one.c.example.com,two.c.example.com"
		configurations := map[string][]string{
			"order-a": {"one.a.example.com", "two.a.example.com"},
			"order-b": {"two.a.example.com", "one.b.example.com", "one.a.example.com"},
			"order-c": {"one.c.example.com", "one.b.example.com", "two.c.example.com"},
		}
		for _, order := range []string{"order-c order-a order-b", "order-b order-c order-a", "order-a order-b order-c"} {
			By(order)
			var created []client.Object
			for name := range strings.FieldsSeq(order) {
				configuration := wrappers.MakeConfiguration(name).Initializers(configurations[name]...).Obj()
				Expect(cluster.Admin.Create(ctx, configuration)).To(Succeed())
				created = append(created, configuration)
			}
			for _, configuration := range created {
				cluster.ExpectActive(ctx, configuration.GetName())
			}
			Expect(framework.PendingOf(framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("order")))).To(Equal(want))
			for _, configuration := range created {
				Expect(cluster.Admin.Delete(ctx, configuration)).To(Succeed())
			}
			Eventually(func(g Gomega) {
				g.Expect(cluster.EffectiveSet(g, ctx).Initializers).To(BeEmpty())
			}).WithContext(ctx).Should(Succeed())
		}
		cluster.ExpectInjected(ctx)
	}, SpecTimeout(5*time.Minute))

	It("injects a set with the maximum number of initializers", func(ctx context.Context) {
		long := strings.Repeat("x", 63) + "." + strings.Repeat("y", 63) + "." + strings.Repeat("z", 63)
		for i := range v1alpha1.MaxSetInitializers/64 + 1 {
			var names []string
			for j := range 64 {
				names = append(names, strings.ReplaceAll(framework.Unique("n"), "-", "")+"."+string(rune('a'+i))+string(rune('a'+j%26))+"."+long[:180])
			}
			configuration := wrappers.MakeConfiguration("many-" + string(rune('a'+i))).Initializers(names...).Obj()
			Expect(cluster.Admin.Create(ctx, configuration)).To(Succeed())
			DeferCleanup(func(ctx context.Context) {
				Expect(cluster.Admin.Delete(ctx, configuration)).To(Succeed())
				Eventually(func(g Gomega) {
					g.Expect(cluster.EffectiveSet(g, ctx).Initializers).NotTo(ContainElement(HaveField("Configuration", configuration.Name)))
				}).WithContext(ctx).Should(Succeed())
				cluster.ExpectInjected(ctx)
			})
			if i < v1alpha1.MaxSetInitializers/64 {
				cluster.ExpectActive(ctx, configuration.Name)
				continue
			}
			Eventually(func(g Gomega) {
				var left v1alpha1.NamespaceInitializerConfiguration
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(configuration), &left)).To(Succeed())
				g.Expect(left.Status.Conditions).To(ContainElement(And(
					HaveField("Status", metav1.ConditionFalse),
					HaveField("Reason", v1alpha1.ReasonTooManyInitializers))))
			}).WithContext(ctx).Should(Succeed())
		}
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("many"))
		Expect(strings.Split(framework.PendingOf(namespace), ",")).To(HaveLen(v1alpha1.MaxSetInitializers))

		By("rejecting a write with a message that truncates the pending list")
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "early"))).To(
			BeForbiddenBy("gate", "and 251 more", "kubectl wait"))
		By("removing an initializer from the pending list")
		cluster.Finish(ctx, namespace.Name)
		Expect(strings.Split(framework.PendingOf(cluster.GetNamespace(Default, ctx, namespace.Name)), ",")).To(HaveLen(v1alpha1.MaxSetInitializers - 1))
	}, SpecTimeout(5*time.Minute))
})
