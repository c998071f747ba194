// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	"net/http"
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
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
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

	// start creates a template and open namespaces with revision "a". The first have the label tier=dev.
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
			Expect(creator.Create(ctx, namespaces[i])).To(Succeed())
		}
		for _, namespace := range namespaces {
			expectOpen(ctx, namespace)
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
	}

	// values returns how many namespaces have each value.
	values := func(ctx context.Context) map[string]int {
		configs := &corev1.ConfigMapList{}
		Expect(cluster.Admin.List(ctx, configs, client.MatchingLabels{v1alpha1.LabelTemplate: template.Name},
			client.MatchingFields{metav1.ObjectNameField: "config"})).To(Succeed())
		counts := map[string]int{}
		for _, config := range configs.Items {
			counts[config.Data["key"]]++
		}
		return counts
	}

	reason := func(ctx context.Context) string {
		current := &v1alpha1.NamespaceTemplate{}
		Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
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
			spec.Rollout.RatePerSecond = 1
		})
		Eventually(reason).WithContext(ctx).WithArguments(ctx).Should(Equal("PausedAfterFailures"))
		counts := values(ctx)
		Expect(counts["a"]).To(BeNumerically(">=", 5), "%v", counts)
		fresh := selectedBy(template.Name)
		createOpen(ctx, fresh)
		expectValue(ctx, fresh, "config", "a")
		By("drift, which is repaired with the revision that the namespace has")
		var old *corev1.Namespace
		for _, namespace := range namespaces {
			if get(ctx, namespace, "config", &corev1.ConfigMap{}).Data["key"] == "a" {
				old = namespace
			}
		}
		Expect(cluster.Admin.Delete(ctx, get(ctx, old, "config", &corev1.ConfigMap{}))).To(Succeed())
		expectValue(ctx, old, "config", "a")
		By("the return to the stored revision")
		revisions := &appsv1.ControllerRevisionList{}
		Expect(cluster.Admin.List(ctx, revisions, client.InNamespace(controlplane.SystemNamespace),
			client.MatchingLabels{v1alpha1.LabelTemplate: template.Name})).To(Succeed())
		Expect(revisions.Items).To(HaveLen(2))
		change(ctx, template.Name, only("config", configMap("config", "a")))
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"a": 13}))
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 13")
	})

	It("gives new namespaces no revision before the status contains it", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		created := newTemplate(framework.Unique("unrecorded"), only("config", configMap("config", "a")))
		rejected := make(chan struct{})
		var once sync.Once
		restartManager(ctx, func(request *http.Request) fault {
			if strings.HasSuffix(request.URL.Path, "/namespacetemplates/"+created.Name+"/status") {
				once.Do(func() { close(rejected) })
				return notSent
			}
			return noFault
		})
		create(ctx, created)
		namespace := selectedBy(created.Name)
		Expect(creator.Create(ctx, namespace)).To(Succeed())
		Eventually(rejected).WithContext(ctx).Should(BeClosed())
		Consistently(objectsOf).WithContext(ctx).WithArguments(ctx, namespace).WithTimeout(2 * time.Second).Should(BeEmpty())
		restartManager(ctx, nil)
		expectOpen(ctx, namespace)
	})

	// Of these namespaces, five cannot get the new revision, in random order.
	It("pauses in the middle of 2,000 namespaces", Label("long"), func(ctx context.Context) {
		const total, broken = 2000, 5
		start(ctx, total, broken)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "b"))(spec)
			spec.Objects = append([]v1alpha1.TemplateObject{{
				Name: "rejected", Template: &runtime.RawExtension{Raw: []byte(rejected("rejected"))},
				IncludeWhen: "ns.labels[?'tier'].orValue('') == 'dev'",
			}}, spec.Objects...)
			spec.Rollout.RatePerSecond = 100
			spec.Rollout.PauseAfterFailures = 3
		})
		Eventually(reason).WithContext(ctx).WithArguments(ctx).WithTimeout(2 * time.Minute).
			Should(Equal("PausedAfterFailures"))
		counts := values(ctx)
		AddReportEntry("namespaces by revision when the rollout has paused", counts)
		Expect(counts["a"]).To(BeNumerically(">", broken), "%v", counts)
		Consistently(values).WithContext(ctx).WithArguments(ctx).Should(Equal(counts))
		fresh := selectedBy(template.Name)
		createOpen(ctx, fresh)
		expectValue(ctx, fresh, "config", "a")
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "a"))(spec)
			spec.Rollout.RatePerSecond = 500
		})
		Eventually(values).WithContext(ctx).WithArguments(ctx).WithTimeout(2 * time.Minute).
			Should(Equal(map[string]int{"a": total + 1}))
	})

	It("starts with the canaries, and continues when they are updated", func(ctx context.Context) {
		start(ctx, 4, 1, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Rollout.Canary, spec.Rollout.PauseAfterFailures = dev, 1
		})
		change(ctx, template.Name, only("config", rejected("config")))
		Eventually(reason).WithContext(ctx).WithArguments(ctx).Should(Equal("PausedAfterFailures"))
		Expect(values(ctx)).To(Equal(map[string]int{"a": 4}))
		change(ctx, template.Name, only("config", configMap("config", "c")))
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"c": 4}))
	})

	It("remains paused until the new revision can be rendered in the namespaces that have failed", func(ctx context.Context) {
		start(ctx, 4, 0, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Rollout.PauseAfterFailures = 2 })
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "${ns.labels['team']}"))(spec)
			spec.Rollout.RatePerSecond = 1
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
			patchNamespace(ctx, namespace, `{"metadata":{"labels":{"team":"b"}}}`)
		}
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"b": 4}))
	})

	It("continues when the template no longer selects the namespace that has failed", func(ctx context.Context) {
		start(ctx, 4, 1, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Rollout.Canary, spec.Rollout.PauseAfterFailures = dev, 1
		})
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "b"))(spec)
			spec.Objects = append(spec.Objects, v1alpha1.TemplateObject{
				Name: "rejected", Template: &runtime.RawExtension{Raw: []byte(rejected("rejected"))},
				IncludeWhen: "ns.labels[?'tier'].orValue('') == 'dev'",
			})
		})
		Eventually(reason).WithContext(ctx).WithArguments(ctx).Should(Equal("PausedAfterFailures"))
		patchNamespace(ctx, namespaces[0], `{"metadata":{"labels":{"kind":null}}}`)
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"b": 4}))
	})

	It("does not wait for namespaces that wait for other initializers", func(ctx context.Context) {
		name := framework.Unique("slow")
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration(name).Initializer(name+".test.example.com",
			v1alpha1.InitializerSettings{NamespaceSelector: &v1alpha1.NamespaceSelector{
				MatchLabels: map[string]v1alpha1.LabelValue{"slow": "true"},
			}}))
		start(ctx, 3, 1, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Rollout.Canary = dev })
		waiting := wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", template.Name).
			Label("tier", "dev").Label("slow", "true").Obj()
		Expect(creator.Create(ctx, waiting)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(framework.PendingOf(cluster.GetNamespace(g, ctx, waiting.Name))).To(Equal(name + ".test.example.com"))
		}).WithContext(ctx).Should(Succeed())
		change(ctx, template.Name, only("config", configMap("config", "b")))
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"a": 1, "b": 3}))
		cluster.Finish(ctx, waiting.Name)
		Eventually(values).WithContext(ctx).WithArguments(ctx).Should(Equal(map[string]int{"b": 4}))
	})

	It("waits while it is paused, and an invalid template changes nothing", func(ctx context.Context) {
		start(ctx, 3, 0, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ExistingNamespaces = true })
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
		createOpen(ctx, fresh)
		createOpen(ctx, existing)
		patchNamespace(ctx, existing, `{"metadata":{"labels":{"kind":"`+template.Name+`"}}}`)
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
