// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// only keeps one object with the given manifest.
func only(name, manifest string) func(*v1alpha1.NamespaceTemplateSpec) {
	return func(spec *v1alpha1.NamespaceTemplateSpec) {
		spec.Objects = []v1alpha1.TemplateObject{objectNamed(name, manifest)}
	}
}

func objectNamed(name, manifest string) v1alpha1.TemplateObject {
	return v1alpha1.TemplateObject{Name: name, Template: &runtime.RawExtension{Raw: []byte(manifest)}}
}

// configMap returns the manifest of a ConfigMap with one key.
func configMap(name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"key":%q}}`, name, value)
}

// expectValue waits until a ConfigMap has a value.
func expectValue(ctx context.Context, namespace *corev1.Namespace, name, value string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		current := &corev1.ConfigMap{}
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: name}, current)).To(Succeed())
		g.Expect(current.Data).To(HaveKeyWithValue("key", value))
	}).WithContext(ctx).Should(Succeed())
}

// expectDeleted waits until a ConfigMap does not exist.
func expectDeleted(ctx context.Context, namespace *corev1.Namespace, name string) {
	GinkgoHelper()
	framework.ExpectDeleted(ctx, cluster.Admin, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: name},
	})
}

// change updates a template.
func change(ctx context.Context, name string, change func(*v1alpha1.NamespaceTemplateSpec)) {
	GinkgoHelper()
	Eventually(func() error {
		current := &v1alpha1.NamespaceTemplate{}
		if err := cluster.Admin.Get(ctx, client.ObjectKey{Name: name}, current); err != nil {
			return err
		}
		change(&current.Spec)
		return cluster.Admin.Update(ctx, current)
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("The objects of a template in an initialized namespace", func() {
	It("are restored after changes and deletions by other clients", func(ctx context.Context) {
		_, namespace := createSelecting(ctx, "team")
		By("a changed field, an added peer, a removed label")
		for _, change := range []func(*networkingv1.NetworkPolicy){
			func(p *networkingv1.NetworkPolicy) { p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}} },
			func(p *networkingv1.NetworkPolicy) {
				p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
			},
			func(p *networkingv1.NetworkPolicy) { p.Labels = nil },
		} {
			policy := get(ctx, namespace, "default-deny", &networkingv1.NetworkPolicy{})
			original := policy.DeepCopy()
			change(policy)
			cluster.Admin.Updates(ctx, policy)
			Eventually(func(g Gomega) {
				current := get(ctx, namespace, "default-deny", &networkingv1.NetworkPolicy{})
				g.Expect(current.Spec).To(Equal(original.Spec))
				g.Expect(current.Labels).To(Equal(original.Labels))
			}).WithContext(ctx).Should(Succeed())
		}
		By("a deleted object")
		limits := get(ctx, namespace, "team", &corev1.LimitRange{})
		cluster.Admin.Deletes(ctx, limits)
		Eventually(func(g Gomega) {
			current := &corev1.LimitRange{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(limits), current)).To(Succeed())
			g.Expect(current.UID).NotTo(Equal(limits.UID))
			g.Expect(current.Spec).To(Equal(limits.Spec))
		}).WithContext(ctx).Should(Succeed())
	})

	It("keep the fields that other clients add", func(ctx context.Context) {
		template, namespace := createSelecting(ctx, "fields", only("config", configMap("config", "a")))
		config := getConfig(ctx, namespace, "config")
		config.Data["other"] = "kept"
		cluster.Admin.Updates(ctx, config)
		change(ctx, template.Name, only("config", configMap("config", "b")))
		expectValue(ctx, namespace, "config", "b")
		Expect(getConfig(ctx, namespace, "config").Data).To(HaveKeyWithValue("other", "kept"))
	})

	It("are not touched with sync mode Once", func(ctx context.Context) {
		template, namespace := createSelecting(ctx, "once", only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Sync.Mode = v1alpha1.SyncOnce })
		expectValue(ctx, namespace, "config", "a")
		revision := func(g Gomega) string {
			current := getTemplate(g, ctx, template.Name)
			g.Expect(current.Status.CurrentRevision).NotTo(BeEmpty())
			return current.Status.CurrentRevision
		}
		var first string
		Eventually(func(g Gomega) { first = revision(g) }).WithContext(ctx).Should(Succeed())
		change(ctx, template.Name, only("config", configMap("config", "b")))
		// Until then, new namespaces can get the first revision, and keep it.
		Eventually(revision).WithContext(ctx).ShouldNot(Equal(first))
		another := createInitialized(ctx, selectedBy(template.Name))
		expectValue(ctx, another, "config", "b")
		expectValue(ctx, namespace, "config", "a")
	})
})

var _ = Describe("An object that exists already", func() {
	existing := func(ctx context.Context, adopt v1alpha1.AdoptionPolicy, value string) (string, *corev1.Namespace) {
		template := newTemplate(framework.Unique("adopt"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Scope, spec.Sync.AdoptionPolicy = v1alpha1.ScopeAllNamespaces, adopt
			})
		namespace := framework.CreateAs(ctx, cluster.Admin, selectedBy(template.Name))
		Expect(cluster.Admin.Create(ctx, newConfig(namespace.Name, "config", value), client.FieldOwner("earlier"))).To(Succeed())
		create(ctx, template)
		return template.Name, namespace
	}

	It("is adopted if it has the values of the template, and is never deleted", func(ctx context.Context) {
		template, namespace := existing(ctx, v1alpha1.AdoptIfEqual, "a")
		Eventually(func(g Gomega) {
			g.Expect(getConfig(ctx, namespace, "config").Labels).To(
				HaveKeyWithValue(v1alpha1.LabelManagedByTemplate, template))
		}).WithContext(ctx).Should(Succeed())
		expectCondition(ctx, template, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		change(ctx, template, only("other", configMap("other", "b")))
		expectValue(ctx, namespace, "other", "b")
		expectCondition(ctx, template, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		expectValue(ctx, namespace, "config", "a")
	})

	// Such an object has no managedFields, like the ServiceAccount "default" of each namespace.
	const account = `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"builder"},"automountServiceAccountToken":false}`
	createAccount := func(ctx context.Context, adopt v1alpha1.AdoptionPolicy) (*v1alpha1.NamespaceTemplate, *corev1.ServiceAccount) {
		GinkgoHelper()
		template := newTemplate(framework.Unique("adopt"), only("account", account), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Scope, spec.Sync.AdoptionPolicy = v1alpha1.ScopeAllNamespaces, adopt
		})
		namespace := framework.CreateAs(ctx, cluster.Admin, selectedBy(template.Name))
		existing := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "builder"}}
		cluster.Admin.Creates(ctx, existing)
		Expect(existing.ManagedFields).To(BeEmpty())
		create(ctx, template)
		return template, existing
	}

	It("is never deleted, even if no client has set a field", func(ctx context.Context) {
		template, existing := createAccount(ctx, v1alpha1.AdoptIfEqual)
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(existing), existing)).To(Succeed())
			g.Expect(existing.Labels).To(HaveKeyWithValue(v1alpha1.LabelManagedByTemplate, template.Name))
		}).WithContext(ctx).Should(Succeed())
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		change(ctx, template.Name, only("other", configMap("other", "b")))
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		current := &corev1.ServiceAccount{}
		Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(existing), current)).To(Succeed())
		Expect(current.UID).To(Equal(existing.UID))
	})

	It("is not adopted without permission, even if no client has set a field", func(ctx context.Context) {
		template, existing := createAccount(ctx, v1alpha1.AdoptNever)
		expectCondition(ctx, template.Name, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
		cluster.Admin.Reads(ctx, existing)
		Expect(existing.Labels).NotTo(HaveKey(v1alpha1.LabelManagedByTemplate))
	})

	DescribeTable("is reported and not changed, unless the template adopts it",
		func(ctx context.Context, adopt v1alpha1.AdoptionPolicy, value string, isAdopted bool) {
			template, namespace := existing(ctx, adopt, value)
			if isAdopted {
				expectValue(ctx, namespace, "config", "a")
				return
			}
			expectCondition(ctx, template, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
			current := getConfig(ctx, namespace, "config")
			Expect(current.Data).To(HaveKeyWithValue("key", value))
			Expect(current.Labels).NotTo(HaveKey(v1alpha1.LabelManagedByTemplate))
		},
		Entry("if it has other values", v1alpha1.AdoptIfEqual, "b", false),
		Entry("if the template adopts everything", v1alpha1.AdoptAlways, "b", true),
	)

	DescribeTable("is reported and not locked if another client can have it deleted",
		func(ctx context.Context, mode v1alpha1.SyncMode, change func(*corev1.ConfigMap)) {
			template := newTemplate(framework.Unique("locked"), only("config", configMap("config", "a")),
				func(spec *v1alpha1.NamespaceTemplateSpec) {
					spec.Scope, spec.Sync.AdoptionPolicy, spec.Sync.Mode = v1alpha1.ScopeAllNamespaces, v1alpha1.AdoptAlways, mode
					spec.Objects[0].Lock = v1alpha1.LockAll
				})
			namespace := framework.CreateAs(ctx, cluster.Admin, selectedBy(template.Name))
			config := wrappers.MakeConfigMap(namespace.Name, "config")
			change(config)
			cluster.Admin.Creates(ctx, config)
			create(ctx, template)
			Eventually(func(g Gomega) {
				current := getTemplate(g, ctx, template.Name)
				g.Expect(current.Status.Failures).To(ConsistOf(And(
					HaveField("Namespace", namespace.Name), HaveField("Object", "config"), HaveField("Reason", "FieldImmutable"),
					HaveField("Message", ContainSubstring("cannot be locked")))))
			}).WithContext(ctx).Should(Succeed())
			Expect(getConfig(ctx, namespace, "config").Labels).To(BeEmpty())

			By("removing them")
			cluster.Admin.Patches(ctx, config, `{"metadata":{"finalizers":null,"ownerReferences":null}}`)
			cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"annotations":{"note":"x"}}}`)
			expectValue(ctx, namespace, "config", "a")
			Expect(getConfig(ctx, namespace, "config").Labels).To(HaveKey(v1alpha1.LabelLocked))
		},
		Entry("with a finalizer", v1alpha1.SyncAlways, func(config *corev1.ConfigMap) {
			config.Finalizers = []string{"example.com/a"}
		}),
		Entry("with an owner, and sync mode Once", v1alpha1.SyncOnce, func(config *corev1.ConfigMap) {
			config.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "absent", UID: "absent"}}
		}),
	)
})

