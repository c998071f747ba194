// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

type specChange = func(*v1alpha1.NamespaceTemplateSpec)

var _ = Describe("kstatus of a NamespaceTemplate", func() {
	It("is InProgress until the operator has observed the object, and until it has observed a change", func(ctx context.Context) {
		cluster.PauseManager()
		template := createTemplate(ctx)
		expectStatus(ctx, template, status.InProgressStatus)
		cluster.StartManager(ctx)
		By("a template that selects nothing")
		expectStatus(ctx, template, status.CurrentStatus)
		cluster.StopManager()
		change(ctx, template, setValue("b"))
		expectStatus(ctx, template, status.InProgressStatus)
		cluster.StartManager(ctx)
		expectStatus(ctx, template, status.CurrentStatus)
	})

	It("is Failed while the template is invalid", func(ctx context.Context) {
		template := createTemplate(ctx, setValue("${params.typo}"))
		expectReasonOf(ctx, template, v1alpha1.ConditionValid, "Invalid")
		expectStatus(ctx, template, status.FailedStatus)
		change(ctx, template, setValue("a"))
		expectStatus(ctx, template, status.CurrentStatus)
	})

	// The permissions can follow in the same release.
	It("is InProgress while the ServiceAccount lacks permissions, and Failed after a minute", func(ctx context.Context) {
		template := createTemplate(ctx, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = "missing" })
		expectReasonOf(ctx, template, v1alpha1.ConditionAuthorized, "Unauthorized")
		expectStatus(ctx, template, status.InProgressStatus)
		restartManager(ctx, func(options *manager.Options) {
			options.Clock = clocktesting.NewFakePassiveClock(time.Now().Add(2 * time.Minute))
		})
		expectStatus(ctx, template, status.FailedStatus)
		cluster.AddTemplateAccount(ctx, "missing")
		restartManager(ctx)
		expectStatus(ctx, template, status.CurrentStatus)
	})

	It("is InProgress during a rollout, in which the canaries are first", func(ctx context.Context) {
		template := createTemplate(ctx, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Rollout.MaxNamespacesPerSecond = 1
			spec.Rollout.CanarySelector = selector("tier", "dev")
		})
		const total = 10
		namespaces := createNamespaces(ctx, template, total)
		patchLabels(ctx, namespaces[0], "tier", "dev")
		expectStatus(ctx, template, status.CurrentStatus)
		change(ctx, template, setValue("b"))
		expectReasonOf(ctx, template, v1alpha1.ConditionProgressing, "Updating")
		expectStatusAtOnce(ctx, template, status.InProgressStatus)
		expectStatus(ctx, template, status.CurrentStatus)
		expectValues(ctx, template, map[string]int{"b": total})
	})

	It("is InProgress while objects fail, also when this pauses the rollout", func(ctx context.Context) {
		template := createTemplate(ctx, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Rollout.MaxNamespacesPerSecond, spec.Rollout.FailureThreshold = 1, 8
		})
		createNamespaces(ctx, template, 10)
		expectStatus(ctx, template, status.CurrentStatus)
		change(ctx, template, setKey("invalid key"))
		expectReasonOf(ctx, template, v1alpha1.ConditionProgressing, "Failing")
		expectStatusAtOnce(ctx, template, status.InProgressStatus)
		expectReasonOf(ctx, template, v1alpha1.ConditionProgressing, "PausedAfterFailures")
		expectStatusAtOnce(ctx, template, status.InProgressStatus)
		change(ctx, template, setValue("a"))
		expectStatus(ctx, template, status.CurrentStatus)
	})

	// As for a Deployment: kstatus has no result for a rollout that a user has paused.
	It("is InProgress while a user pauses a rollout, and Current if there is nothing to roll out", func(ctx context.Context) {
		template := createTemplate(ctx)
		createNamespaces(ctx, template, 2)
		expectStatus(ctx, template, status.CurrentStatus)
		change(ctx, template, setPaused(true))
		expectStatus(ctx, template, status.CurrentStatus)
		change(ctx, template, setValue("b"))
		expectReasonOf(ctx, template, v1alpha1.ConditionProgressing, "Paused")
		expectStatus(ctx, template, status.InProgressStatus)
		change(ctx, template, setPaused(false))
		expectStatus(ctx, template, status.CurrentStatus)
		expectValues(ctx, template, map[string]int{"b": 2})
	})

	// Otherwise, a tenant could stop the Kustomization or release that contains the template.
	It("is Current while users of a namespace control an object", func(ctx context.Context) {
		template := createTemplate(ctx)
		existing := wrappers.MakeNamespace(framework.Unique("ns")).Obj()
		cluster.Ordinary.Creates(ctx, existing)
		config := wrappers.MakeConfigMap(existing.Name, "config")
		config.Data = map[string]string{"key": "of the user"}
		cluster.Ordinary.Creates(ctx, config)
		change(ctx, template, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Scope = v1alpha1.ScopeAllNamespaces })
		patchLabels(ctx, existing, "kind", template.Name)
		expectReasonOf(ctx, template, v1alpha1.ConditionConflicted, "Conflicting")
		expectStatus(ctx, template, status.CurrentStatus)
	})

	It("is Current while namespaces that the template selects are Initializing", func(ctx context.Context) {
		cluster.Register(ctx, "endless", absent)
		template := createTemplate(ctx)
		expectStatus(ctx, template, status.CurrentStatus)
		expectSelected(ctx, template)
		namespace := namespaceOf(template)
		cluster.Ordinary.Creates(ctx, namespace)
		expectCondition(ctx, namespace, v1alpha1.ConditionInitializing, corev1.ConditionTrue)
		expectStatus(ctx, template, status.CurrentStatus)
	})

	It("is Terminating while another client's finalizer exists", func(ctx context.Context) {
		template := createTemplate(ctx)
		cluster.Admin.Patches(ctx, template, `{"metadata":{"finalizers":["test.example.com/absent"]}}`)
		cluster.Admin.Deletes(ctx, template)
		expectStatus(ctx, template, status.TerminatingStatus)
		cluster.Admin.Patches(ctx, template, `{"metadata":{"finalizers":null}}`)
		framework.ExpectDeleted(ctx, cluster.Admin, template)
	})

	// In these specs, a watch delivers every version of the template. The resource versions show that the last object
	// was written before the status.
	Describe("is never Current before all objects are written,", func() {
		const total = 100

		It("when the objects change", func(ctx context.Context) {
			template := createTemplate(ctx)
			createNamespaces(ctx, template, total)
			expectStatus(ctx, template, status.CurrentStatus)
			change(ctx, template, setValue("b"))
			expectCurrentAfterObjects(ctx, template, "b", total)
		})

		It("when the template is created for existing namespaces", func(ctx context.Context) {
			template := newTemplate(framework.Unique("template"), func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Scope = v1alpha1.ScopeAllNamespaces
			})
			for range total {
				cluster.Ordinary.Creates(ctx, namespaceOf(template))
			}
			create(ctx, template)
			expectCurrentAfterObjects(ctx, template, "a", total)
		})

		It("when the template selects more namespaces", func(ctx context.Context) {
			template := createTemplate(ctx, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Scope = v1alpha1.ScopeAllNamespaces })
			other := newTemplate(framework.Unique("other"))
			for range total {
				cluster.Ordinary.Creates(ctx, namespaceOf(other))
			}
			expectStatus(ctx, template, status.CurrentStatus)
			change(ctx, template, func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.NamespaceSelector = selector("kind", other.Name)
			})
			expectCurrentAfterObjects(ctx, template, "a", total)
		})
	})
})

