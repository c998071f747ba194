// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

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
	"github.com/nslifecycle/nslifecycle/test/wrappers"
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

var _ = Describe("The objects of a template in an open namespace", func() {
	It("are restored after changes and deletions by other clients", func(ctx context.Context) {
		template := newTemplate(framework.Unique("team"))
		create(ctx, template)
		namespace := selectedBy(template.Name)
		createOpen(ctx, namespace)
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
			Expect(cluster.Admin.Update(ctx, policy)).To(Succeed())
			Eventually(func(g Gomega) {
				current := get(ctx, namespace, "default-deny", &networkingv1.NetworkPolicy{})
				g.Expect(current.Spec).To(Equal(original.Spec))
				g.Expect(current.Labels).To(Equal(original.Labels))
			}).WithContext(ctx).Should(Succeed())
		}
		By("a deleted object")
		limits := get(ctx, namespace, "team", &corev1.LimitRange{})
		Expect(cluster.Admin.Delete(ctx, limits)).To(Succeed())
		Eventually(func(g Gomega) {
			current := &corev1.LimitRange{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(limits), current)).To(Succeed())
			g.Expect(current.UID).NotTo(Equal(limits.UID))
			g.Expect(current.Spec).To(Equal(limits.Spec))
		}).WithContext(ctx).Should(Succeed())
	})

	It("keep the fields that other clients add", func(ctx context.Context) {
		template := newTemplate(framework.Unique("fields"), only("config", configMap("config", "a")))
		create(ctx, template)
		namespace := selectedBy(template.Name)
		createOpen(ctx, namespace)
		config := get(ctx, namespace, "config", &corev1.ConfigMap{})
		config.Data["other"] = "kept"
		Expect(cluster.Admin.Update(ctx, config)).To(Succeed())
		change(ctx, template.Name, only("config", configMap("config", "b")))
		expectValue(ctx, namespace, "config", "b")
		Expect(get(ctx, namespace, "config", &corev1.ConfigMap{}).Data).To(HaveKeyWithValue("other", "kept"))
	})

	It("are restored three times, and then the conflict is reported with the other client", func(ctx context.Context) {
		template := newTemplate(framework.Unique("conflict"), only("config", configMap("config", "ours")))
		create(ctx, template)
		namespace := selectedBy(template.Name)
		createOpen(ctx, namespace)
		for range 3 {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"key":"theirs"}}`))
			config := get(ctx, namespace, "config", &corev1.ConfigMap{})
			Expect(cluster.Admin.Patch(ctx, config, patch, client.FieldOwner("rival"))).To(Succeed())
			expectValue(ctx, namespace, "config", "ours")
		}
		config := get(ctx, namespace, "config", &corev1.ConfigMap{})
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"key":"theirs"}}`))
		Expect(cluster.Admin.Patch(ctx, config, patch, client.FieldOwner("rival"))).To(Succeed())
		expectCondition(ctx, template.Name, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
		Eventually(func(g Gomega) {
			current := &v1alpha1.NamespaceTemplate{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
			g.Expect(current.Status.Failures).To(HaveLen(1))
			g.Expect(current.Status.Failures[0].Message).To(And(ContainSubstring("rival"), ContainSubstring(".data.key")))
			g.Expect(current.Status.Failures[0].Namespace).To(Equal(namespace.Name))
		}).WithContext(ctx).Should(Succeed())
		Consistently(func() string {
			return get(ctx, namespace, "config", &corev1.ConfigMap{}).Data["key"]
		}).WithContext(ctx).Should(Equal("theirs"))
		By("a change of the template, which ends the conflict")
		change(ctx, template.Name, only("config", configMap("config", "new")))
		expectValue(ctx, namespace, "config", "new")
	})

	It("are not touched with sync mode Once", func(ctx context.Context) {
		template := newTemplate(framework.Unique("once"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Sync.Mode = v1alpha1.SyncOnce })
		create(ctx, template)
		namespace := selectedBy(template.Name)
		createOpen(ctx, namespace)
		expectValue(ctx, namespace, "config", "a")
		revision := func(g Gomega) string {
			current := &v1alpha1.NamespaceTemplate{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
			g.Expect(current.Status.CurrentRevision).NotTo(BeEmpty())
			return current.Status.CurrentRevision
		}
		var first string
		Eventually(func(g Gomega) { first = revision(g) }).WithContext(ctx).Should(Succeed())
		change(ctx, template.Name, only("config", configMap("config", "b")))
		// Until then, new namespaces can get the first revision, and keep it.
		Eventually(revision).WithContext(ctx).ShouldNot(Equal(first))
		another := selectedBy(template.Name)
		createOpen(ctx, another)
		expectValue(ctx, another, "config", "b")
		expectValue(ctx, namespace, "config", "a")
	})
})