var _ = Describe("Two templates with the same object", func() {
	It("are both reported, and the first by name is applied", func(ctx context.Context) {
		name := framework.Unique("claim")
		first := newTemplate(name+"-a", only("config", configMap("config", "a")))
		second := newTemplate(name+"-b", only("config", configMap("config", "b")))
		second.Spec.NamespaceSelector = first.Spec.NamespaceSelector
		create(ctx, first)
		create(ctx, second)
		expectCondition(ctx, second.Name, v1alpha1.ConditionValid, metav1.ConditionTrue)
		namespace := createInitialized(ctx, wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", first.Name).Obj())
		expectValue(ctx, namespace, "config", "a")
		for _, template := range []string{first.Name, second.Name} {
			expectCondition(ctx, template, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
		}
		version := getConfig(ctx, namespace, "config").ResourceVersion
		Consistently(func() string {
			return getConfig(ctx, namespace, "config").ResourceVersion
		}).WithContext(ctx).Should(Equal(version))
	})
})

var _ = Describe("Objects that a template no longer contains", func() {
	two := func(spec *v1alpha1.NamespaceTemplateSpec) {
		only("one", configMap("one", "a"))(spec)
		spec.Objects = append(spec.Objects, objectNamed("two", configMap("two", "a")))
	}

	It("are deleted, and no other object with their name", func(ctx context.Context) {
		template, namespace := createSelecting(ctx, "prune", two)
		change(ctx, template.Name, only("one", configMap("one", "b")))
		expectDeleted(ctx, namespace, "two")
		expectValue(ctx, namespace, "one", "b")
		// Another client creates an object with the same name.
		cluster.Admin.Creates(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace.Name, Name: "two", Labels: map[string]string{v1alpha1.LabelManagedByTemplate: template.Name},
		}})
		change(ctx, template.Name, only("one", configMap("one", "c")))
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
		expectValue(ctx, namespace, "one", "c")
		getConfig(ctx, namespace, "two")
	})

	DescribeTable("are deleted or kept when the namespace is relabelled or the template is deleted",
		func(ctx context.Context, policy v1alpha1.RetentionPolicy, end func(ctx context.Context, template string, namespace *corev1.Namespace)) {
			template, namespace := createSelecting(ctx, "remove", two, func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.ObjectRetentionPolicy.WhenDeselected, spec.ObjectRetentionPolicy.WhenDeleted = policy, policy
			})
			Eventually(getTemplate).WithContext(ctx).WithArguments(template.Name).Should(HaveField("Finalizers", HaveLen(map[v1alpha1.RetentionPolicy]int{v1alpha1.RetentionDelete: 1}[policy])))
			end(ctx, template.Name, namespace)
			Eventually(func(g Gomega) {
				current := cluster.GetNamespace(g, ctx, namespace.Name)
				g.Expect(current.Annotations).NotTo(HaveKey(v1alpha1.AnnotationAppliedTemplates))
			}).WithContext(ctx).Should(Succeed())
			for _, name := range []string{"one", "two"} {
				err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: name}, &corev1.ConfigMap{})
				Expect(apierrors.IsNotFound(err)).To(Equal(policy == v1alpha1.RetentionDelete))
			}
		},
		Entry("deleted after a relabelling", v1alpha1.RetentionDelete, relabel),
		Entry("deleted with the template", v1alpha1.RetentionDelete, deleteTemplate),
	)
})

