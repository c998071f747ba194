// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// rejected returns the manifest of an object that the API server rejects.
func rejected(name string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"invalid key":"x"}}`
}

var _ = Describe("The rollout of a changed template", func() {
	var (
		template   *v1alpha1.NamespaceTemplate
		namespaces []*corev1.Namespace
	)
	dev := &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"tier": "dev"}}

	// start creates a template and initialized namespaces with revision "a". The first have the label tier=dev.
	start := func(ctx context.Context, number, labeled int, changes ...func(*v1alpha1.NamespaceTemplateSpec)) {
		GinkgoHelper()
		template = newTemplate(framework.Unique("rollout"), append(changes, only("config", configMap("config", "a")))...)
		create(ctx, template)
		namespaces = nil
		for i := range number {
			namespace := wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", template.Name)
			if i < labeled {
				namespace.Label("tier", "dev")
			}
			namespaces = append(namespaces, namespace.Obj())
			creator.Creates(ctx, namespaces[i])
		}
		for _, namespace := range namespaces {
			expectInitialized(ctx, namespace)
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
	}

	// values returns how many namespaces have each value.
	values := func(ctx context.Context) map[string]int {
		configs := &corev1.ConfigMapList{}
		Expect(cluster.Admin.List(ctx, configs, client.MatchingLabels{v1alpha1.LabelManagedByTemplate: template.Name},
			client.MatchingFields{metav1.ObjectNameField: "config"})).To(Succeed())
		counts := map[string]int{}
		for _, config := range configs.Items {
			counts[config.Data["key"]]++
		}
		return counts
	}

	reason := func(ctx context.Context) string {
		current := getTemplate(Default, ctx, template.Name)
		for _, condition := range current.Status.Conditions {
			if condition.Type == v1alpha1.ConditionProgressing {
				return condition.Reason
			}
		}
		return ""
	}

	It("pauses after failures, while new namespaces get the last good revision, and can be undone", func(ctx context.Context) {
		start(ctx, 12, 0)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "b"))(spec)
			spec.Objects = append(spec.Objects, v1alpha1.TemplateObject{
				Name: "rejected", Template: &runtime.RawExtension{Raw: []byte(rejected("rejected"))},
			})
			spec.Rollout.MaxNamespacesPerSecond = 1
		})
		Eventually(reason).WithContext(ctx).WithArguments(ctx).Should(Equal("PausedAfterFailures"))
		counts := values(ctx)
		Expect(counts["a"]).To(BeNumerically(">=", 5), "%v", counts)
		fresh := createInitialized(ctx, selectedBy(template.Name))
		expectValue(ctx, fresh, "config", "a")
		By("drift, which is repaired with the revision that the namespace has")
		var old *corev1.Namespace
		for _, namespace := range namespaces {
			if getConfig(ctx, namespace, "config").Data["key"] == "a" {
				old = namespace
			}
		}
		cluster.Admin.Deletes(ctx, getConfig(ctx, old, "config"))
		expectValue(ctx, old, "config", "a")
		By("the return to the stored revision")
		revisions := &appsv1.ControllerRevisionList{}
		Expect(cluster.Admin.List(ctx, revisions, client.InNamespace(controlplane.SystemNamespace),
			client.MatchingLabels{v1alpha1.LabelManagedByTemplate: template.Name})).To(Succeed())
		Expect(revisions.Items).To(HaveLen(2))
		change(ctx, template.Name, only("config", configMap("config", "a")))
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"a": 13}))
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 13")
	})

	It("gives new namespaces no revision before it is recorded", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		created := newTemplate(framework.Unique("unrecorded"), only("config", configMap("config", "a")))
		rejected := make(chan struct{})
		var once sync.Once
		restartManager(ctx, func(request *http.Request) fault {
			if request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/controllerrevisions") {
				once.Do(func() { close(rejected) })
				return notSent
			}
			return noFault
		})
		create(ctx, created)
		namespace := framework.CreateAs(ctx, creator, selectedBy(created.Name))
		Eventually(rejected).WithContext(ctx).Should(BeClosed())
		Consistently(objectsOf).WithContext(ctx).WithArguments(ctx, namespace).WithTimeout(2 * time.Second).Should(BeEmpty())
		restartManager(ctx, nil)
		expectInitialized(ctx, namespace)
	})

	It("starts with the canaries, and continues when they are updated", func(ctx context.Context) {
		start(ctx, 4, 1, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Rollout.CanarySelector, spec.Rollout.FailureThreshold = dev, 1
		})
		change(ctx, template.Name, only("config", rejected("config")))
		Eventually(reason).WithContext(ctx).WithArguments(ctx).Should(Equal("PausedAfterFailures"))
		Expect(values(ctx)).To(Equal(map[string]int{"a": 4}))
		change(ctx, template.Name, only("config", configMap("config", "c")))
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"c": 4}))
	})

	It("continues after minReadySeconds", func(ctx context.Context) {
		start(ctx, 3, 1, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Rollout.CanarySelector, spec.Rollout.MinReadySeconds = dev, 4
		})
		change(ctx, template.Name, only("config", configMap("config", "b")))
		Eventually(reason).WithContext(ctx).WithArguments(ctx).Should(Equal("WaitingForMinReadySeconds"))
		updated := getTemplate(Default, ctx, template.Name).Status.CanariesUpdatedTime
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"b": 3}))
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		changed := func(namespace *corev1.Namespace) time.Time {
			fields := getConfig(ctx, namespace, "config").ManagedFields
			Expect(fields).To(HaveLen(1))
			return fields[0].Time.Time // In seconds, as canariesUpdatedTime.
		}
		Expect(changed(namespaces[0])).To(BeTemporally("<=", updated.Time))
		for _, other := range namespaces[1:] {
			Expect(changed(other)).To(BeTemporally(">=", updated.Add(4*time.Second)))
		}
	})

	It("can be paused while minReadySeconds count, and does not count again after a restart", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		start(ctx, 3, 1, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Rollout.CanarySelector, spec.Rollout.MinReadySeconds = dev, 3600
		})
		change(ctx, template.Name, only("config", configMap("config", "b")))
		Eventually(reason).WithContext(ctx).WithArguments(ctx).Should(Equal("WaitingForMinReadySeconds"))
		updated := getTemplate(Default, ctx, template.Name).Status.CanariesUpdatedTime
		By("a new canary, while the operator restarts")
		cluster.StopManager()
		cluster.Admin.Patches(ctx, namespaces[1].DeepCopy(), `{"metadata":{"labels":{"tier":"dev"}}}`)
		cluster.StartManager(ctx)
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"a": 1, "b": 2}))
		By("a pause, during which the time passes")
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Rollout.Paused, spec.Rollout.MinReadySeconds = true, 1
		})
		Eventually(reason).WithContext(ctx).WithArguments(ctx).Should(Equal("Paused"))
		Expect(getTemplate(Default, ctx, template.Name).Status.CanariesUpdatedTime).To(Equal(updated))
		fresh := createInitialized(ctx, selectedBy(template.Name))
		expectValue(ctx, fresh, "config", "a")
		Consistently(values).WithContext(ctx).WithArguments(ctx).WithTimeout(2 * time.Second).
			Should(Equal(map[string]int{"a": 2, "b": 2}))
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Rollout.Paused = false })
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"b": 4}))
		expectReached(ctx, template.Name)
	})

	It("remains paused until the new revision can be rendered in the namespaces that have failed", func(ctx context.Context) {
		start(ctx, 4, 0, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Rollout.FailureThreshold = 2 })
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "${ns.labels['team']}"))(spec)
			spec.Rollout.MaxNamespacesPerSecond = 1
		})
		Eventually(reason).WithContext(ctx).WithArguments(ctx).Should(Equal("PausedAfterFailures"))
		current := &v1alpha1.NamespaceTemplate{}
		failures := func() int {
			Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
			return len(current.Status.Failures)
		}
		Eventually(failures).WithContext(ctx).Should(Equal(2))
		Consistently(failures).WithContext(ctx).WithTimeout(3 * time.Second).Should(Equal(2))
		Expect(values(ctx)).To(Equal(map[string]int{"a": 4}))
		for _, namespace := range namespaces {
			cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"team":"b"}}}`)
		}
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"b": 4}))
	})

	It("does not wait for namespaces that wait for other initializers", func(ctx context.Context) {
		name := framework.Unique("slow")
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration(name).Initializer(name+".test.example.com",
			v1alpha1.InitializerSettings{NamespaceSelector: &v1alpha1.NamespaceSelector{
				MatchLabels: map[string]v1alpha1.LabelValue{"slow": "true"},
			}}))
		start(ctx, 3, 1, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Rollout.CanarySelector = dev })
		waiting := wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", template.Name).
			Label("tier", "dev").Label("slow", "true").Obj()
		creator.Creates(ctx, waiting)
		Eventually(func(g Gomega) {
			g.Expect(framework.PendingOf(cluster.GetNamespace(g, ctx, waiting.Name))).To(Equal(name + ".test.example.com"))
		}).WithContext(ctx).Should(Succeed())
		change(ctx, template.Name, only("config", configMap("config", "b")))
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"a": 1, "b": 3}))
		cluster.Finish(ctx, waiting.Name)
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"b": 4}))
	})

	It("does not depend on the status of the template", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		start(ctx, 4, 1, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Rollout.CanarySelector = dev })
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "${ns.labels[?'tier'].orValue('')}"))(spec)
			spec.Rollout.Paused = true
		})
		Eventually(reason).WithContext(ctx).WithArguments(ctx).Should(Equal("Paused"))
		before := getTemplate(Default, ctx, template.Name)
		Expect(before.Status.CurrentRevision).NotTo(Equal(before.Status.UpdateRevision))
		// loseStatus empties the status, while the operator is stopped or not, and waits until it is as before.
		loseStatus := func(isStopped bool) {
			GinkgoHelper()
			if isStopped {
				cluster.StopManager()
			}
			Expect(cluster.Admin.Status().Patch(ctx, before.DeepCopy(),
				framework.MergePatch(`{"status":null}`))).To(Succeed())
			if isStopped {
				cluster.StartManager(ctx)
			}
			Eventually(func(g Gomega) {
				current := getTemplate(g, ctx, template.Name)
				g.Expect(current.Status.CurrentRevision).To(Equal(before.Status.CurrentRevision))
				g.Expect(current.Status.UpdateRevision).To(Equal(before.Status.UpdateRevision))
				g.Expect(current.Status.Namespaces).To(Equal(before.Status.Namespaces))
				g.Expect(current.Status.ObservedGeneration).To(Equal(current.Generation))
			}).WithContext(ctx).Should(Succeed())
		}
		expectCurrent := func(want map[string]int, value string) {
			GinkgoHelper()
			Consistently(values).WithContext(ctx).WithArguments(ctx).Should(Equal(want))
			fresh := createInitialized(ctx, selectedBy(template.Name))
			expectValue(ctx, fresh, "config", value)
			cluster.Admin.Deletes(ctx, fresh)
			framework.ExpectDeleted(ctx, cluster.Admin, fresh)
		}
		for _, isStopped := range []bool{false, true} {
			By(fmt.Sprintf("a paused rollout; the operator is stopped: %t", isStopped))
			loseStatus(isStopped)
			expectCurrent(map[string]int{"a": 4}, "a")
		}
		By("the canaries, whose rollout continues")
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Rollout.Paused = false })
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"dev": 1, "": 3}))
		By("a completed rollout, and a paused one after it")
		expectReached(ctx, template.Name)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "c"))(spec)
			spec.Rollout.Paused = true
		})
		Eventually(reason).WithContext(ctx).WithArguments(ctx).Should(Equal("Paused"))
		Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), before)).To(Succeed())
		loseStatus(true)
		expectCurrent(map[string]int{"dev": 1, "": 3}, "")
	})

	It("waits while it is paused, and an invalid template changes nothing", func(ctx context.Context) {
		start(ctx, 3, 0, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Scope = v1alpha1.ScopeAllNamespaces })
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "b"))(spec)
			spec.Rollout.Paused = true
		})
		Eventually(reason).WithContext(ctx).WithArguments(ctx).Should(Equal("Paused"))
		Consistently(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"a": 3}))
		change(ctx, template.Name, only("config", configMap("config", "${params.typo}")))
		expectCondition(ctx, template.Name, v1alpha1.ConditionValid, metav1.ConditionFalse)
		By("a new namespace and an existing one, which the template selects now")
		fresh, existing := selectedBy(template.Name), wrappers.MakeNamespace(framework.Unique("ns")).Obj()
		createInitialized(ctx, fresh)
		createInitialized(ctx, existing)
		cluster.Admin.Patches(ctx, existing.DeepCopy(), `{"metadata":{"labels":{"kind":"`+template.Name+`"}}}`)
		expectValue(ctx, fresh, "config", "a")
		expectValue(ctx, existing, "config", "a")
		Expect(values(ctx)).To(Equal(map[string]int{"a": 5}))
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "b"))(spec)
			spec.Rollout.Paused = false
		})
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"b": 5}))
		expectReached(ctx, template.Name)
	})
})

