// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("A limit of namespaces for each user", func() {
	It("is exact while a user creates namespaces concurrently and the manager restarts", func(ctx context.Context) {
		template := createTemplate(ctx, "limited", func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.MaxNamespacesPerUser = ptr.To[int32](3)
		})
		var creators sync.WaitGroup
		for i := range 30 {
			if i == 15 {
				cluster.StopManager()
				cluster.StartManager(ctx)
			}
			creators.Go(func() {
				defer GinkgoRecover()
				create := func() error { return creator.Create(ctx, selectedBy(template.Name)) }
				if framework.ServesPolicies(ctx, cluster.Admin.Config) {
					Expect(create()).To(Succeed())
					return
				}
				// The API server rejects new namespaces while no manager runs.
				Eventually(create).WithContext(ctx).Should(Succeed())
			})
		}
		creators.Wait()
		expectRemaining := func(g Gomega, count int) []corev1.Namespace {
			var namespaces corev1.NamespaceList
			g.Expect(cluster.Admin.List(ctx, &namespaces, client.MatchingLabels{"kind": template.Name})).To(Succeed())
			g.Expect(namespaces.Items).To(HaveLen(count))
			for _, namespace := range namespaces.Items {
				g.Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
				g.Expect(namespace.DeletionTimestamp).To(BeNil())
			}
			return namespaces.Items
		}
		Eventually(func(g Gomega) { expectRemaining(g, 3) }).WithContext(ctx).Should(Succeed())
		initialized := expectRemaining(Default, 3)

		By("refusing another one with a reason, also after a restart")
		cluster.StopManager()
		cluster.StartManager(ctx)
		full := `Forbidden: user "alice" has 3 namespaces with template "` + template.Name + `", which permits 3 for each user`
		refused := selectedBy(template.Name)
		expectRefused(ctx, refused, full+": delete a namespace")
		framework.ExpectDeleted(ctx, cluster.Admin, refused)

		By("refusing another one while one is terminating: its Pods can still run")
		cluster.Admin.Patches(ctx, initialized[0].DeepCopy(), `{"metadata":{"finalizers":["test.example.com/hold"]}}`)
		creator.Deletes(ctx, initialized[0].DeepCopy())
		expectRefused(ctx, selectedBy(template.Name), full+", 1 of them being deleted: wait for the deletion")
		cluster.Admin.Patches(ctx, initialized[0].DeepCopy(), `{"metadata":{"finalizers":null}}`)
		framework.ExpectDeleted(ctx, cluster.Admin, &initialized[0])

		By("refusing another one while one stays that has failed, because it is protected from deletion")
		createInitialized(ctx, selectedBy(template.Name))
		kept := selectedBy(template.Name)
		kept.Labels[v1alpha1.LabelDeletionProtection] = ""
		expectRefused(ctx, kept, full)
		creator.Deletes(ctx, &initialized[1])
		framework.ExpectDeleted(ctx, cluster.Admin, &initialized[1])
		expectRefused(ctx, selectedBy(template.Name), full+", 1 of them failed and protected from deletion: delete a namespace")
		cluster.Admin.Patches(ctx, kept.DeepCopy(), `{"metadata":{"labels":{"nslifecycle.dev/deletion-protection":null}}}`)
		framework.ExpectDeleted(ctx, cluster.Admin, kept)

		By("admitting another user, and the same user after a deletion")
		bob := cluster.AddUserWithRules(ctx, framework.Unique("bob"), rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create"},
		})
		other := selectedBy(template.Name)
		bob.Creates(ctx, other)
		expectInitialized(ctx, other)
		createInitialized(ctx, selectedBy(template.Name))
	})
})

