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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
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
			namespace := createInitialized(ctx, selectedBy(from.Name))
			before := getConfig(ctx, namespace, "config")
			change(ctx, to.Name, withConfig("to"))
			expectCondition(ctx, to.Name, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
			change(ctx, from.Name, only("own", configMap("own-from", "x")))
			expectValue(ctx, namespace, "config", "to")
			for _, name := range []string{from.Name, to.Name} {
				expectCondition(ctx, name, v1alpha1.ConditionConflicted, metav1.ConditionFalse)
				expectCondition(ctx, name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
			}
			after := getConfig(ctx, namespace, "config")
			Expect(after.UID).To(Equal(before.UID))
			Expect(after.Labels).To(HaveKeyWithValue(v1alpha1.LabelManagedByTemplate, to.Name))
			By("the removal from the other template")
			change(ctx, to.Name, only("own", configMap("own-to", "x")))
			expectDeleted(ctx, namespace, "config")
		})
	}

	It("loses the fields of the other one, also if the first attempt fails", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		unique := framework.Unique("move")
		from := newTemplate(unique+"a", only("config",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"key":"from","extra":"x"}}`))
		to := newTemplate(unique+"b", only("own", configMap("own-to", "x")))
		to.Spec.NamespaceSelector = from.Spec.NamespaceSelector
		create(ctx, from)
		create(ctx, to)
		namespace := createInitialized(ctx, selectedBy(from.Name))
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
			return getConfig(ctx, namespace, "config").Data
		}).WithContext(ctx).Should(Equal(map[string]string{"key": "to"}))
		for _, entry := range getConfig(ctx, namespace, "config").ManagedFields {
			if entry.Manager == template.FieldManager(from.Name) {
				Expect(entry.FieldsV1.GetRawString()).To(Equal(
					`{"f:metadata":{"f:annotations":{"f:nslifecycle.dev/namespace-uid":{}}}}`), "the operator must not send this again")
			}
		}
	})
})

var _ = Describe("An initialized namespace", func() {
	It("keeps all its conditions when a template changes", func(ctx context.Context) {
		template, namespace := createSelecting(ctx, "conditions", only("config", configMap("config", "a")))
		Expect(cluster.Admin.Status().Patch(ctx, namespace.DeepCopy(), client.RawPatch(types.StrategicMergePatchType,
			[]byte(`{"status":{"conditions":[{"type":"example.com/Audited","status":"True"}]}}`)))).To(Succeed())
		current := func() *corev1.Namespace {
			current := cluster.GetNamespace(Default, ctx, namespace.Name)
			return current
		}
		before := current()
		Expect(before.Status.Conditions).To(HaveLen(4))
		change(ctx, template.Name, only("config", configMap("config", "b")))
		recorded := HaveKeyWithValue(v1alpha1.AnnotationAppliedTemplates, before.Annotations[v1alpha1.AnnotationAppliedTemplates])
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
	waiting := func(ctx context.Context, policy v1alpha1.RetentionPolicy) (*v1alpha1.NamespaceTemplate, *corev1.Namespace) {
		template := createTemplate(ctx, "change", unknown, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.ObjectRetentionPolicy.WhenDeleted, spec.ObjectRetentionPolicy.WhenDeselected = policy, policy
		})
		namespace := framework.CreateAs(ctx, creator, selectedBy(template.Name))
		expectWaiting(ctx, namespace, "KindNotFound")
		expectValue(ctx, namespace, "config", "a")
		return template, namespace
	}

	DescribeTable("are initialized", func(
		ctx context.Context, policy v1alpha1.RetentionPolicy, end func(ctx context.Context, template string, namespace *corev1.Namespace),
	) {
		template, namespace := waiting(ctx, policy)
		end(ctx, template.Name, namespace)
		expectInitialized(ctx, namespace)
		Eventually(objectsOf).WithContext(ctx).WithArguments(namespace).
			Should(HaveLen(map[v1alpha1.RetentionPolicy]int{v1alpha1.RetentionRetain: 1}[policy]))
	},
		Entry("when the template is deleted, and its objects are retained", v1alpha1.RetentionRetain, deleteTemplate),
		Entry("when they are relabelled, and its objects are deleted", v1alpha1.RetentionDelete, relabel),
	)

	It("do not prevent the deletion of a template while they are terminating", func(ctx context.Context) {
		template, initializing := waiting(ctx, v1alpha1.RetentionDelete)
		change(ctx, template.Name, only("config", configMap("config", "a")))
		expectInitialized(ctx, initializing)
		patch := initializing.DeepCopy()
		controllerutil.AddFinalizer(patch, "test.example.com/block")
		Expect(cluster.Admin.Patch(ctx, patch, client.MergeFrom(initializing))).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			cluster.Admin.Patches(ctx, initializing.DeepCopy(), `{"metadata":{"finalizers":null}}`)
		})
		cluster.Admin.Deletes(ctx, initializing.DeepCopy())
		deleteTemplate(ctx, template.Name, nil)
	})
})

var _ = Describe("A copy", func() {
	It("does not affect other objects if its source does not exist", func(ctx context.Context) {
		source := newSource("a")
		cluster.Admin.Creates(ctx, source)
		template, namespace := createSelecting(ctx, "failing", copying(source), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects = append(spec.Objects, objectNamed("config", configMap("config", "a")))
		})
		cluster.Admin.Deletes(ctx, source)
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionTrue, "1 failed")
		cluster.Admin.Deletes(ctx, getConfig(ctx, namespace, "config"))
		expectValue(ctx, namespace, "config", "a")
		expectValue(ctx, namespace, source.Name, "a")
	})
})

var _ = Describe("Sync mode Once", func() {
	It("completes a first pass that failed, and the objects that are created after the initialization", func(ctx context.Context) {
		template, namespace := createSelecting(ctx, "once", only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Sync.Mode = v1alpha1.SyncOnce
				spec.Objects = append(spec.Objects, objectNamed("later", configMap("later", "b")))
				spec.Objects[1].NamespaceState = v1alpha1.NamespaceStateInitialized
			})
		expectValue(ctx, namespace, "later", "b")
		By("an existing namespace with an object that prevents the first pass")
		existing := framework.CreateAs(ctx, cluster.Admin, wrappers.MakeNamespace(framework.Unique("ns")).Obj())
		other := framework.CreateAs(ctx, cluster.Admin, newConfig(existing.Name, "config", "other"))
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Scope = v1alpha1.ScopeAllNamespaces })
		cluster.Admin.Patches(ctx, existing.DeepCopy(), `{"metadata":{"labels":{"kind":"`+template.Name+`"}}}`)
		expectCondition(ctx, template.Name, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
		cluster.Admin.Deletes(ctx, other)
		expectValue(ctx, existing, "config", "a")
	})
})

var _ = Describe("A full pass", func() {
	AfterEach(restoreManager)

	It("finds changes that the managedFields do not show", func(ctx context.Context) {
		created := createTemplate(ctx, "full", only("config", configMap("config", "ours")))
		var namespace *corev1.Namespace
		apply := func(value string) *corev1.ConfigMap {
			object := applycorev1.ConfigMap("config", namespace.Name).WithData(map[string]string{"key": value}).
				WithLabels(map[string]string{v1alpha1.LabelManagedByTemplate: created.Name}).
				WithAnnotations(map[string]string{v1alpha1.AnnotationNamespaceUID: string(namespace.UID)})
			Expect(cluster.Admin.Apply(ctx, object, client.FieldOwner(template.FieldManager(created.Name)), client.ForceOwnership)).
				To(Succeed())
			return getConfig(ctx, namespace, "config")
		}
		entryOf := func(object *corev1.ConfigMap) metav1.ManagedFieldsEntry {
			return object.ManagedFields[slices.IndexFunc(object.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
				return entry.Manager == template.FieldManager(created.Name)
			})]
		}
		// Another client applies other values as the same field manager in the same second.
		Eventually(func(g Gomega) {
			namespace = framework.CreateAs(ctx, creator, selectedBy(created.Name))
			applied := &corev1.ConfigMap{}
			key := client.ObjectKey{Namespace: namespace.Name, Name: "config"}
			Eventually(func() error { return cluster.Admin.Get(ctx, key, applied) }).WithContext(ctx).
				WithPolling(time.Millisecond).Should(Succeed())
			g.Expect(entryOf(apply("theirs"))).To(Equal(entryOf(applied)))
			expectInitialized(ctx, namespace)
			g.Expect(valueIn(ctx, namespace, "config")).To(Equal("theirs"))
		}).WithContext(ctx).Should(Succeed())
		Consistently(valueIn).WithContext(ctx).WithArguments(namespace, "config").Should(Equal("theirs"))
		restartManager(ctx, nil, func(o *manager.Options) { o.TemplateFullPass = 500 * time.Millisecond })
		expectValue(ctx, namespace, "config", "ours")
	})
})

// expectReached waits until new Namespaces get the latest revision of a template. Existing Namespaces get it, or report
// why they do not, earlier.
func expectReached(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		current := getTemplate(g, ctx, name)
		g.Expect(current.Status.CurrentRevision).To(Equal(template.Revision(&current.Spec)))
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("The templates with which a namespace is created", func() {
	// waiting returns a namespace that waits for its template, and a function that ends the wait.
	waiting := func(ctx context.Context, labels ...string) (*corev1.Namespace, func()) {
		GinkgoHelper()
		base := createTemplate(ctx, "base", only("unknown",
			`{"apiVersion":"test.example.com/v1","kind":"Unknown","metadata":{"name":"x"}}`))
		namespace := selectedBy(base.Name)
		for i := 0; i < len(labels); i += 2 {
			namespace.Labels[labels[i]] = labels[i+1]
		}
		creator.Creates(ctx, namespace)
		expectWaiting(ctx, namespace, "KindNotFound")
		return namespace, func() {
			GinkgoHelper()
			change(ctx, base.Name, only("base", configMap("base", "a")))
			expectInitialized(ctx, namespace)
			expectValue(ctx, namespace, "base", "a")
		}
	}

	DescribeTable("are the only ones that are applied while it is initializing",
		func(ctx context.Context, name string, scope v1alpha1.TemplateScope) {
			later := newTemplate(framework.Unique(name), only("later", configMap("later", "a")),
				func(spec *v1alpha1.NamespaceTemplateSpec) {
					spec.Access, spec.Scope = v1alpha1.AccessRestricted, scope
				})
			later.Spec.NamespaceSelector = &v1alpha1.NamespaceSelector{
				MatchLabels: map[string]v1alpha1.LabelValue{"tier": v1alpha1.LabelValue(later.Name)},
			}
			namespace, complete := waiting(ctx, "tier", later.Name)
			cluster.Admin.Creates(ctx, later)
			DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, later)).To(Succeed()) })
			Eventually(func(g Gomega) {
				probe := wrappers.MakeNamespace("probe").Label("tier", later.Name).Obj()
				g.Expect(cluster.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
				g.Expect(probe.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationSelectedTemplates, later.Name))
			}).WithContext(ctx).Should(Succeed())
			// A pass over the namespace.
			cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"annotations":{"note":"x"}}}`)
			expectWaiting(ctx, namespace, "KindNotFound")
			Expect(objectsOf(ctx, namespace)).To(BeEmpty())
			history := framework.WatchNamespace(ctx, cluster.Admin.Config, namespace)
			complete()
			Eventually(func(g Gomega) {
				var initialized *corev1.Namespace
				for _, state := range history.States() {
					if _, isInitializing := state.Labels[v1alpha1.LabelInitializing]; !isInitializing && initialized == nil {
						initialized = state
					}
				}
				g.Expect(initialized).NotTo(BeNil())
				g.Expect(initialized.Annotations[v1alpha1.AnnotationAppliedTemplates]).NotTo(ContainSubstring(later.Name))
			}).WithContext(ctx).Should(Succeed())
			if scope == v1alpha1.ScopeAllNamespaces {
				expectValue(ctx, namespace, "later", "a")
			}
		},
		Entry("not a restricted one that is created later", "new-only", v1alpha1.ScopeNewNamespaces),
		Entry("not one that extends to existing namespaces, which gets it afterwards", "extended", v1alpha1.ScopeAllNamespaces),
	)

	It("are the only ones that limit the namespaces of its creator, also if another user labels them later", func(ctx context.Context) {
		limited := createTemplate(ctx, "limited", only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.MaxNamespacesPerUser, spec.Scope = ptr.To[int32](1), v1alpha1.ScopeAllNamespaces
			})
		label := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelTemplate, limited.Name)
		By("labelling older namespaces, which get the template")
		for range 2 {
			old := framework.CreateAs(ctx, creator, wrappers.MakeNamespace(framework.Unique("old")).Obj())
			cluster.Admin.Patches(ctx, old.DeepCopy(), label)
			expectValue(ctx, old, "config", "a")
		}
		first := createInitialized(ctx, selectedBy(limited.Name))
		By("labelling a namespace that is initializing, although the limit is reached")
		namespace, complete := waiting(ctx)
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), label)
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"annotations":{"note":"x"}}}`)
		expectWaiting(ctx, namespace, "KindNotFound")
		complete()
		By("removing the labels, which does not evade the limit")
		relabel(ctx, "", first)
		refused := selectedBy(limited.Name)
		expectRefused(ctx, refused, `has 1 namespaces with template "`+limited.Name+`", which permits 1`)
	})
})

// expectRefused creates a Namespace as alice, and expects that its initialization fails.
func expectRefused(ctx context.Context, namespace *corev1.Namespace, message string) {
	GinkgoHelper()
	// The spec reads the condition.
	namespace.Finalizers = []string{"test.example.com/hold"}
	creator.Creates(ctx, namespace)
	Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).Should(matchers.HaveCondition(
		v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonFailed, message))
	cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"finalizers":null}}`)
}