// newTemplate returns a template with one ConfigMap. It selects namespaces by the label "kind" with its name as value.
func newTemplate(name string, changes ...specChange) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	template.Spec.ServiceAccountName = account
	template.Spec.NamespaceSelector = selector("kind", name)
	for _, change := range append([]specChange{setValue("a")}, changes...) {
		change(&template.Spec)
	}
	return template
}

func selector(key, value string) *v1alpha1.NamespaceSelector {
	return &v1alpha1.NamespaceSelector{
		MatchLabels: map[string]v1alpha1.LabelValue{key: v1alpha1.LabelValue(value)},
	}
}

// setValue sets the value in the ConfigMap.
func setValue(value string) specChange { return setData("key", value) }

// setKey sets the key in the ConfigMap.
func setKey(key string) specChange { return setData(key, "a") }

func setData(key, value string) specChange {
	return func(spec *v1alpha1.NamespaceTemplateSpec) {
		manifest := fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{%q:%q}}`, key, value)
		spec.Objects = []v1alpha1.TemplateObject{{Name: "config", Template: &runtime.RawExtension{Raw: []byte(manifest)}}}
	}
}

func setPaused(isPaused bool) specChange {
	return func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Rollout.Paused = isPaused }
}

// createTemplate creates a template, which exists until the spec ends.
func createTemplate(ctx context.Context, changes ...specChange) *v1alpha1.NamespaceTemplate {
	GinkgoHelper()
	template := newTemplate(framework.Unique("template"), changes...)
	create(ctx, template)
	return template
}

func create(ctx context.Context, template *v1alpha1.NamespaceTemplate) {
	GinkgoHelper()
	cluster.Admin.Creates(ctx, template)
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(cluster.Admin.Delete(ctx, template))).To(Succeed())
		Eventually(func(g Gomega) {
			for _, entry := range cluster.EffectiveSet(g, ctx).Templates {
				g.Expect(entry.Name).NotTo(Equal(template.Name))
			}
		}).WithContext(ctx).Should(Succeed())
	})
}

// change changes the spec of a template.
func change(ctx context.Context, template *v1alpha1.NamespaceTemplate, changes ...specChange) {
	GinkgoHelper()
	Eventually(func() error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), template); err != nil {
			return err
		}
		for _, change := range changes {
			change(&template.Spec)
		}
		return cluster.Admin.Update(ctx, template)
	}).WithContext(ctx).Should(Succeed())
}

func namespaceOf(template *v1alpha1.NamespaceTemplate) *corev1.Namespace {
	return wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", template.Name).Obj()
}

// expectSelected waits until the API server selects new namespaces with a template.
func expectSelected(ctx context.Context, template *v1alpha1.NamespaceTemplate) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		probe := namespaceOf(template)
		g.Expect(cluster.Ordinary.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationSelectedTemplates, template.Name))
	}).WithContext(ctx).Should(Succeed())
}

// createNamespaces creates namespaces that a template selects, and waits until they contain its objects.
func createNamespaces(ctx context.Context, template *v1alpha1.NamespaceTemplate, number int) []*corev1.Namespace {
	GinkgoHelper()
	expectSelected(ctx, template)
	var namespaces []*corev1.Namespace
	for range number {
		namespace := namespaceOf(template)
		cluster.Ordinary.Creates(ctx, namespace)
		namespaces = append(namespaces, namespace)
	}
	Eventually(func(g Gomega) { g.Expect(configsOf(g, ctx, template)).To(HaveLen(number)) }).WithContext(ctx).Should(Succeed())
	for _, namespace := range namespaces {
		expectCondition(ctx, namespace, v1alpha1.ConditionInitializing, corev1.ConditionFalse)
	}
	return namespaces
}

func patchLabels(ctx context.Context, namespace *corev1.Namespace, key, value string) {
	GinkgoHelper()
	cluster.Ordinary.Patches(ctx, namespace, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value))
}

// configsOf returns the ConfigMaps of a template.
func configsOf(g Gomega, ctx context.Context, template *v1alpha1.NamespaceTemplate) []corev1.ConfigMap {
	configs := &corev1.ConfigMapList{}
	g.Expect(cluster.Admin.List(ctx, configs, client.MatchingLabels{v1alpha1.LabelManagedByTemplate: template.Name})).To(Succeed())
	return configs.Items
}

// expectValues expects the numbers of namespaces by the value in the ConfigMap.
func expectValues(ctx context.Context, template *v1alpha1.NamespaceTemplate, want map[string]int) {
	GinkgoHelper()
	counts := map[string]int{}
	for _, config := range configsOf(Default, ctx, template) {
		counts[config.Data["key"]]++
	}
	Expect(counts).To(Equal(want))
}

// expectReasonOf waits until a condition of the current generation of a template has a reason.
func expectReasonOf(ctx context.Context, template *v1alpha1.NamespaceTemplate, conditionType, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		current := &v1alpha1.NamespaceTemplate{}
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
		condition := meta.FindStatusCondition(current.Status.Conditions, conditionType)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Reason).To(Equal(reason), condition.Message)
		g.Expect(condition.ObservedGeneration).To(Equal(current.Generation))
	}).WithContext(ctx).WithPolling(10 * time.Millisecond).Should(Succeed())
}

// expectCurrentAfterObjects waits for the first version of a template, from the given one on, for which kstatus returns
// Current. It expects that all ConfigMaps have been written before this version, and have the value.
func expectCurrentAfterObjects(ctx context.Context, template *v1alpha1.NamespaceTemplate, value string, number int) {
	GinkgoHelper()
	watcher := watchFrom(ctx, template)
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		Expect(event.Type).To(Equal(watch.Modified), "%v", event.Object)
		current := event.Object.(*unstructured.Unstructured)
		result, err := status.Compute(current)
		Expect(err).NotTo(HaveOccurred())
		if result.Status != status.CurrentStatus {
			continue
		}
		configs := configsOf(Default, ctx, template)
		Expect(configs).To(HaveLen(number), "%v", current.Object["status"])
		for _, config := range configs {
			Expect(config.Data).To(HaveKeyWithValue("key", value))
			Expect(resourceVersion(&config)).To(BeNumerically("<", resourceVersion(current)))
		}
		return
	}
	Fail("the watch has ended")
}

// watchFrom watches the versions of a template that follow the given one.
func watchFrom(ctx context.Context, template *v1alpha1.NamespaceTemplate) watch.Interface {
	GinkgoHelper()
	watching, err := client.NewWithWatch(cluster.Admin.Config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("NamespaceTemplateList"))
	watcher, err := watching.Watch(ctx, list, &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, template.Name),
		Raw:           &metav1.ListOptions{ResourceVersion: template.ResourceVersion},
	})
	Expect(err).NotTo(HaveOccurred())
	return watcher
}

func resourceVersion(object client.Object) uint64 {
	GinkgoHelper()
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	Expect(err).NotTo(HaveOccurred())
	return version
}