// The admission policies do not know such a template, so they do not check who selects it.
var _ = Describe("A template that does not fit into the set", func() {
	It("is not applied", func(ctx context.Context) {
		older := client.MatchingLabels{"test": "older"}
		DeferCleanup(func(ctx context.Context) {
			Expect(cluster.Admin.DeleteAllOf(ctx, &v1alpha1.NamespaceTemplate{}, older)).To(Succeed())
			Eventually(func(g Gomega) { g.Expect(cluster.EffectiveSet(g, ctx).Templates).To(BeEmpty()) }).
				WithContext(ctx).Should(Succeed())
		})
		var last *v1alpha1.NamespaceTemplate
		cluster.StopManager() // It would publish a set for each template.
		for i := range internalv1alpha1.MaxTemplates {
			last = newTemplate(fmt.Sprintf("a-%d", i), only("config", configMap("config", "a")))
			last.Labels = older
			cluster.Admin.Creates(ctx, last)
		}
		restoreManager(ctx)
		template := newTemplate(framework.Unique("z-omitted"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Access, spec.Scope = v1alpha1.AccessRestricted, v1alpha1.ScopeAllNamespaces
			})
		cluster.Admin.Creates(ctx, template)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, template)).To(Succeed()) })
		expectCondition(ctx, template.Name, v1alpha1.ConditionValid, metav1.ConditionFalse, "the older templates are 128")

		By("selecting it together with one that fits")
		namespace := selectedBy(template.Name)
		namespace.Labels[v1alpha1.LabelTemplate] = last.Name
		Eventually(func(g Gomega) {
			probe := namespace.DeepCopy()
			g.Expect(creator.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			g.Expect(probe.Annotations[v1alpha1.AnnotationSelectedTemplates]).To(Equal(last.Name))
		}).WithContext(ctx).Should(Succeed(), "the policies have read the set")
		createInitialized(ctx, namespace)
		expectValue(ctx, namespace, "config", "a")
		Expect(namespace.Annotations[v1alpha1.AnnotationAppliedTemplates]).To(And(
			ContainSubstring(last.Name), Not(ContainSubstring(template.Name))))

		By("deleting an older template")
		cluster.Admin.Deletes(ctx, last)
		expectCondition(ctx, template.Name, v1alpha1.ConditionValid, metav1.ConditionTrue)
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).Annotations[v1alpha1.AnnotationAppliedTemplates]).
				To(ContainSubstring(template.Name))
		}).WithContext(ctx).Should(Succeed())
		Eventually(func() error { return creator.Create(ctx, selectedBy(template.Name), client.DryRunAll) }).
			WithContext(ctx).Should(matchers.BeForbiddenBy(internalv1alpha1.PolicyTemplates))
	})
})

const (
	// largeObjects objects with largeValue bytes each are 25 MiB. The manager may keep maxKept. Its other memory
	// after the start is also less than this.
	largeObjects = 100
	largeValue   = 250 << 10
	maxKept      = 15 << 20
)

// liveHeap returns the bytes that this process uses.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // Finalizers of the first run release more.
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

var _ = Describe("The memory of the manager", Serial, func() {
	// Each entry creates 25 MiB of objects.
	DescribeTable("does not grow with what users write",
		func(ctx context.Context, newObject func(index int, namespace *corev1.Namespace, value string) client.Object) {
			created, namespace := createSelecting(ctx, "memory", only("config", configMap("config", "a")))
			value := strings.Repeat("x", largeValue)
			for i := range largeObjects {
				object := newObject(i, namespace, value)
				cluster.Admin.Creates(ctx, object)
				DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, object)).To(Succeed()) })
			}
			cluster.StopManager()
			without := liveHeap()
			cluster.StartManager(ctx)
			change(ctx, created.Name, only("config", configMap("config", "b")))
			expectValue(ctx, namespace, "config", "b")
			Eventually(func() int64 { return liveHeap() - without }).WithContext(ctx).WithTimeout(time.Minute).
				Should(BeNumerically("<", maxKept))
		},
		Entry("to annotations of objects with the label of a template",
			func(index int, namespace *corev1.Namespace, value string) client.Object {
				return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace.Name, Name: fmt.Sprintf("large-%d", index),
					Labels:      map[string]string{v1alpha1.LabelManagedByTemplate: "any"},
					Annotations: map[string]string{v1alpha1.AnnotationNamespaceUID: value},
				}}
			}),
		Entry("to their managedFields",
			func(index int, namespace *corev1.Namespace, value string) client.Object {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace.Name, Name: fmt.Sprintf("large-%d", index),
					Labels: map[string]string{v1alpha1.LabelManagedByTemplate: "any"},
				}}
				for i := range 8 {
					object.ManagedFields = append(object.ManagedFields, metav1.ManagedFieldsEntry{
						Manager: template.FieldManager(fmt.Sprint(i)), Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1",
						FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:` + value[:largeValue/8] + `":{}}}`),
					})
				}
				return object
			}),
		Entry("to annotations of namespaces", func(_ int, _ *corev1.Namespace, value string) client.Object {
			return wrappers.MakeNamespace(framework.Unique("large")).Annotation("example.com/value", value).Obj()
		}),
		Entry("to labels of namespaces", Label("long"), func(_ int, _ *corev1.Namespace, value string) client.Object {
			wrapper := wrappers.MakeNamespace(framework.Unique("large"))
			for i := range largeValue / 300 {
				wrapper.Label(fmt.Sprintf("%s.%d/x", value[:60]+"."+value[:60]+"."+value[:60]+"."+value[:40], i), value[:63])
			}
			return wrapper.Obj()
		}),
	)
})