var _ = Describe("A label that a namespace gets after its creation", func() {
	It("is reported if the template is applied only to new namespaces", func(ctx context.Context) {
		template := createTemplate(ctx, "late", only("config", configMap("config", "a")))
		namespace := createInitialized(ctx, wrappers.MakeNamespace(framework.Unique("ns")).Label("app", "web").Obj())
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveField("Status.Conditions", Not(BeEmpty())))
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"nslifecycle.dev/template":"`+template.Name+`"}}}`)
		expectEvents(ctx, namespace, "TemplateNotApplied")
		err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "config"}, &corev1.ConfigMap{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
		By("following the advice")
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Scope = v1alpha1.ScopeAllNamespaces })
		expectValue(ctx, namespace, "config", "a")
	})
})

// Clients that replace a Namespace, such as kubectl replace and GitOps controllers, remove labels for a moment.
var _ = Describe("A label that is absent for a moment", func() {
	AfterEach(restoreManager)

	prune := func(spec *v1alpha1.NamespaceTemplateSpec) {
		only("config", configMap("config", "a"))(spec)
		spec.Objects = append(spec.Objects, objectNamed("large", configMap("large", "a")))
		spec.Objects[1].IncludeWhen = `'size' in ns.labels && ns.labels['size'] == 'l'`
		spec.ObjectRetentionPolicy.WhenDeselected = v1alpha1.RetentionDelete
	}
	keep := func(spec *v1alpha1.NamespaceTemplateSpec) {
		prune(spec)
		spec.ObjectRetentionPolicy.WhenDeselected, spec.ObjectRetentionPolicy.WhenRemoved = v1alpha1.RetentionRetain, v1alpha1.RetentionRetain
	}

	// The label is absent until the operator has recognized it, and longer than in reports of GitOps controllers.
	DescribeTable("does not end the management of an object", func(
		ctx context.Context, label string, policy func(*v1alpha1.NamespaceTemplateSpec), restart bool,
	) {
		template := createTemplate(ctx, "flap", policy)
		namespace := selectedBy(template.Name)
		namespace.Labels["size"] = "l"
		createInitialized(ctx, namespace)
		before := uidsOf(objectsOf(ctx, namespace))
		Expect(before).To(HaveLen(2))
		value := namespace.Labels[label]
		recorded := func() string {
			return cluster.GetNamespace(Default, ctx, namespace.Name).Annotations[v1alpha1.AnnotationAppliedTemplates]
		}
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"`+label+`":null}}}`)
		Consistently(recorded).WithContext(ctx).Should(Equal(namespace.Annotations[v1alpha1.AnnotationAppliedTemplates]))
		if restart {
			restartManager(ctx, nil)
			Consistently(recorded).WithContext(ctx).WithTimeout(200 * time.Millisecond).
				Should(Equal(namespace.Annotations[v1alpha1.AnnotationAppliedTemplates]))
		}
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"`+label+`":"`+value+`"}}}`)
		By("a change of the template")
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			policy(spec)
			spec.Objects[0] = objectNamed("config", configMap("config", "b"))
			spec.Objects[1].Template = objectNamed("large", configMap("large", "b")).Template
		})
		expectValue(ctx, namespace, "config", "b")
		expectValue(ctx, namespace, "large", "b")
		Expect(uidsOf(objectsOf(ctx, namespace))).To(HaveLen(2))
		after := objectsOf(ctx, namespace)
		for name, uid := range before {
			Expect(after[name].UID).To(Equal(uid))
		}
	},
		Entry("with removal Keep", "kind", keep, false),
		Entry("with removal Prune, during a restart", "kind", prune, true),
		Entry("that it includes", "size", prune, false),
	)

	It("ends it after the delay of deregistration", func(ctx context.Context) {
		template := createTemplate(ctx, "unset", prune)
		namespace := selectedBy(template.Name)
		namespace.Labels["size"] = "l"
		createInitialized(ctx, namespace)
		removed := time.Now()
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"size":null}}}`)
		expectDeleted(ctx, namespace, "large")
		Expect(time.Since(removed)).To(BeNumerically(">=", initialization.DeregistrationDelay))
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, "False", "All 1")
		Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "config"}, &corev1.ConfigMap{})).
			To(Succeed())
	})
})

var _ = Describe("A label that a new namespace lacks for a moment", func() {
	It("does not initialize the namespace without the template", func(ctx context.Context) {
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "no namespace can be created while no manager runs")
		template := createTemplate(ctx, "blink", only("config", configMap("config", "a")))
		cluster.StopManager()
		ns := framework.CreateAs(ctx, creator, selectedBy(template.Name))
		cluster.Admin.Patches(ctx, ns.DeepCopy(), `{"metadata":{"labels":{"kind":null}}}`)
		cluster.StartManager(ctx)
		time.Sleep(200 * time.Millisecond)
		cluster.Admin.Patches(ctx, ns.DeepCopy(), fmt.Sprintf(`{"metadata":{"labels":{"kind":%q}}}`, template.Name))
		expectInitialized(ctx, ns)
		Eventually(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: "config"}, &corev1.ConfigMap{})
		}).WithContext(ctx).Should(Succeed())
	})
})