// Lists contain only parts of a large Namespace, without its labels.
var _ = Describe("The rollout to a large namespace", func() {
	// fill makes a Namespace too large for the cache.
	fill := func(ctx context.Context, ns *corev1.Namespace) {
		GinkgoHelper()
		cluster.Admin.Patches(ctx, ns.DeepCopy(), fmt.Sprintf(`{"metadata":{"annotations":{"fill":%q}}}`, strings.Repeat("x", 17<<10)))
	}
	It("does not wait for it as a canary, which it is not", func(ctx context.Context) {
		template := createTemplate(ctx, "canary", only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Rollout.CanarySelector = &v1alpha1.NamespaceSelector{MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{{
					Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []v1alpha1.LabelValue{"production"},
				}}}
			})
		dev := selectedBy(template.Name)
		prod := wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", template.Name).Label("tier", "production").Obj()
		createInitialized(ctx, dev)
		createInitialized(ctx, prod)
		fill(ctx, prod)
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		change(ctx, template.Name, only("config", configMap("config", "b")))
		expectReached(ctx, template.Name)
	})

	It("begins with it if it is a canary", func(ctx context.Context) {
		template := createTemplate(ctx, "canary", only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Rollout.FailureThreshold = 1
				spec.Rollout.CanarySelector = &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"tier": "dev"}}
			})
		dev := createInitialized(ctx, wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", template.Name).Label("tier", "dev").Obj())
		var others []*corev1.Namespace
		for range 6 {
			o := createInitialized(ctx, selectedBy(template.Name))
			others = append(others, o)
		}
		fill(ctx, dev)
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "b"))(spec)
			spec.Rollout.MaxNamespacesPerSecond = 1
			spec.Objects = append(spec.Objects, objectNamed("rejected", rejected("rejected")))
		})
		Consistently(func() bool {
			return slices.ContainsFunc(others, func(o *corev1.Namespace) bool {
				return getConfig(ctx, o, "config").Data["key"] == "b"
			})
		}).WithContext(ctx).WithTimeout(4 * time.Second).Should(BeFalse())
	})

	It("does not wait for it if the template no longer selects it, and a finalizer keeps an object", func(ctx context.Context) {
		template := createTemplate(ctx, "unselected", only("config", configMap("config", "a")), withPrune)
		hostile, other := selectedBy(template.Name), selectedBy(template.Name)
		createInitialized(ctx, hostile)
		createInitialized(ctx, other)
		config := getConfig(ctx, hostile, "config")
		cluster.Admin.Patches(ctx, config, `{"metadata":{"finalizers":["test.example.com/keep"]}}`)
		DeferCleanup(func(ctx context.Context) {
			cluster.Admin.Patches(ctx, config, `{"metadata":{"finalizers":null}}`)
		})
		fill(ctx, hostile)
		cluster.Admin.Patches(ctx, hostile.DeepCopy(), `{"metadata":{"labels":{"kind":null}}}`)
		Eventually(func(g Gomega) {
			g.Expect(getConfig(ctx, hostile, "config").DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
		change(ctx, template.Name, only("config", configMap("config", "b")))
		expectValue(ctx, other, "config", "b")
		expectReached(ctx, template.Name)
	})
})
