// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const podSecurity = "pod-security.kubernetes.io/enforce"

// withMetadata makes a template set metadata.
func withMetadata(metadata v1alpha1.TemplateMetadata) func(*v1alpha1.NamespaceTemplateSpec) {
	return func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Metadata = &metadata }
}

func labelsOf(values ...string) map[string]v1alpha1.TemplateMetadataValue {
	labels := map[string]v1alpha1.TemplateMetadataValue{}
	for i := 0; i < len(values); i += 2 {
		labels[values[i]] = v1alpha1.TemplateMetadataValue(values[i+1])
	}
	return labels
}

// expectLabel waits until a Namespace has a label with a value; none if it is empty.
func expectLabel(ctx context.Context, namespace *corev1.Namespace, key, value string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		labels := cluster.GetNamespace(g, ctx, namespace.Name).Labels
		if value == "" {
			g.Expect(labels).NotTo(HaveKey(key))
		} else {
			g.Expect(labels).To(HaveKeyWithValue(key, value))
		}
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("The labels and annotations that a template sets on a namespace", func() {
	It("are in the response to the request that creates it", func(ctx context.Context) {
		template := createTemplate(ctx, "metadata", withMetadata(v1alpha1.TemplateMetadata{
			Labels: labelsOf(podSecurity, "restricted", "size", "t-${params.size}", "unset", "x-${params.email}"),
			Annotations: labelsOf("example.com/owner", "${requestedBy} of ${params.size}", "example.com/literal", "costs $5 $${x}",
				"example.com/unset", "${params.email}"),
		}), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Parameters = append(spec.Parameters, v1alpha1.TemplateParameter{Name: "email"})
		})
		namespace := selectedBy(template.Name)
		namespace.Labels[podSecurity] = "privileged"
		framework.CreateAs(ctx, creator, namespace)
		Expect(namespace.Labels).To(And(HaveKeyWithValue(podSecurity, "restricted"), HaveKeyWithValue("size", "t-s"),
			Not(HaveKey("unset"))))
		Expect(namespace.Annotations).To(And(HaveKeyWithValue("example.com/owner", alice+" of s"),
			HaveKeyWithValue("example.com/literal", "costs $5 ${x}"), Not(HaveKey("example.com/unset"))))
		expectInitialized(ctx, namespace)
		Expect(namespace.ManagedFields).NotTo(ContainElement(HaveField("Manager", "nslifecycle-template:"+template.Name)),
			"the operator has nothing to change")
	})

	It("are restored, follow parameters and the template, and are removed with it", func(ctx context.Context) {
		template, namespace := createSelecting(ctx, "metadata", withMetadata(v1alpha1.TemplateMetadata{
			Labels: labelsOf("zone", "a", "size", "${params.size}"), Annotations: labelsOf("example.com/note", "a"),
		}), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.ObjectRetentionPolicy.WhenDeselected = v1alpha1.RetentionDelete
		})
		By("a change by another client")
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"zone":"b"},"annotations":{"example.com/note":null}}}`)
		expectLabel(ctx, namespace, "zone", "a")
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).Annotations).To(HaveKeyWithValue("example.com/note", "a"))
		}).WithContext(ctx).Should(Succeed())
		By("another parameter")
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"annotations":{"`+v1alpha1.PrefixParameter+`size":"l"}}}`)
		expectLabel(ctx, namespace, "size", "l")
		By("another value in the template, and a key that it no longer contains")
		change(ctx, template.Name, withMetadata(v1alpha1.TemplateMetadata{Labels: labelsOf("zone", "c")}))
		expectLabel(ctx, namespace, "zone", "c")
		expectLabel(ctx, namespace, "size", "")
		By("a namespace that the template no longer selects")
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"kind":null}}}`)
		expectLabel(ctx, namespace, "zone", "")
	})

	It("are set on existing namespaces, unless these have other values", func(ctx context.Context) {
		existing, other := wrappers.MakeNamespace(framework.Unique("ns")).Obj(), wrappers.MakeNamespace(framework.Unique("ns")).Obj()
		name := framework.Unique("metadata")
		existing.Labels, other.Labels = map[string]string{"kind": name}, map[string]string{"kind": name, "zone": "other"}
		createInitialized(ctx, existing)
		createInitialized(ctx, other)
		create(ctx, newTemplate(name, withMetadata(v1alpha1.TemplateMetadata{Labels: labelsOf("zone", "a")}),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Scope, spec.Objects = v1alpha1.ScopeAllNamespaces, nil
			}))
		expectLabel(ctx, existing, "zone", "a")
		Eventually(func(g Gomega) {
			status := getTemplate(g, ctx, name).Status
			g.Expect(status.Failures).To(ConsistOf(And(HaveField("Namespace", other.Name),
				HaveField("Message", `label "zone" exists already with another value`))))
			g.Expect(status.Namespaces.Conflicted).To(BeEquivalentTo(1))
		}).WithContext(ctx).Should(Succeed())
		By("adopting the other value")
		change(ctx, name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Sync.AdoptionPolicy = v1alpha1.AdoptAlways })
		expectLabel(ctx, other, "zone", "a")
		By("keeping adopted values")
		change(ctx, name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Metadata.Labels = labelsOf("another", "a")
		})
		expectLabel(ctx, existing, "zone", "")
		expectLabel(ctx, other, "another", "a")
		expectLabel(ctx, other, "zone", "a")
	})

	It("are those of the first of two templates by name", func(ctx context.Context) {
		name := framework.Unique("metadata")
		both := func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.NamespaceSelector.MatchLabels = map[string]v1alpha1.LabelValue{"kind": v1alpha1.LabelValue(name)}
			spec.Objects, spec.Scope = nil, v1alpha1.ScopeAllNamespaces
		}
		create(ctx, newTemplate(name+"-b", both, withMetadata(v1alpha1.TemplateMetadata{Labels: labelsOf("zone", "b")})))
		create(ctx, newTemplate(name+"-a", both, withMetadata(v1alpha1.TemplateMetadata{Labels: labelsOf("zone", "a")})))
		namespace := selectedBy(name)
		createInitialized(ctx, namespace)
		Expect(namespace.Labels).To(HaveKeyWithValue("zone", "a"))
		for _, template := range []string{name + "-a", name + "-b"} {
			expectCondition(ctx, template, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
		}
		cluster.Admin.Deletes(ctx, getTemplate(Default, ctx, name+"-a"))
		expectLabel(ctx, namespace, "zone", "b")
	})

	It("cannot be changed by users while they are locked", func(ctx context.Context) {
		template, namespace := createSelecting(ctx, "metadata", withMetadata(v1alpha1.TemplateMetadata{
			Labels:      labelsOf("zone", "${params.size}", "team", "x-${params.team}"),
			Annotations: labelsOf("example.com/note", "a"), Lock: v1alpha1.LockAll,
		}), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Parameters = append(spec.Parameters, v1alpha1.TemplateParameter{Name: "team"})
		})
		clientset, err := kubernetes.NewForConfig(creator.Config)
		Expect(err).NotTo(HaveOccurred())
		// The policy can read the template later than the policy that sets its labels.
		Eventually(func() error {
			change := framework.MergePatch(`{"metadata":{"labels":{"zone":"other"}}}`)
			return creator.Patch(ctx, namespace.DeepCopy(), change, client.DryRunAll)
		}).WithContext(ctx).Should(Satisfy(apierrors.IsForbidden))
		for _, patch := range []string{
			`{"metadata":{"labels":{"zone":"other"}}}`, `{"metadata":{"labels":{"zone":""}}}`,
			`{"metadata":{"annotations":{"example.com/note":"b"}}}`,
			`{"metadata":{"labels":{"kind":"other","zone":"other"}}}`, `{"metadata":{"labels":{"team":"other"}}}`,
		} {
			err := creator.Patch(ctx, namespace.DeepCopy(), framework.MergePatch(patch))
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%s: %v", patch, err)
			Expect(err).To(MatchError(ContainSubstring(`template "` + template.Name + `" sets and locks it`)))
		}
		current := cluster.GetNamespace(Default, ctx, namespace.Name)
		current.Annotations["example.com/note"] = "b"
		_, err = clientset.CoreV1().Namespaces().Finalize(ctx, current, metav1.UpdateOptions{})
		Expect(err).To(HaveOccurred())
		By("other changes, and the parameter")
		creator.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"other":"x"}}}`)
		creator.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"annotations":{"`+v1alpha1.PrefixParameter+`size":"l"}}}`)
		expectLabel(ctx, namespace, "zone", "l")
		By("a parameter without a value")
		other := selectedBy(template.Name)
		other.Labels["team"] = "other"
		Expect(framework.CreateAs(ctx, creator, other).Labels).NotTo(HaveKey("team"))
		creator.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"annotations":{"`+v1alpha1.PrefixParameter+`team":"a"}}}`)
		expectLabel(ctx, namespace, "team", "x-a")
		creator.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"annotations":{"`+v1alpha1.PrefixParameter+`team":null}}}`)
		expectLabel(ctx, namespace, "team", "")
		Expect(creator.Patch(ctx, namespace.DeepCopy(), framework.MergePatch(
			`{"metadata":{"labels":{"team":"other"}}}`))).To(MatchError(ContainSubstring("sets and locks it")))
	})

	It("are restored if a write omits them while they are locked, also by administrators and in terminating namespaces", func(ctx context.Context) {
		template, namespace := createSelecting(ctx, "metadata", withMetadata(v1alpha1.TemplateMetadata{
			Labels: labelsOf(podSecurity, "restricted"), Annotations: labelsOf("example.com/note", "a"), Lock: v1alpha1.LockAll,
		}))
		expectRestored := func(namespace *corev1.Namespace) {
			GinkgoHelper()
			Expect(namespace.Labels).To(And(HaveKeyWithValue(podSecurity, "restricted"), HaveKeyWithValue("kind", template.Name)))
			Expect(namespace.Annotations).To(HaveKeyWithValue("example.com/note", "a"))
		}
		manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":{"team":"a"}}}`, namespace.Name)
		planted := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":{%q:"restricted","kind":%q,"other":"x"},`+
			`"annotations":{"example.com/note":"a"}}}`, namespace.Name, podSecurity, template.Name)
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"other":"x"}}}`)
		apply := func(arguments ...string) {
			GinkgoHelper()
			_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, manifest, append([]string{"apply", "-f", "-"}, arguments...)...)
			Expect(err).NotTo(HaveOccurred())
			expectRestored(cluster.GetNamespace(Default, ctx, namespace.Name))
		}
		By("a client-side apply by an administrator after a user has planted the keys")
		before := namespace.DeepCopy()
		namespace.Annotations[corev1.LastAppliedConfigAnnotation] = planted
		Expect(creator.Patch(ctx, namespace, client.MergeFrom(before))).To(Succeed())
		apply()
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Labels).To(And(HaveKeyWithValue("team", "a"), Not(HaveKey("other"))))
		By("a server-side apply by an administrator after a user has planted the keys")
		planting := cluster.GetNamespace(Default, ctx, namespace.Name)
		planting.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "gitops", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
			Time: ptr.To(metav1.Now()), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:` + podSecurity +
				`":{},"f:kind":{}},"f:annotations":{"f:example.com/note":{}}}}`),
		}}
		creator.Updates(ctx, planting)
		apply("--server-side", "--force-conflicts", "--field-manager=gitops")
		By("a write of an older copy, also of the status")
		for _, update := range []func(*corev1.Namespace) error{
			func(older *corev1.Namespace) error { return creator.Update(ctx, older) },
			func(older *corev1.Namespace) error { return cluster.Admin.Update(ctx, older) },
			func(older *corev1.Namespace) error { return cluster.Admin.Status().Update(ctx, older) },
		} {
			older := cluster.GetNamespace(Default, ctx, namespace.Name)
			older.ResourceVersion, older.Labels, older.Annotations = "", map[string]string{"team": "a"}, nil
			Expect(update(older)).To(Succeed())
			expectRestored(older)
		}
		By("a removal of other finalizers with only a name")
		framework.SetNamespaceFinalizers(ctx, cluster.Admin, namespace.Name,
			corev1.FinalizerKubernetes, "test.example.com/a", "test.example.com/b")
		cluster.Admin.Deletes(ctx, namespace.DeepCopy())
		DeferCleanup(func(ctx context.Context) { framework.SetNamespaceFinalizers(ctx, cluster.Admin, namespace.Name) })
		Eventually(func(g Gomega) { // Otherwise, the content would be orphaned.
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).Spec.Finalizers).To(HaveLen(2))
		}).WithContext(ctx).Should(Succeed())
		clientset, err := kubernetes.NewForConfig(cluster.Admin.Config)
		Expect(err).NotTo(HaveOccurred())
		finalized, err := clientset.CoreV1().Namespaces().Finalize(ctx, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: namespace.Name},
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"test.example.com/a"}},
		}, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		expectRestored(finalized)
		By("another value through /finalize, by a user who may not change it")
		finalized.Labels[podSecurity] = "privileged"
		_, err = cluster.Ordinary.Clientset().CoreV1().Namespaces().Finalize(ctx, finalized, metav1.UpdateOptions{})
		Expect(err).To(MatchError(ContainSubstring("cannot be changed through /finalize")))
	})

	It("can be removed by administrators as the template, and are restored as long as it selects the namespace", func(ctx context.Context) {
		_, namespace := createSelecting(ctx, "metadata", withMetadata(v1alpha1.TemplateMetadata{
			Labels: labelsOf("zone", "a"), Lock: v1alpha1.LockAll,
		}), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.ObjectRetentionPolicy.WhenDeselected = v1alpha1.RetentionDelete
		})
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"zone":""}}}`)
		expectLabel(ctx, namespace, "zone", "a")
		Expect(cluster.Admin.Patch(ctx, namespace.DeepCopy(), framework.MergePatch(`{"metadata":{"labels":{"kind":null}}}`),
			client.FieldOwner("nslifecycle-template:administrator"))).To(Succeed())
		expectLabel(ctx, namespace, "zone", "")
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Labels).NotTo(HaveKey("kind"))
	})

	It("are locked while the namespace is initializing, and keep their template", func(ctx context.Context) {
		template := createTemplate(ctx, "metadata", withMetadata(v1alpha1.TemplateMetadata{
			Labels: labelsOf("zone", "a"), Lock: v1alpha1.LockAll,
		}), only("config", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"key":"${params.typo}"}}`))
		namespace := framework.CreateAs(ctx, creator, selectedBy(template.Name))
		Expect(namespace.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		refused := func(patch, message string) {
			GinkgoHelper()
			// The policies can read the set one after the other.
			Eventually(func() error {
				return creator.Patch(ctx, namespace.DeepCopy(), framework.MergePatch(patch), client.DryRunAll)
			}).WithContext(ctx).Should(MatchError(ContainSubstring(message)), patch)
		}
		for range 2 {
			refused(`{"metadata":{"labels":{"zone":"other"}}}`, `template "`+template.Name+`" sets and locks it`)
			refused(`{"metadata":{"labels":{"kind":"other"}}}`, "would no longer select the namespace")
			change(ctx, template.Name, only("config", configMap("config", "a")))
			expectInitialized(ctx, namespace)
		}
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"kind":"other"}}}`)
	})

	It("are those of the revision that new namespaces get", func(ctx context.Context) {
		template, namespace := createSelecting(ctx, "metadata",
			withMetadata(v1alpha1.TemplateMetadata{Labels: labelsOf("zone", "a")}))
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Metadata.Labels, spec.Rollout.Paused = labelsOf("zone", "b"), true
		})
		Eventually(func(g Gomega) {
			status := getTemplate(g, ctx, template.Name).Status
			g.Expect(status.UpdateRevision).NotTo(Equal(status.CurrentRevision))
		}).WithContext(ctx).Should(Succeed())
		fresh := selectedBy(template.Name)
		Expect(framework.CreateAs(ctx, creator, fresh).Labels).To(HaveKeyWithValue("zone", "a"))
		expectInitialized(ctx, fresh)
		Consistently(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).Labels).To(HaveKeyWithValue("zone", "a"))
		}).WithContext(ctx).Should(Succeed())
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Rollout.Paused = false })
		expectLabel(ctx, namespace, "zone", "b")
		expectLabel(ctx, fresh, "zone", "b")
		Eventually(func(g Gomega) {
			probe := selectedBy(template.Name)
			g.Expect(creator.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			g.Expect(probe.Labels).To(HaveKeyWithValue("zone", "b"))
		}).WithContext(ctx).Should(Succeed())
	})

	It("are never absent", func(ctx context.Context) {
		template := createTemplate(ctx, "metadata",
			withMetadata(v1alpha1.TemplateMetadata{Labels: labelsOf(podSecurity, "restricted")}))
		clientset, err := kubernetes.NewForConfig(cluster.Admin.Config)
		Expect(err).NotTo(HaveOccurred())
		watched, err := clientset.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{LabelSelector: "kind=" + template.Name})
		Expect(err).NotTo(HaveOccurred())
		defer watched.Stop()
		var seen, absent atomic.Int64
		go func() {
			for event := range watched.ResultChan() {
				if namespace, ok := event.Object.(*corev1.Namespace); ok && event.Type != watch.Deleted {
					if event.Type == watch.Added {
						seen.Add(1)
					}
					if namespace.Labels[podSecurity] != "restricted" {
						absent.Add(1)
					}
				}
			}
		}()
		const creators, each = 4, 25
		var group sync.WaitGroup
		for range creators {
			group.Go(func() {
				for i := range each {
					namespace := selectedBy(template.Name)
					namespace.Name += "-" + strconv.Itoa(i)
					if err := creator.Create(ctx, namespace); err != nil {
						AddReportEntry("error", err.Error())
						absent.Add(1)
					}
				}
			})
		}
		group.Wait()
		Eventually(seen.Load).WithContext(ctx).WithTimeout(time.Minute).Should(BeNumerically(">=", creators*each))
		Expect(absent.Load()).To(BeZero())
	})

	It("of all templates together are within the limits of the API server", func(ctx context.Context) {
		name := framework.Unique("metadata")
		full := func(i int) *v1alpha1.NamespaceTemplate {
			metadata := v1alpha1.TemplateMetadata{Annotations: labelsOf(), Lock: v1alpha1.LockAll}
			for j := range 16 {
				metadata.Annotations[fmt.Sprintf("%03d.example.com/%02d", i, j)] =
					v1alpha1.TemplateMetadataValue(strings.Repeat("${requestedBy}", 8))
			}
			template := newTemplate(fmt.Sprintf("%s-%03d", name, i), withMetadata(metadata))
			template.Spec.NamespaceSelector.MatchLabels = map[string]v1alpha1.LabelValue{"kind": v1alpha1.LabelValue(name)}
			template.Spec.Objects, template.Labels = nil, map[string]string{"test": name}
			return template
		}
		DeferCleanup(func(ctx context.Context) {
			Expect(cluster.Admin.DeleteAllOf(ctx, &v1alpha1.NamespaceTemplate{}, client.MatchingLabels{"test": name})).To(Succeed())
			Eventually(func(g Gomega) { g.Expect(cluster.EffectiveSet(g, ctx).Templates).To(BeEmpty()) }).
				WithContext(ctx).Should(Succeed())
		})
		cluster.StopManager()                           // It would publish a set for each template.
		const count = internalv1alpha1.MaxTemplates / 2 // Their metadata have almost 64 KiB.
		for i := range count + 1 {
			cluster.Admin.Creates(ctx, full(i))
		}
		restoreManager(ctx)
		namespace := selectedBy(name)
		Eventually(func(g Gomega) {
			probe := namespace.DeepCopy()
			g.Expect(creator.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			g.Expect(probe.Annotations).To(HaveKeyWithValue(
				fmt.Sprintf("%03d.example.com/15", count-1), strings.Repeat(alice, 8)))
		}).WithContext(ctx).Should(Succeed(), "the policies have read the set")
		expectCondition(ctx, full(count).Name, v1alpha1.ConditionValid, metav1.ConditionFalse, "64 KiB of metadata")
		framework.CreateAs(ctx, creator, namespace)
		creator.Patches(ctx, namespace, `{"metadata":{"labels":{"other":"x"}}}`)
	})

	DescribeTable("are rejected", func(ctx context.Context, metadata v1alpha1.TemplateMetadata, message string) {
		err := cluster.Admin.Create(ctx, newTemplate(framework.Unique("metadata"), withMetadata(metadata)), client.DryRunAll)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("with a key of the API server", v1alpha1.TemplateMetadata{Labels: labelsOf("kubernetes.io/metadata.name", "x")},
			"a template cannot set keys with the prefix kubernetes.io/"),
		Entry("with a key of this project", v1alpha1.TemplateMetadata{Labels: labelsOf("nslifecycle.dev/initializing", "x")},
			"a template cannot set keys with the prefix"),
		Entry("with a parameter annotation", v1alpha1.TemplateMetadata{
			Annotations: labelsOf("parameter.nslifecycle.dev/size", "x"),
		}, "a template cannot set keys with the prefix"),
		Entry("with an invalid key", v1alpha1.TemplateMetadata{Labels: labelsOf("a b", "x")}, "must be a qualified name"),
		Entry("with an invalid label", v1alpha1.TemplateMetadata{Labels: labelsOf("a", "x y")}, "the value of a label must"),
		Entry("with the user in a label", v1alpha1.TemplateMetadata{Labels: labelsOf("a", "${requestedBy}")},
			"the value of a label must"),
		Entry("with another expression", v1alpha1.TemplateMetadata{Annotations: labelsOf("a", "${ns.name}")},
			"can contain only the expressions"),
		Entry("without keys", v1alpha1.TemplateMetadata{}, "set labels, annotations, or both"),
	)
})