var _ = Describe("An object that exists already", func() {
	existing := func(ctx context.Context, adopt v1alpha1.AdoptPolicy, value string) (string, *corev1.Namespace) {
		template := newTemplate(framework.Unique("adopt"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.ExistingNamespaces, spec.Sync.Adopt = true, adopt
			})
		namespace := selectedBy(template.Name)
		Expect(cluster.Admin.Create(ctx, namespace)).To(Succeed())
		Expect(cluster.Admin.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "config"}, Data: map[string]string{"key": value},
		}, client.FieldOwner("earlier"))).To(Succeed())
		create(ctx, template)
		return template.Name, namespace
	}

	It("is adopted if it has the values of the template, and is never deleted", func(ctx context.Context) {
		template, namespace := existing(ctx, v1alpha1.AdoptIfEqual, "a")
		Eventually(func(g Gomega) {
			g.Expect(get(ctx, namespace, "config", &corev1.ConfigMap{}).Labels).To(
				HaveKeyWithValue(v1alpha1.LabelTemplate, template))
		}).WithContext(ctx).Should(Succeed())
		expectCondition(ctx, template, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		change(ctx, template, only("other", configMap("other", "b")))
		expectValue(ctx, namespace, "other", "b")
		expectCondition(ctx, template, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		expectValue(ctx, namespace, "config", "a")
	})

	// Such an object has no managedFields, like the ServiceAccount "default" of each namespace.
	const account = `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"builder"},"automountServiceAccountToken":false}`
	createAccount := func(ctx context.Context, adopt v1alpha1.AdoptPolicy) (*v1alpha1.NamespaceTemplate, *corev1.ServiceAccount) {
		GinkgoHelper()
		template := newTemplate(framework.Unique("adopt"), only("account", account), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.ExistingNamespaces, spec.Sync.Adopt = true, adopt
		})
		namespace := selectedBy(template.Name)
		Expect(cluster.Admin.Create(ctx, namespace)).To(Succeed())
		existing := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "builder"}}
		Expect(cluster.Admin.Create(ctx, existing)).To(Succeed())
		Expect(existing.ManagedFields).To(BeEmpty())
		create(ctx, template)
		return template, existing
	}

	It("is never deleted, even if no client has set a field", func(ctx context.Context) {
		template, existing := createAccount(ctx, v1alpha1.AdoptIfEqual)
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(existing), existing)).To(Succeed())
			g.Expect(existing.Labels).To(HaveKeyWithValue(v1alpha1.LabelTemplate, template.Name))
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
		Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(existing), existing)).To(Succeed())
		Expect(existing.Labels).NotTo(HaveKey(v1alpha1.LabelTemplate))
	})

	DescribeTable("is reported and not changed", func(ctx context.Context, adopt v1alpha1.AdoptPolicy, value string) {
		template, namespace := existing(ctx, adopt, value)
		expectCondition(ctx, template, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
		current := get(ctx, namespace, "config", &corev1.ConfigMap{})
		Expect(current.Data).To(HaveKeyWithValue("key", value))
		Expect(current.Labels).NotTo(HaveKey(v1alpha1.LabelTemplate))
	},
		Entry("if it has other values", v1alpha1.AdoptIfEqual, "b"),
		Entry("if the template adopts nothing", v1alpha1.AdoptNever, "a"),
	)

	It("is changed if the template adopts everything", func(ctx context.Context) {
		_, namespace := existing(ctx, v1alpha1.AdoptAlways, "b")
		expectValue(ctx, namespace, "config", "a")
	})

	DescribeTable("is reported and not locked if another client can have it deleted",
		func(ctx context.Context, mode v1alpha1.SyncMode, change func(*corev1.ConfigMap)) {
			template := newTemplate(framework.Unique("locked"), only("config", configMap("config", "a")),
				func(spec *v1alpha1.NamespaceTemplateSpec) {
					spec.ExistingNamespaces, spec.Sync.Adopt, spec.Sync.Mode = true, v1alpha1.AdoptAlways, mode
					spec.Objects[0].Locked = true
				})
			namespace := selectedBy(template.Name)
			Expect(cluster.Admin.Create(ctx, namespace)).To(Succeed())
			config := wrappers.MakeConfigMap(namespace.Name, "config")
			change(config)
			Expect(cluster.Admin.Create(ctx, config)).To(Succeed())
			create(ctx, template)
			Eventually(func(g Gomega) {
				current := &v1alpha1.NamespaceTemplate{}
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
				g.Expect(current.Status.Failures).To(ConsistOf(And(
					HaveField("Namespace", namespace.Name), HaveField("Object", "config"), HaveField("Reason", "FieldImmutable"),
					HaveField("Message", ContainSubstring("cannot be locked")))))
			}).WithContext(ctx).Should(Succeed())
			Expect(get(ctx, namespace, "config", &corev1.ConfigMap{}).Labels).To(BeEmpty())

			By("removing them")
			Expect(cluster.Admin.Patch(ctx, config, client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"finalizers":null,"ownerReferences":null}}`)))).To(Succeed())
			patchNamespace(ctx, namespace, `{"metadata":{"annotations":{"note":"x"}}}`)
			expectValue(ctx, namespace, "config", "a")
			Expect(get(ctx, namespace, "config", &corev1.ConfigMap{}).Labels).To(HaveKey(v1alpha1.LabelLocked))
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
		namespace := wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", first.Name).Obj()
		createOpen(ctx, namespace)
		expectValue(ctx, namespace, "config", "a")
		for _, template := range []string{first.Name, second.Name} {
			expectCondition(ctx, template, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
		}
		version := get(ctx, namespace, "config", &corev1.ConfigMap{}).ResourceVersion
		Consistently(func() string {
			return get(ctx, namespace, "config", &corev1.ConfigMap{}).ResourceVersion
		}).WithContext(ctx).Should(Equal(version))
	})
})

var _ = Describe("Objects that a template no longer contains", func() {
	two := func(spec *v1alpha1.NamespaceTemplateSpec) {
		only("one", configMap("one", "a"))(spec)
		spec.Objects = append(spec.Objects, objectNamed("two", configMap("two", "a")))
	}

	It("are deleted, and no other object with their name", func(ctx context.Context) {
		template := newTemplate(framework.Unique("prune"), two)
		create(ctx, template)
		namespace := selectedBy(template.Name)
		createOpen(ctx, namespace)
		change(ctx, template.Name, only("one", configMap("one", "b")))
		expectDeleted(ctx, namespace, "two")
		expectValue(ctx, namespace, "one", "b")
		// Another client creates an object with the same name.
		Expect(cluster.Admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace.Name, Name: "two", Labels: map[string]string{v1alpha1.LabelTemplate: template.Name},
		}})).To(Succeed())
		change(ctx, template.Name, only("one", configMap("one", "c")))
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
		expectValue(ctx, namespace, "one", "c")
		get(ctx, namespace, "two", &corev1.ConfigMap{})
	})

	It("are kept with removal Keep, after a failure, and if the template renders nothing", func(ctx context.Context) {
		template := newTemplate(framework.Unique("keep"), two)
		create(ctx, template)
		namespace := selectedBy(template.Name)
		createOpen(ctx, namespace)
		By("a template that fails for one object")
		change(ctx, template.Name, only("one", `{"apiVersion":"test.example.com/v1","kind":"Unknown","metadata":{"name":"x"}}`))
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionTrue, "1 failed")
		get(ctx, namespace, "two", &corev1.ConfigMap{})
		By("a template whose objects are all excluded")
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("one", configMap("one", "b"))(spec)
			spec.Objects[0].IncludeWhen = "false"
		})
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		get(ctx, namespace, "two", &corev1.ConfigMap{})
		By("removal Keep")
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("one", configMap("one", "c"))(spec)
			spec.Removal.FromTemplate = v1alpha1.RemovalKeep
		})
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
		expectValue(ctx, namespace, "one", "c")
		get(ctx, namespace, "two", &corev1.ConfigMap{})
	})

	DescribeTable("are deleted or kept when the namespace is relabelled or the template is deleted",
		func(ctx context.Context, policy v1alpha1.RemovalPolicy, end func(ctx context.Context, template string, namespace *corev1.Namespace)) {
			template := newTemplate(framework.Unique("remove"), two, func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Removal.OnUnmatch, spec.Removal.OnDelete = policy, policy
			})
			create(ctx, template)
			namespace := selectedBy(template.Name)
			createOpen(ctx, namespace)
			Eventually(func(g Gomega) {
				current := &v1alpha1.NamespaceTemplate{}
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
				g.Expect(current.Finalizers).To(HaveLen(map[v1alpha1.RemovalPolicy]int{v1alpha1.RemovalPrune: 1}[policy]))
			}).WithContext(ctx).Should(Succeed())
			end(ctx, template.Name, namespace)
			Eventually(func(g Gomega) {
				current := cluster.GetNamespace(g, ctx, namespace.Name)
				g.Expect(current.Annotations).NotTo(HaveKey(v1alpha1.AnnotationTemplates))
			}).WithContext(ctx).Should(Succeed())
			for _, name := range []string{"one", "two"} {
				err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: name}, &corev1.ConfigMap{})
				Expect(apierrors.IsNotFound(err)).To(Equal(policy == v1alpha1.RemovalPrune))
			}
		},
		Entry("deleted after a relabelling", v1alpha1.RemovalPrune, relabel),
		Entry("kept after a relabelling", v1alpha1.RemovalKeep, relabel),
		Entry("deleted with the template", v1alpha1.RemovalPrune, deleteTemplate),
		Entry("kept after the deletion of the template", v1alpha1.RemovalKeep, deleteTemplate),
	)
})

func relabel(ctx context.Context, _ string, namespace *corev1.Namespace) {
	GinkgoHelper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"kind":null}}}`))
	Expect(cluster.Admin.Patch(ctx, namespace.DeepCopy(), patch)).To(Succeed())
}