var _ = Describe("A namespace that is too large for the cache", func() {
	It("gets the same templates as others, and follows changes of its labels", func(ctx context.Context) {
		created := createTemplate(ctx, "oversized", only("config",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"key":"${ns.labels['size']}"}}`),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Scope = v1alpha1.ScopeAllNamespaces })
		namespace := selectedBy(created.Name)
		namespace.Labels["size"] = "s"
		namespace.Annotations = map[string]string{"example.com/value": strings.Repeat("x", 100<<10)}
		createInitialized(ctx, namespace)
		expectValue(ctx, namespace, "config", "s")
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"size":"m"}}}`)
		expectValue(ctx, namespace, "config", "m")
		change(ctx, created.Name, only("config", configMap("config", "other")))
		expectValue(ctx, namespace, "config", "other")
		cluster.Admin.Deletes(ctx, getConfig(ctx, namespace, "config"))
		expectValue(ctx, namespace, "config", "other")
		expectCondition(ctx, created.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
		By("the deletion of the label, after which it contains nothing of the template")
		change(ctx, created.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.ObjectRetentionPolicy.WhenDeselected = v1alpha1.RetentionDelete
		})
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"kind":null}}}`)
		expectDeleted(ctx, namespace, "config")
		By("a label that arrives later")
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"kind":"`+created.Name+`"}}}`)
		expectValue(ctx, namespace, "config", "other")
	})
})

var _ = Describe("A template for new namespaces", func() {
	It("creates its objects before the creator can write, and the quota is enforced from the first write", func(ctx context.Context) {
		template := createTemplate(ctx, "team")
		for range 5 {
			namespace := framework.CreateAs(ctx, creator, selectedBy(template.Name))
			// Eight clients of the creator write without pause.
			created := make([]int, 8)
			var writers sync.WaitGroup
			for writer := range created {
				writers.Go(func() {
					defer GinkgoRecover()
					for i := 0; created[writer] < 10 && ctx.Err() == nil; i++ {
						object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
							Namespace: namespace.Name, Name: fmt.Sprintf("cm-%d-%d", writer, i),
						}}
						err := creator.Create(ctx, object)
						if err == nil {
							created[writer]++
						}
						if isOverQuota(err) {
							return
						}
						Expect(err).To(Or(Succeed(), Satisfy(apierrors.IsForbidden)))
					}
				})
			}
			writers.Wait()
			total := 0
			for _, n := range created {
				total += n
			}
			Expect(total).To(Equal(4), "the quota permits 4 ConfigMaps")
			expectInitialized(ctx, namespace)
			get(ctx, namespace, "team", &corev1.LimitRange{})
			get(ctx, namespace, "default-deny", &networkingv1.NetworkPolicy{})
			Expect(get(ctx, namespace, "owner", &rbacv1.RoleBinding{}).Subjects[0].Name).To(Equal(alice))
		}
		expectCondition(ctx, template.Name, "Valid", metav1.ConditionTrue)
		expectCondition(ctx, template.Name, "Authorized", metav1.ConditionTrue)
		expectCondition(ctx, template.Name, "Progressing", metav1.ConditionFalse, "All 5")
	})
})

func isOverQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

