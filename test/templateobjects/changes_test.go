// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0
package templateobjects

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("An object that moves from one template to another", func() {
	for direction, names := range map[string][2]string{"before": {"b", "a"}, "after": {"a", "b"}} {
		It("is not deleted if the other one sorts "+direction+" it", func(ctx context.Context) {
			unique := framework.Unique("move")
			withConfig := func(value string) func(*v1alpha1.NamespaceTemplateSpec) {
				return func(spec *v1alpha1.NamespaceTemplateSpec) {
					only("config", configMap("config", value))(spec)
					spec.Objects = append(spec.Objects, objectNamed("own", configMap("own-"+value, "x")))
				}
			}
			from, to := newTemplate(unique+names[0], withConfig("from")), newTemplate(unique+names[1], only("own", configMap("own-to", "x")))
			to.Spec.NamespaceSelector = from.Spec.NamespaceSelector
			create(ctx, from)
			create(ctx, to)
			expectCondition(ctx, to.Name, v1alpha1.ConditionValid, metav1.ConditionTrue)
			namespace := selectedBy(from.Name)
			createOpen(ctx, namespace)
			before := get(ctx, namespace, "config", &corev1.ConfigMap{})
			change(ctx, to.Name, withConfig("to"))
			expectCondition(ctx, to.Name, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
			change(ctx, from.Name, only("own", configMap("own-from", "x")))
			expectValue(ctx, namespace, "config", "to")
			for _, name := range []string{from.Name, to.Name} {
				expectCondition(ctx, name, v1alpha1.ConditionConflicted, metav1.ConditionFalse)
				expectCondition(ctx, name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
			}
			after := get(ctx, namespace, "config", &corev1.ConfigMap{})
			Expect(after.UID).To(Equal(before.UID))
			Expect(after.Labels).To(HaveKeyWithValue(v1alpha1.LabelTemplate, to.Name))
			By("the removal from the other template")
			change(ctx, to.Name, only("own", configMap("own-to", "x")))
			expectDeleted(ctx, namespace, "config")
		})
	}

	It("is not deleted before the rollout of the other one reaches the namespace", func(ctx context.Context) {
		unique := framework.Unique("move")
		from := newTemplate(unique+"a", only("config", configMap("config", "from")), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects = append(spec.Objects, objectNamed("rest", configMap("rest", "x")))
		})
		to := newTemplate(unique+"b", only("own", configMap("own", "x")))
		to.Spec.NamespaceSelector = from.Spec.NamespaceSelector
		create(ctx, from)
		create(ctx, to)
		namespace := selectedBy(from.Name)
		createOpen(ctx, namespace)
		before := get(ctx, namespace, "config", &corev1.ConfigMap{})
		change(ctx, to.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects = append(spec.Objects, objectNamed("config", configMap("config", "to")))
			spec.Rollout.Paused = true
		})
		expectCondition(ctx, to.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		change(ctx, from.Name, only("rest", configMap("rest", "y")))
		expectValue(ctx, namespace, "rest", "y")
		expectCondition(ctx, from.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		Expect(get(ctx, namespace, "config", &corev1.ConfigMap{}).UID).To(Equal(before.UID))
		change(ctx, to.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Rollout.Paused = false })
		expectValue(ctx, namespace, "config", "to")
		Expect(get(ctx, namespace, "config", &corev1.ConfigMap{}).UID).To(Equal(before.UID))
	})

	It("loses the fields of the other one, also if the first attempt fails", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		unique := framework.Unique("move")
		from := newTemplate(unique+"a", only("config",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"key":"from","extra":"x"}}`))
		to := newTemplate(unique+"b", only("own", configMap("own-to", "x")))
		to.Spec.NamespaceSelector = from.Spec.NamespaceSelector
		create(ctx, from)
		create(ctx, to)
		namespace := selectedBy(from.Name)
		createOpen(ctx, namespace)
		failed := make(chan struct{})
		var once sync.Once
		restartManager(ctx, func(request *http.Request) (happens fault) {
			if strings.HasSuffix(request.URL.Path, "/configmaps/config") &&
				request.URL.Query().Get("fieldManager") == template.FieldManager(from.Name) {
				once.Do(func() {
					close(failed)
					happens = notSent
				})
			}
			return happens
		})
		change(ctx, to.Name, only("config", configMap("config", "to")))
		expectCondition(ctx, to.Name, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
		change(ctx, from.Name, only("own", configMap("own-from", "x")))
		Eventually(failed).WithContext(ctx).Should(BeClosed())
		Eventually(func() map[string]string {
			return get(ctx, namespace, "config", &corev1.ConfigMap{}).Data
		}).WithContext(ctx).Should(Equal(map[string]string{"key": "to"}))
		for _, entry := range get(ctx, namespace, "config", &corev1.ConfigMap{}).ManagedFields {
			if entry.Manager == template.FieldManager(from.Name) {
				Expect(entry.FieldsV1.GetRawString()).To(Equal(
					`{"f:metadata":{"f:annotations":{"f:nslifecycle.dev/namespace-uid":{}}}}`), "the operator must not send this again")
			}
		}
	})
})

var _ = Describe("An open namespace", func() {
	It("keeps all its conditions when a template changes", func(ctx context.Context) {
		template := newTemplate(framework.Unique("conditions"), only("config", configMap("config", "a")))
		create(ctx, template)
		namespace := selectedBy(template.Name)
		createOpen(ctx, namespace)
		Expect(cluster.Admin.Status().Patch(ctx, namespace.DeepCopy(), client.RawPatch(types.StrategicMergePatchType,
			[]byte(`{"status":{"conditions":[{"type":"example.com/Audited","status":"True"}]}}`)))).To(Succeed())
		current := func() *corev1.Namespace {
			current := &corev1.Namespace{}
			Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), current)).To(Succeed())
			return current
		}
		before := current()
		Expect(before.Status.Conditions).To(HaveLen(3))
		change(ctx, template.Name, only("config", configMap("config", "b")))
		recorded := HaveKeyWithValue(v1alpha1.AnnotationTemplates, before.Annotations[v1alpha1.AnnotationTemplates])
		Eventually(current).WithContext(ctx).Should(HaveField("Annotations", Not(recorded)))
		Expect(current().Status).To(Equal(before.Status))
	})
})

var _ = Describe("New namespaces whose templates change", func() {
	unknown := func(spec *v1alpha1.NamespaceTemplateSpec) {
		only("config", configMap("config", "a"))(spec)
		spec.Objects = append(spec.Objects, objectNamed("unknown",
			`{"apiVersion":"test.example.com/v1","kind":"Unknown","metadata":{"name":"x"}}`))
	}
	waiting := func(ctx context.Context, policy v1alpha1.RemovalPolicy) (*v1alpha1.NamespaceTemplate, *corev1.Namespace) {
		template := newTemplate(framework.Unique("change"), unknown, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Removal.OnDelete, spec.Removal.OnUnmatch = policy, policy
		})
		create(ctx, template)
		namespace := selectedBy(template.Name)
		Expect(creator.Create(ctx, namespace)).To(Succeed())
		expectWaiting(ctx, namespace, "KindNotFound")
		expectValue(ctx, namespace, "config", "a")
		return template, namespace
	}

	for _, policy := range []v1alpha1.RemovalPolicy{v1alpha1.RemovalKeep, v1alpha1.RemovalPrune} {
		for name, end := range map[string]func(ctx context.Context, template string, namespace *corev1.Namespace){
			"when the template is deleted": deleteTemplate, "when they are relabelled": relabel,
		} {
			It("open "+name+", with removal "+string(policy), func(ctx context.Context) {
				template, namespace := waiting(ctx, policy)
				end(ctx, template.Name, namespace)
				expectOpen(ctx, namespace)
				Eventually(func() int { return len(objectsOf(ctx, namespace)) }).WithContext(ctx).
					Should(Equal(map[v1alpha1.RemovalPolicy]int{v1alpha1.RemovalKeep: 1}[policy]))
			})
		}
	}

	It("do not prevent the deletion of a template while they are terminating", func(ctx context.Context) {
		template, initializing := waiting(ctx, v1alpha1.RemovalPrune)
		change(ctx, template.Name, only("config", configMap("config", "a")))
		expectOpen(ctx, initializing)
		patch := initializing.DeepCopy()
		controllerutil.AddFinalizer(patch, "test.example.com/block")
		Expect(cluster.Admin.Patch(ctx, patch, client.MergeFrom(initializing))).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			patchNamespace(ctx, initializing, `{"metadata":{"finalizers":null}}`)
		})
		Expect(cluster.Admin.Delete(ctx, initializing.DeepCopy())).To(Succeed())
		deleteTemplate(ctx, template.Name, nil)
	})
})

var _ = Describe("A copy", func() {
	It("is not applied to its source, and its failure does not affect other objects", func(ctx context.Context) {
		source := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "source"}, Data: map[string]string{"key": "a"},
		}
		template := newTemplate(framework.Unique("self"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ExistingNamespaces = true })
		origin := selectedBy(template.Name)
		Expect(cluster.Admin.Create(ctx, origin)).To(Succeed())
		source.Namespace = origin.Name
		Expect(cluster.Admin.Create(ctx, source)).To(Succeed())
		template.Spec.Objects = append(template.Spec.Objects, v1alpha1.TemplateObject{
			Name: "copy", Copy: &v1alpha1.TemplateCopy{APIVersion: "v1", Kind: "ConfigMap", Namespace: origin.Name, Name: "source"},
		})
		create(ctx, template)
		namespace := selectedBy(template.Name)
		createOpen(ctx, namespace)
		expectValue(ctx, namespace, "source", "a")
		expectValue(ctx, origin, "config", "a")
		Expect(get(ctx, origin, "source", &corev1.ConfigMap{}).Labels).NotTo(HaveKey(v1alpha1.LabelTemplate))
		source.Data["key"] = "b"
		Expect(cluster.Admin.Update(ctx, source)).To(Succeed())
		expectValue(ctx, namespace, "source", "b")
		expectValue(ctx, origin, "source", "b")
		By("a deleted source, and another object that is deleted")
		Expect(cluster.Admin.Delete(ctx, source)).To(Succeed())
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionTrue, "1 failed")
		Expect(cluster.Admin.Delete(ctx, get(ctx, namespace, "config", &corev1.ConfigMap{}))).To(Succeed())
		expectValue(ctx, namespace, "config", "a")
		expectValue(ctx, namespace, "source", "b")
	})
})

var _ = Describe("Sync mode Once", func() {
	It("completes a first pass that failed, and the objects that are created after opening", func(ctx context.Context) {
		template := newTemplate(framework.Unique("once"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Sync.Mode = v1alpha1.SyncOnce
				spec.Objects = append(spec.Objects, objectNamed("later", configMap("later", "b")))
				spec.Objects[1].When = v1alpha1.TemplateAfterOpen
			})
		create(ctx, template)
		namespace := selectedBy(template.Name)
		createOpen(ctx, namespace)
		expectValue(ctx, namespace, "later", "b")
		By("an existing namespace with an object that prevents the first pass")
		existing := wrappers.MakeNamespace(framework.Unique("ns")).Obj()
		Expect(cluster.Admin.Create(ctx, existing)).To(Succeed())
		other := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: existing.Name, Name: "config"}, Data: map[string]string{"key": "other"},
		}
		Expect(cluster.Admin.Create(ctx, other)).To(Succeed())
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ExistingNamespaces = true })
		patchNamespace(ctx, existing, `{"metadata":{"labels":{"kind":"`+template.Name+`"}}}`)
		expectCondition(ctx, template.Name, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
		Expect(cluster.Admin.Delete(ctx, other)).To(Succeed())
		expectValue(ctx, existing, "config", "a")
	})
})

var _ = Describe("A full pass", func() {
	AfterEach(restoreManager)

	It("finds changes that the managedFields do not show", func(ctx context.Context) {
		created := newTemplate(framework.Unique("full"), only("config", configMap("config", "ours")))
		create(ctx, created)
		var namespace *corev1.Namespace
		apply := func(value string) *corev1.ConfigMap {
			object := applycorev1.ConfigMap("config", namespace.Name).WithData(map[string]string{"key": value}).
				WithLabels(map[string]string{v1alpha1.LabelTemplate: created.Name}).
				WithAnnotations(map[string]string{v1alpha1.AnnotationNamespaceUID: string(namespace.UID)})
			Expect(cluster.Admin.Apply(ctx, object, client.FieldOwner(template.FieldManager(created.Name)), client.ForceOwnership)).
				To(Succeed())
			return get(ctx, namespace, "config", &corev1.ConfigMap{})
		}
		entryOf := func(object *corev1.ConfigMap) metav1.ManagedFieldsEntry {
			return object.ManagedFields[slices.IndexFunc(object.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
				return entry.Manager == template.FieldManager(created.Name)
			})]
		}
		// Another client applies other values as the same field manager in the same second.
		Eventually(func(g Gomega) {
			namespace = selectedBy(created.Name)
			createOpen(ctx, namespace)
			before := entryOf(get(ctx, namespace, "config", &corev1.ConfigMap{}))
			g.Expect(entryOf(apply("theirs"))).To(Equal(before))
		}).WithContext(ctx).Should(Succeed())
		Consistently(func() string {
			return get(ctx, namespace, "config", &corev1.ConfigMap{}).Data["key"]
		}).WithContext(ctx).Should(Equal("theirs"))
		restartManager(ctx, nil, func(o *manager.Options) { o.TemplateFullPass = 500 * time.Millisecond })
		expectValue(ctx, namespace, "config", "ours")
	})
})

// expectReached waits until new Namespaces get the latest revision of a template. Existing Namespaces get it, or report
// why they do not, earlier.
func expectReached(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		current := &v1alpha1.NamespaceTemplate{}
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: name}, current)).To(Succeed())
		g.Expect(current.Status.CurrentRevision).To(Equal(template.Revision(&current.Spec)))
	}).WithContext(ctx).WithTimeout(20 * time.Second).Should(Succeed())
}