func relabel(ctx context.Context, _ string, namespace *corev1.Namespace) {
	GinkgoHelper()
	cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"kind":null}}}`)
}

func deleteTemplate(ctx context.Context, template string, _ *corev1.Namespace) {
	GinkgoHelper()
	object := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: template}}
	cluster.Admin.Deletes(ctx, object)
	framework.ExpectDeleted(ctx, cluster.Admin, object)
}

var _ = Describe("Copies", func() {
	It("follow their source, and remain when it is deleted", func(ctx context.Context) {
		source := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SourceNamespace, Name: framework.Unique("source")},
			Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{"token": []byte("a")},
		}
		template := createTemplate(ctx, "copy", func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects = []v1alpha1.TemplateObject{{Name: "secret", SourceRef: &v1alpha1.TemplateSourceReference{Kind: "Secret", Name: source.Name}}}
		})
		By("a namespace that waits until the source exists")
		namespace := framework.CreateAs(ctx, creator, selectedBy(template.Name))
		Eventually(func(g Gomega) {
			current := cluster.GetNamespace(g, ctx, namespace.Name)
			g.Expect(framework.ConditionMessage(current, v1alpha1.TemplatesInitializer+"/Initialized")).To(
				ContainSubstring(source.Name))
		}).WithContext(ctx).Should(Succeed())
		cluster.Admin.Creates(ctx, source)
		expectInitialized(ctx, namespace)
		copied := func() map[string][]byte {
			return get(ctx, namespace, source.Name, &corev1.Secret{}).Data
		}
		Expect(copied()).To(Equal(source.Data))
		By("a changed source")
		source.Data["token"] = []byte("b")
		source.Data["new"] = []byte("c")
		cluster.Admin.Updates(ctx, source)
		Eventually(copied).WithContext(ctx).Should(Equal(source.Data))
		By("a removed key")
		delete(source.Data, "token")
		cluster.Admin.Updates(ctx, source)
		Eventually(copied).WithContext(ctx).Should(Equal(source.Data))
		By("a deleted source")
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
		cluster.Admin.Deletes(ctx, source)
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionTrue, "1 failed")
		Expect(copied()).To(Equal(source.Data))
		By("the state of the namespace, which does not contain a hash of the content")
		cluster.Admin.Reads(ctx, namespace)
		Expect(namespace.Annotations[v1alpha1.AnnotationAppliedTemplates]).To(ContainSubstring(source.Name))
	})
})

var _ = Describe("New namespaces", func() {
	waitsFor := func(ctx context.Context, namespace *corev1.Namespace, text string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			current := cluster.GetNamespace(g, ctx, namespace.Name)
			g.Expect(framework.ConditionMessage(current, v1alpha1.TemplatesInitializer+"/Initialized")).To(ContainSubstring(text))
			g.Expect(current.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
	}

	It("wait for a broken template, and other namespaces do not", func(ctx context.Context) {
		broken := createTemplate(ctx, "broken", only("config",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"key":"${params.typo}"}}`))
		expectCondition(ctx, broken.Name, v1alpha1.ConditionValid, metav1.ConditionFalse, "spec.objects[0]", "typo")
		namespace := framework.CreateAs(ctx, creator, selectedBy(broken.Name))
		waitsFor(ctx, namespace, "typo")
		unrelated := framework.CreateAs(ctx, creator, wrappers.MakeNamespace(framework.Unique("unrelated")).Obj())
		Expect(unrelated.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		change(ctx, broken.Name, only("config", configMap("config", "a")))
		expectInitialized(ctx, namespace)
	})

	It("wait for a ServiceAccount that does not exist, and never get the permissions of the operator", func(ctx context.Context) {
		name := framework.Unique("missing")
		template := createTemplate(ctx, "account", only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = name })
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionFalse,
			name, "does not exist", "impersonate", "configmaps", "provision")
		namespace := framework.CreateAs(ctx, creator, selectedBy(template.Name))
		waitsFor(ctx, namespace, name)
		cluster.AddTemplateAccount(ctx, name)
		expectInitialized(ctx, namespace)
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionTrue)
	})

	It("get their objects later if the initializer times out and its failure policy is Ignore", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		name := framework.Unique("timeout")
		create(ctx, newTemplate(name, only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = name }))
		object := wrappers.MakeConfiguration(name).Initializer(v1alpha1.TemplatesInitializer, v1alpha1.InitializerSettings{
			TimeoutSeconds: ptr.To[int32](1), FailurePolicy: v1alpha1.FailurePolicyIgnore,
		}).Obj()
		cluster.Admin.Creates(ctx, object)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, object)).To(Succeed()) })
		Eventually(func(g Gomega) {
			g.Expect(cluster.EffectiveSet(g, ctx).Initializers[0].FailurePolicy).To(Equal(v1alpha1.FailurePolicyIgnore))
		}).WithContext(ctx).Should(Succeed())
		namespace := createInitialized(ctx, selectedBy(name))
		Expect(objectsOf(ctx, namespace)).To(BeEmpty())
		By("a restart, after which the operator knows only what the namespace records")
		restartManager(ctx, nil)
		cluster.AddTemplateAccount(ctx, name)
		expectValue(ctx, namespace, "config", "a")
		expectCondition(ctx, name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
	})
})