var _ = Describe("The deadline of a template", Ordered, func() {
	const turnStart = v1alpha1.AnnotationTurnStartedAt

	BeforeAll(func() { // No quota is counted.
		Expect(controllerManager.Stop()).To(Succeed())
		DeferCleanup(startControllerManager)
	})

	start := func(ctx context.Context, settings v1alpha1.TemplateInitialization) (*v1alpha1.NamespaceTemplate, *corev1.Namespace) {
		GinkgoHelper()
		template := createTemplate(ctx, "deadline", only("quota",
			`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"team"},"spec":{"hard":{"pods":"1"}}}`),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Initialization = settings })
		return template, framework.CreateAs(ctx, creator, selectedBy(template.Name))
	}
	expectTurn := func(ctx context.Context, namespace *corev1.Namespace) {
		GinkgoHelper()
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveField("Annotations", HaveKeyWithValue(turnStart, HavePrefix(v1alpha1.TemplatesInitializer+" "))))
	}

	// It takes the whole timeout: the manager stops in the middle of it.
	It("fails the initialization by default, and does not start again after a restart of the operator", func(ctx context.Context) {
		const timeout = 20 * time.Second
		template, namespace := start(ctx,
			v1alpha1.TemplateInitialization{EffectiveTimeoutSeconds: ptr.To(int32(timeout.Seconds()))})
		seen := framework.WatchNamespace(ctx, cluster.Admin.Config, namespace)
		expectTurn(ctx, namespace)
		recorded := cluster.GetNamespace(Default, ctx, namespace.Name).Annotations[turnStart]
		cluster.StopManager()
		Eventually(func() time.Duration { return time.Since(namespace.CreationTimestamp.Time) }).WithContext(ctx).
			Should(BeNumerically(">", timeout/2))
		restarted := time.Now()
		cluster.StartManager(ctx)
		final, _ := seen.WaitForRemoval(ctx)
		Expect(final.Annotations).To(HaveKeyWithValue(turnStart, recorded))
		Expect(final.DeletionTimestamp.Time).To(And(
			BeTemporally(">=", namespace.CreationTimestamp.Add(timeout)), BeTemporally("<", restarted.Add(timeout))))
		var result metav1.Status
		Expect(json.Unmarshal([]byte(final.Annotations[v1alpha1.AnnotationInitializationResult]), &result)).To(Succeed())
		Expect(result).To(And(HaveField("Status", metav1.StatusFailure), HaveField("Reason", metav1.StatusReasonTimeout),
			HaveField("Code", BeEquivalentTo(504)), HaveField("Message", And(
				ContainSubstring("template %q", template.Name), ContainSubstring(`object "quota"`), ContainSubstring("20s")))))
		expectEvents(ctx, namespace, "InitializationFailed")
	})

	It("continues with effectiveTimeoutPolicy Ignore, and reports this", func(ctx context.Context) {
		_, namespace := start(ctx, v1alpha1.TemplateInitialization{
			EffectiveTimeoutSeconds: ptr.To[int32](5), EffectiveTimeoutPolicy: v1alpha1.FailurePolicyIgnore,
		})
		expectTurn(ctx, namespace)
		expectInitialized(ctx, namespace)
		Expect(namespace.Annotations).NotTo(HaveKey(turnStart))
		expectEvents(ctx, namespace, "TemplateNotEffective")
	})

	It("has no default: only failures have one", func(ctx context.Context) {
		template, namespace := start(ctx, v1alpha1.TemplateInitialization{})
		Expect(template.Spec.Initialization).To(Equal(v1alpha1.TemplateInitialization{
			WaitPolicy: v1alpha1.WaitForEffective, EffectiveTimeoutPolicy: v1alpha1.FailurePolicyFail,
			FailureTimeoutSeconds: 1800, FailureTimeoutPolicy: v1alpha1.FailureTimeoutFail,
		}))
		expectWaiting(ctx, namespace, "QuotaNotCounted")
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Annotations).NotTo(HaveKey(turnStart))
	})
})

var _ = Describe("The effective set", func() {
	// Otherwise, the defaults of the API server would differ from what the operator writes, again and again.
	It("is not written again if nothing has changed", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		intercepted := restartManager(ctx, nil)
		written := func() int {
			return countContaining(writes(intercepted.requestsSoFar()), "/namespaceinitializersets/"+internalv1alpha1.EffectiveSetName)
		}
		register := func(name string) {
			GinkgoHelper()
			configuration := framework.CreateAs(ctx, cluster.Admin, wrappers.MakeConfiguration(name).Initializer("set.test.example.com",
				v1alpha1.InitializerSettings{
					TimeoutSeconds:    ptr.To[int32](60),
					NamespaceSelector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"set": "true"}},
				}).Obj())
			DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, configuration)).To(Succeed()) })
			cluster.ExpectActive(ctx, name)
		}
		createTemplate(ctx, "set", only("config", configMap("config", "a")))
		register("set-a")
		Eventually(func(g Gomega) { // Those of other specs remain for some seconds.
			g.Expect(cluster.EffectiveSet(g, ctx).Initializers).
				To(HaveEach(HaveField("Configuration", BeElementOf("", "set-a"))))
		}).WithContext(ctx).Should(Succeed())
		before := written()
		Expect(before).To(BeNumerically(">", 0))
		register("set-b") // The set contains its initializer already.
		Expect(written()).To(Equal(before))
	})
})