func deleteTemplate(ctx context.Context, template string, _ *corev1.Namespace) {
	GinkgoHelper()
	object := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: template}}
	Expect(cluster.Admin.Delete(ctx, object)).To(Succeed())
	framework.ExpectDeleted(ctx, cluster.Admin, object)
}

var _ = Describe("Copies", func() {
	It("follow their source, and remain when it is deleted", func(ctx context.Context) {
		source := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: framework.Unique("source")},
			Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{"token": []byte("a")},
		}
		template := newTemplate(framework.Unique("copy"), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects = []v1alpha1.TemplateObject{{Name: "secret", Copy: &v1alpha1.TemplateCopy{
				APIVersion: "v1", Kind: "Secret", Namespace: source.Namespace, Name: source.Name,
			}}}
		})
		create(ctx, template)
		By("a namespace that waits until the source exists")
		namespace := selectedBy(template.Name)
		Expect(creator.Create(ctx, namespace)).To(Succeed())
		Eventually(func(g Gomega) {
			current := cluster.GetNamespace(g, ctx, namespace.Name)
			g.Expect(framework.ConditionMessage(current, v1alpha1.TemplatesInitializer+"/Initialized")).To(
				ContainSubstring(source.Name))
		}).WithContext(ctx).Should(Succeed())
		Expect(cluster.Admin.Create(ctx, source)).To(Succeed())
		expectOpen(ctx, namespace)
		copied := func() map[string][]byte {
			return get(ctx, namespace, source.Name, &corev1.Secret{}).Data
		}
		Expect(copied()).To(Equal(source.Data))
		By("a changed source")
		source.Data["token"] = []byte("b")
		source.Data["new"] = []byte("c")
		Expect(cluster.Admin.Update(ctx, source)).To(Succeed())
		Eventually(copied).WithContext(ctx).Should(Equal(source.Data))
		By("a removed key")
		delete(source.Data, "token")
		Expect(cluster.Admin.Update(ctx, source)).To(Succeed())
		Eventually(copied).WithContext(ctx).Should(Equal(source.Data))
		By("a deleted source")
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
		Expect(cluster.Admin.Delete(ctx, source)).To(Succeed())
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionTrue, "1 failed")
		Expect(copied()).To(Equal(source.Data))
		By("the state of the namespace, which does not contain a hash of the content")
		Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
		Expect(namespace.Annotations[v1alpha1.AnnotationTemplates]).To(ContainSubstring(source.Name))
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
		broken := newTemplate(framework.Unique("broken"), only("config",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"key":"${params.typo}"}}`))
		create(ctx, broken)
		expectCondition(ctx, broken.Name, v1alpha1.ConditionValid, metav1.ConditionFalse, "spec.objects[0]", "typo")
		namespace := selectedBy(broken.Name)
		Expect(creator.Create(ctx, namespace)).To(Succeed())
		waitsFor(ctx, namespace, "typo")
		unrelated := wrappers.MakeNamespace(framework.Unique("unrelated")).Obj()
		Expect(creator.Create(ctx, unrelated)).To(Succeed())
		Expect(unrelated.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		change(ctx, broken.Name, only("config", configMap("config", "a")))
		expectOpen(ctx, namespace)
	})

	It("wait for a ServiceAccount that does not exist, and never get the permissions of the operator", func(ctx context.Context) {
		name := framework.Unique("missing")
		template := newTemplate(framework.Unique("account"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = name })
		create(ctx, template)
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionFalse,
			name, "does not exist", "impersonate", "configmaps", "furnish")
		namespace := selectedBy(template.Name)
		Expect(creator.Create(ctx, namespace)).To(Succeed())
		waitsFor(ctx, namespace, name)
		cluster.AddTemplateAccount(ctx, name)
		expectOpen(ctx, namespace)
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionTrue)
	})

	setTimeout := func(ctx context.Context, name string, policy v1alpha1.InitializerFailurePolicy) {
		GinkgoHelper()
		object := wrappers.MakeConfiguration(name).Initializer(v1alpha1.TemplatesInitializer,
			v1alpha1.InitializerSettings{TimeoutSeconds: ptr.To[int32](1), FailurePolicy: &policy}).Obj()
		Expect(cluster.Admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, object)).To(Succeed()) })
		Eventually(func(g Gomega) {
			g.Expect(cluster.EffectiveSet(g, ctx).Initializers[0].FailurePolicy).To(HaveValue(Equal(policy)))
		}).WithContext(ctx).Should(Succeed())
	}

	It("get their objects later if the initializer times out and its failure policy is Ignore", func(ctx context.Context) {
		DeferCleanup(restoreManager)
		name := framework.Unique("timeout")
		create(ctx, newTemplate(name, only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = name }))
		setTimeout(ctx, name, v1alpha1.InitializerIgnore)
		namespace := selectedBy(name)
		createOpen(ctx, namespace)
		Expect(objectsOf(ctx, namespace)).To(BeEmpty())
		By("a restart, after which the operator knows only what the namespace records")
		restartManager(ctx, nil)
		cluster.AddTemplateAccount(ctx, name)
		expectValue(ctx, namespace, "config", "a")
		expectCondition(ctx, name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
	})

	It("time out as for any initializer", func(ctx context.Context) {
		name := framework.Unique("timeout")
		create(ctx, newTemplate(name, only("config",
			`{"apiVersion":"test.example.com/v1","kind":"Unknown","metadata":{"name":"x"}}`)))
		setTimeout(ctx, name, v1alpha1.InitializerFail)
		namespace := selectedBy(name)
		Expect(creator.Create(ctx, namespace)).To(Succeed())
		Eventually(func(g Gomega) {
			current := &corev1.Namespace{}
			err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), current)
			g.Expect(apierrors.IsNotFound(err) || current.DeletionTimestamp != nil).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	})

	It("get the objects that are created after they open", func(ctx context.Context) {
		template := newTemplate(framework.Unique("after"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Objects[0].When = v1alpha1.TemplateAfterOpen })
		create(ctx, template)
		namespace := selectedBy(template.Name)
		createOpen(ctx, namespace)
		expectValue(ctx, namespace, "config", "a")
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
	})
})
