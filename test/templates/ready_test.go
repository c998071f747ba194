// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// isCurrent reports whether the kstatus library reads a template as Current.
func isCurrent(template *v1alpha1.NamespaceTemplate) bool {
	ready := meta.FindStatusCondition(template.Status.Conditions, v1alpha1.ConditionReady)
	return (template.Status.ObservedGeneration == 0 || template.Status.ObservedGeneration == template.Generation) &&
		!meta.IsStatusConditionTrue(template.Status.Conditions, v1alpha1.ConditionStalled) &&
		(ready == nil || ready.Status == metav1.ConditionTrue)
}

// watchTemplate sends each version of a template after a resource version.
func watchTemplate(ctx context.Context, template *v1alpha1.NamespaceTemplate) <-chan watch.Event {
	GinkgoHelper()
	watching, err := client.NewWithWatch(controlplane.Unlimited(cluster.Admin.Config), client.Options{Scheme: cluster.Admin.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	watcher, err := watching.Watch(ctx, &v1alpha1.NamespaceTemplateList{}, &client.ListOptions{
		Raw: &metav1.ListOptions{
			FieldSelector: "metadata.name=" + template.Name, ResourceVersion: template.ResourceVersion,
		},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(watcher.Stop)
	return watcher.ResultChan()
}

// untilCurrent returns the reasons of Ready in each version of a template until kstatus reads it as Current, and calls
// the function then.
func untilCurrent(ctx context.Context, template *v1alpha1.NamespaceTemplate, then func()) []string {
	GinkgoHelper()
	Expect(isCurrent(template)).To(BeFalse(), "%+v", template.Status)
	var reasons []string
	for changed := range watchTemplate(ctx, template) {
		current, ok := changed.Object.(*v1alpha1.NamespaceTemplate)
		Expect(ok).To(BeTrue(), "%v", changed)
		if isCurrent(current) {
			then()
			return reasons
		}
		ready := meta.FindStatusCondition(current.Status.Conditions, v1alpha1.ConditionReady)
		if ready != nil && current.Status.ObservedGeneration == current.Generation {
			reasons = append(reasons, ready.Reason)
		}
	}
	Fail("the watch has ended")
	return nil
}

var _ = Describe("The readiness of a template", func() {
	DescribeTable("is not reported before each namespace contains a change", func(ctx context.Context, total int) {
		values := func(template *v1alpha1.NamespaceTemplate) map[string]int {
			configs := &corev1.ConfigMapList{}
			Expect(cluster.Admin.List(ctx, configs, client.MatchingLabels{v1alpha1.LabelManagedByTemplate: template.Name})).To(Succeed())
			counts := map[string]int{}
			for _, config := range configs.Items {
				counts[config.Data["key"]]++
			}
			return counts
		}
		created := newTemplate(framework.Unique("ready"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Scope = v1alpha1.ScopeAllNamespaces })
		for range total {
			creator.Creates(ctx, selectedBy(created.Name))
		}
		By("a new template for existing namespaces")
		create(ctx, created)
		first := created.DeepCopy()
		first.ResourceVersion = created.ResourceVersion
		Expect(first.Status.ObservedGeneration).To(BeEquivalentTo(-1), "in the response to the creation")
		reasons := untilCurrent(ctx, first, func() { Expect(values(first)).To(Equal(map[string]int{"a": total})) })
		Expect(reasons).NotTo(BeEmpty())
		Expect(reasons).To(HaveEach(BeElementOf("Updating", "EnforcementPending")))
		for _, value := range []string{"b", "c", "d"} {
			By("a change to " + value)
			current := &v1alpha1.NamespaceTemplate{}
			Eventually(func(g Gomega) {
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(created), current)).To(Succeed())
				only("config", configMap("config", value))(&current.Spec)
				g.Expect(cluster.Admin.Update(ctx, current)).To(Succeed())
			}).WithContext(ctx).Should(Succeed())
			reasons := untilCurrent(ctx, current, func() { Expect(values(created)).To(Equal(map[string]int{value: total})) })
			Expect(reasons).NotTo(BeEmpty())
			Expect(reasons).To(HaveEach("Updating"))
			current = &v1alpha1.NamespaceTemplate{}
			Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(created), current)).To(Succeed())
			Expect(*current.Status.Namespaces).To(Equal(v1alpha1.TemplateNamespaceCounts{Desired: int32(total), Updated: int32(total)}))
			Expect(current.Status.CurrentRevision).To(Equal(current.Status.UpdateRevision))
		}
	}, Entry("of 30 namespaces", 30), Entry("of 100 namespaces", Label("long"), 100))

	It("does not depend on what the users of one namespace do, or on namespaces that are Initializing", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		intercepted := restartManager(ctx, nil)
		created, namespace := createSelecting(ctx, "ready", func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects = append(spec.Objects, objectNamed("config", configMap("config", "a")),
				objectNamed("labels", configMap("labels", "${ns.labels['kind']}")))
		})
		expectCondition(ctx, created.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "All 1")
		current := getTemplate(Default, ctx, created.Name)
		versions := watchTemplate(ctx, current)
		expectStillReady := func() {
			GinkgoHelper()
			for {
				select {
				case changed := <-versions:
					current := changed.Object.(*v1alpha1.NamespaceTemplate)
					Expect(isCurrent(current)).To(BeTrue(), "%+v", current.Status)
				default:
					return
				}
			}
		}
		By("a namespace that waits until its quota is counted")
		resume := intercepted.pause("resourcequotas")
		DeferCleanup(resume)
		waiting := framework.CreateAs(ctx, creator, selectedBy(created.Name))
		expectWaiting(ctx, waiting, "QuotaNotCounted")
		expectStillReady()
		Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(created), current)).To(Succeed())
		Expect(current.Status.Namespaces.Desired).To(BeEquivalentTo(1))
		resume()
		expectInitialized(ctx, waiting)

		By("a user who changes an object of the template again and again")
		tenant := cluster.Impersonate(alice)
		Eventually(func(g Gomega) {
			config := &corev1.ConfigMap{}
			g.Expect(tenant.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "config"}, config)).To(Succeed())
			if config.Data["key"] == "a" {
				config.Data["key"] = "mine"
				g.Expect(client.IgnoreNotFound(tenant.Update(ctx, config))).To(Succeed())
			}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(created), current)).To(Succeed())
			g.Expect(current.Status.Namespaces.Conflicted).To(BeEquivalentTo(1))
		}).WithContext(ctx).Should(Succeed())
		expectCondition(ctx, created.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "1 of 2", "Objects conflict in 1 namespaces")
		expectCondition(ctx, created.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		expectStillReady()

		By("more labels than a template can read")
		labels := map[string]string{}
		for i := range 300 {
			labels[fmt.Sprintf("label-%d", i)] = ""
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		Expect(err).NotTo(HaveOccurred())
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), string(patch))
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(created), current)).To(Succeed())
			g.Expect(current.Status.Failures).To(ContainElement(HaveField("Reason", "InputTooLarge")))
			g.Expect(current.Status.Namespaces.Failed).To(BeEquivalentTo(1))
		}).WithContext(ctx).Should(Succeed())
		expectCondition(ctx, created.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "1 of 2", "1 failed")
		expectStillReady()
	})

	It("is Stalled only after a minute without permissions", func(ctx context.Context) {
		created := createTemplate(ctx, "ready", only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = "absent" })
		var current *v1alpha1.NamespaceTemplate
		conditions := func(g Gomega) (ready, stalled *metav1.Condition) {
			current = getTemplate(g, ctx, created.Name)
			return meta.FindStatusCondition(current.Status.Conditions, v1alpha1.ConditionReady),
				meta.FindStatusCondition(current.Status.Conditions, v1alpha1.ConditionStalled)
		}
		expectCondition(ctx, created.Name, v1alpha1.ConditionReady, metav1.ConditionFalse)
		ready, stalled := conditions(Default)
		Expect(ready.Reason).To(Equal("Unauthorized"))
		Expect(stalled).To(BeNil())
		DeferCleanup(restoreManager)
		restartManager(ctx, nil, func(o *manager.Options) {
			o.Clock = clocktesting.NewFakePassiveClock(time.Now().Add(time.Minute + time.Second))
		})
		Eventually(func(g Gomega) {
			_, stalled := conditions(g)
			g.Expect(stalled).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "Unauthorized"))))
		}).WithContext(ctx).Should(Succeed())
		restoreManager(ctx)
		By("another generation: its permissions may still be created")
		change(ctx, created.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = "absent-too" })
		Eventually(func(g Gomega) {
			ready, stalled := conditions(g)
			g.Expect(current.Status.ObservedGeneration).To(Equal(current.Generation))
			g.Expect(ready.Reason).To(Equal("Unauthorized"))
			g.Expect(stalled).To(BeNil())
		}).WithContext(ctx).Should(Succeed())
		change(ctx, created.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = account })
		expectCondition(ctx, created.Name, v1alpha1.ConditionReady, metav1.ConditionTrue)
	})
})

var _ = Describe("The columns of a template", func() {
	// row returns the columns of a template, as "kubectl get --output=wide" prints them, which takes seconds on busy machines.
	row := func(ctx context.Context, name string) map[string]string {
		GinkgoHelper()
		config := rest.CopyConfig(controlplane.Unlimited(cluster.Admin.Config))
		config.GroupVersion, config.APIPath, config.NegotiatedSerializer = &v1alpha1.GroupVersion, "/apis", scheme.Codecs
		reader, err := rest.RESTClientFor(config)
		Expect(err).NotTo(HaveOccurred())
		body, err := reader.Get().Resource("namespacetemplates").Name(name).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred())
		table := &metav1.Table{}
		Expect(json.Unmarshal(body, table)).To(Succeed())
		Expect(table.Rows).To(HaveLen(1))
		columns := map[string]string{}
		for i, definition := range table.ColumnDefinitions {
			columns[strings.ToUpper(definition.Name)] = fmt.Sprint(table.Rows[0].Cells[i])
		}
		return columns
	}
	// expect waits for the columns READY REASON PROGRESSING UPDATED DESIRED FAILED CONFLICTED, which are regular
	// expressions.
	expect := func(ctx context.Context, step, name, want string) {
		GinkgoHelper()
		By(step)
		Eventually(func(g Gomega) {
			columns, got := row(ctx, name), ""
			for _, header := range []string{"READY", "REASON", "PROGRESSING", "UPDATED", "DESIRED", "FAILED", "CONFLICTED"} {
				got += columns[header] + " "
			}
			g.Expect(strings.TrimSpace(got)).To(MatchRegexp("^" + want + "$"))
			g.Expect(columns).To(HaveKeyWithValue("REVISION", getTemplate(g, ctx, name).Status.UpdateRevision))
		}).WithContext(ctx).Should(Succeed())
	}
	events := func(ctx context.Context, g Gomega, template *v1alpha1.NamespaceTemplate) []string {
		var list eventsv1.EventList
		g.Expect(cluster.Admin.List(ctx, &list)).To(Succeed())
		var reasons []string
		for _, event := range list.Items {
			if event.Regarding.UID == template.UID {
				g.Expect(event.Namespace).To(Equal(metav1.NamespaceDefault))
				reasons = append(reasons, event.Type+" "+event.Reason)
			}
		}
		return reasons
	}

	It("describe each step of a rollout, and Events record it", func(ctx context.Context) {
		created := newTemplate(framework.Unique("rollout"), only("config", configMap("config", "a")))
		created.Spec.Rollout.CanarySelector = &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"tier": "dev"}}
		create(ctx, created)
		name := created.Name
		expect(ctx, "no namespaces", name, "True UpToDate False 0 0 0 0")
		for i := range 12 {
			namespace := wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", name)
			if i < 10 {
				namespace.Label("tier", "dev")
			}
			createInitialized(ctx, namespace.Obj())
		}
		expect(ctx, "before", name, "True UpToDate False 12 12 0 0")
		By("ten canaries, one in a second")
		change(ctx, name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "b"))(spec)
			spec.Rollout.MaxNamespacesPerSecond = 1
		})
		expect(ctx, "canaries", name, `False Updating True \d 12 0 0`)
		ready := meta.FindStatusCondition(getTemplate(Default, ctx, name).Status.Conditions, v1alpha1.ConditionReady)
		Expect(ready.Message).To(ContainSubstring("canaries"))
		change(ctx, name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Rollout.Paused = true })
		expect(ctx, "paused by a user", name, `False Paused Unknown \d 12 0 0`)
		change(ctx, name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Rollout.Paused, spec.Rollout.MaxNamespacesPerSecond = false, 100
		})
		expect(ctx, "resumed, and done", name, "True UpToDate False 12 12 0 0")
		change(ctx, name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", rejected("config"))(spec)
			spec.Rollout.FailureThreshold = 2
		})
		expect(ctx, "paused after failures", name, `False PausedAfterFailures Unknown 0 12 \d+ 0`)
		columns := row(ctx, name)
		Expect(columns).To(And(HaveKeyWithValue("ACCESS", "Open"),
			HaveKeyWithValue("CURRENT-REVISION", Not(Equal(columns["REVISION"])))))
		change(ctx, name, only("config", configMap("config", "c")))
		expect(ctx, "corrected, and done", name, "True UpToDate False 12 12 0 0")
		change(ctx, name, only("config", configMap("config", "${params.typo}")))
		expect(ctx, "invalid", name, "False Invalid Unknown 0 12 0 0")
		change(ctx, name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "c"))(spec)
			spec.ServiceAccountName = "absent"
		})
		expect(ctx, "unauthorized", name, `False Unauthorized \S+ \d+ 12 \d+ 0`)
		change(ctx, name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = account })
		expect(ctx, "authorized", name, "True UpToDate False 12 12 0 0")
		By("the Events")
		Eventually(func(g Gomega) {
			g.Expect(events(ctx, g, created)).To(ContainElements("Normal RolloutStarted", "Normal RolloutPaused",
				"Normal RolloutCompleted", "Warning RolloutPausedAfterFailures", "Warning InvalidTemplate", "Warning Unauthorized"))
		}).WithContext(ctx).Should(Succeed())
	})
})
