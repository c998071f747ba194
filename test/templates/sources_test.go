// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// copying makes a template contain only a copy of a source.
func copying(source *corev1.ConfigMap) func(*v1alpha1.NamespaceTemplateSpec) {
	return func(spec *v1alpha1.NamespaceTemplateSpec) {
		spec.Objects = []v1alpha1.TemplateObject{{
			Name: "copy", SourceRef: &v1alpha1.TemplateSourceReference{Kind: "ConfigMap", Name: source.Name},
		}}
	}
}

// newSource returns a ConfigMap with one key in the source namespace.
func newSource(value string) *corev1.ConfigMap {
	return newConfig(controlplane.SourceNamespace, framework.Unique("source"), value)
}

// expectReady waits until the condition Ready of a template has a status and a reason.
func expectReady(ctx context.Context, template string, status metav1.ConditionStatus, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		ready := meta.FindStatusCondition(getTemplate(g, ctx, template).Status.Conditions, v1alpha1.ConditionReady)
		g.Expect(ready).To(HaveValue(And(HaveField("Status", status), HaveField("Reason", reason))))
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("The source of a copy", func() {
	AfterEach(restoreManager)

	It("causes no writes if only its metadata changes, also while the operator is stopped", func(ctx context.Context) {
		intercepted := restartManager(ctx, nil)
		source := newSource("a")
		cluster.Admin.Creates(ctx, source)
		template := createTemplate(ctx, "touched", copying(source))
		var namespaces []*corev1.Namespace
		for range 3 {
			namespaces = append(namespaces, createInitialized(ctx, selectedBy(template.Name)))
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 3")
		versions := func() []string {
			var versions []string
			for _, namespace := range namespaces {
				current := cluster.GetNamespace(Default, ctx, namespace.Name)
				versions = append(versions, current.ResourceVersion, getConfig(ctx, namespace, source.Name).ResourceVersion)
			}
			return versions
		}
		touch := func(value int) {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"refreshed":"%d"},"labels":{"refreshed":"%d"}}}`, value, value)
			cluster.Admin.Patches(ctx, source.DeepCopy(), patch)
		}
		By("waiting for the last writes of the status")
		Eventually(func() []string { return writes(intercepted.sent()) }).WithContext(ctx).MustPassRepeatedly(40).
			Should(BeEmpty())
		before := versions()
		touch(1)
		Consistently(func() []string { return writes(intercepted.sent()) }).WithContext(ctx).Should(BeEmpty())
		Expect(versions()).To(Equal(before))
		By("a restart")
		cluster.StopManager()
		touch(2)
		intercepted = restartManager(ctx, nil)
		Eventually(func() []string { return intercepted.requestsSoFar() }).WithContext(ctx).Should(ContainElement(
			ContainSubstring("/namespaces/"+controlplane.SourceNamespace+"/configmaps")), "the operator reads the source")
		Consistently(func() []string { return writes(intercepted.sent()) }).WithContext(ctx).Should(BeEmpty())
		Expect(versions()).To(Equal(before))
		By("a change of the content")
		source.Data["key"] = "b"
		source.ResourceVersion = ""
		cluster.Admin.Updates(ctx, source)
		for _, namespace := range namespaces {
			expectValue(ctx, namespace, source.Name, "b")
		}
	})

	It("is reported if it does not exist, and never copied from another namespace", func(ctx context.Context) {
		source := newSource("a")
		elsewhere := newConfig("default", source.Name, "theirs")
		cluster.Admin.Creates(ctx, elsewhere)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, elsewhere)).To(Succeed()) })
		template := createTemplate(ctx, "missing", copying(source))
		expectReady(ctx, template.Name, metav1.ConditionFalse, v1alpha1.ReasonSourceNotFound)
		namespace := framework.CreateAs(ctx, creator, selectedBy(template.Name))
		expectWaiting(ctx, namespace, v1alpha1.ReasonSourceNotFound)
		cluster.Admin.Creates(ctx, source)
		expectInitialized(ctx, namespace)
		expectValue(ctx, namespace, source.Name, "a")
		expectReady(ctx, template.Name, metav1.ConditionTrue, v1alpha1.ReasonUpToDate)
	})

	It("is copied as soon as its namespace exists, to which no template is applied", func(ctx context.Context) {
		source := newSource("a")
		source.Namespace = framework.Unique("sources")
		restartManager(ctx, nil, func(o *manager.Options) { o.SourceNamespace = source.Namespace })
		Eventually(func(g Gomega) {
			g.Expect(cluster.EffectiveSet(g, ctx).SourceNamespace).To(Equal(source.Namespace))
		}).WithContext(ctx).Should(Succeed())
		template := createTemplate(ctx, "later", copying(source), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Scope = v1alpha1.ScopeAllNamespaces
			spec.Objects = append(spec.Objects, objectNamed("config", configMap("config", "a")))
		})
		expectReady(ctx, template.Name, metav1.ConditionFalse, v1alpha1.ReasonSourceNotFound)
		waiting := framework.CreateAs(ctx, creator, selectedBy(template.Name))
		expectWaiting(ctx, waiting, v1alpha1.ReasonSourceNotFound, "namespace", source.Namespace)
		By("creating it as a user, who gets no permissions from templates")
		created := wrappers.MakeNamespace(source.Namespace).Label("kind", template.Name).Obj()
		creator.Creates(ctx, created)
		Expect(created.Annotations).NotTo(HaveKey(v1alpha1.AnnotationSelectedTemplates))
		Expect(created.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		for _, object := range sourceRole(source.Namespace) {
			cluster.Admin.Creates(ctx, object)
		}
		cluster.Admin.Creates(ctx, source)
		expectInitialized(ctx, waiting)
		expectValue(ctx, waiting, source.Name, "a")
		expectReady(ctx, template.Name, metav1.ConditionTrue, v1alpha1.ReasonUpToDate)
		Expect(apierrors.IsNotFound(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: source.Namespace, Name: "config"},
			&corev1.ConfigMap{}))).To(BeTrue())
	})
})

// sourceRole returns the Role and RoleBinding of config/sources in another namespace.
func sourceRole(namespace string) []client.Object {
	metadata := metav1.ObjectMeta{Namespace: namespace, Name: "sources"}
	return []client.Object{
		&rbacv1.Role{ObjectMeta: metadata, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: []string{"get", "list", "watch"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: metadata, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: metadata.Name},
			Subjects: []rbacv1.Subject{{
				Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: controlplane.ServiceAccount,
			}},
		},
	}
}

// What the users of one namespace can do is reported, and stops neither other objects nor other namespaces.
var _ = Describe("A user of a namespace", func() {
	var (
		template         *v1alpha1.NamespaceTemplate
		hostile, another *corev1.Namespace
	)
	three := func(value string) func(*v1alpha1.NamespaceTemplateSpec) {
		return func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", value))(spec)
			spec.Objects = append(spec.Objects, objectNamed("other", configMap("other", value)))
			if value == "a" {
				spec.Objects = append(spec.Objects, objectNamed("revoked", configMap("revoked", value)))
			}
		}
	}
	start := func(ctx context.Context) {
		GinkgoHelper()
		template = newTemplate(framework.Unique("obstacle"), three("a"))
		create(ctx, template)
		hostile, another = selectedBy(template.Name), selectedBy(template.Name)
		for _, namespace := range []*corev1.Namespace{hostile, another} {
			createInitialized(ctx, namespace)
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 2")
	}
	patch := func(ctx context.Context, name, patch string) {
		GinkgoHelper()
		config := getConfig(ctx, hostile, name)
		cluster.Admin.Patches(ctx, config, patch)
	}
	// expectReachedOthers waits until all other namespaces, also new ones, have the latest revision.
	expectReachedOthers := func(ctx context.Context) {
		GinkgoHelper()
		expectValue(ctx, another, "config", "b")
		expectReached(ctx, template.Name)
		added := createInitialized(ctx, selectedBy(template.Name))
		expectValue(ctx, added, "config", "b")
	}
	expectFailure := func(ctx context.Context, reason string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			current := getTemplate(g, ctx, template.Name)
			g.Expect(current.Status.Failures).To(ContainElement(And(
				HaveField("Namespace", hostile.Name), HaveField("Reason", reason))))
			g.Expect(current.Status.Namespaces.Failed).To(BeEquivalentTo(1))
		}).WithContext(ctx).Should(Succeed())
	}

	It("cannot hide that the namespace lacks space for the record", func(ctx context.Context) {
		start(ctx)
		current := cluster.GetNamespace(Default, ctx, hostile.Name)
		size := 0
		for key, value := range current.Annotations {
			size += len(key) + len(value)
		}
		space := 256<<10 - size - len("fill")
		cluster.Admin.Patches(ctx, hostile.DeepCopy(), fmt.Sprintf(`{"metadata":{"annotations":{"fill":%q}}}`, strings.Repeat("x", space)))
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			three("b")(spec)
			spec.Objects = append(spec.Objects, objectNamed("more", configMap("more", "b")), objectNamed("most", configMap("most", "b")))
		})
		expectFailure(ctx, "NotRecorded")
		expectCondition(ctx, template.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "1 of 2")
		expectEvents(ctx, hostile, "TemplateNotRecorded")
		expectReachedOthers(ctx)
		By("space for the record")
		cluster.Admin.Patches(ctx, hostile.DeepCopy(), `{"metadata":{"annotations":{"fill":null}}}`)
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 3")
	})

	It("cannot keep an object by a finalizer, or change it while it is terminating", func(ctx context.Context) {
		start(ctx)
		for _, name := range []string{"config", "revoked"} {
			patch(ctx, name, `{"metadata":{"finalizers":["test.example.com/keep"]}}`)
		}
		terminating := getConfig(ctx, hostile, "config")
		cluster.Admin.Deletes(ctx, terminating)
		expectFailure(ctx, "ObjectTerminating")
		patch(ctx, "config", `{"data":{"key":"theirs"}}`)
		expectValue(ctx, hostile, "config", "a")
		change(ctx, template.Name, three("b"))
		expectReachedOthers(ctx)
		expectValue(ctx, hostile, "config", "b")
		expectValue(ctx, hostile, "other", "b")
		expectDeleted(ctx, another, "revoked")
		By("the object that the template no longer contains, which remains reported until it does not exist")
		Eventually(func(g Gomega) {
			g.Expect(getConfig(ctx, hostile, "revoked").DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
		Expect(recordOf(Default, ctx, hostile, template.Name).Objects).To(ContainElement(HaveField("Name", "revoked")))
		for _, name := range []string{"config", "revoked"} {
			patch(ctx, name, `{"metadata":{"finalizers":null}}`)
		}
		expectDeleted(ctx, hostile, "revoked")
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 3")
		expectValue(ctx, hostile, "config", "b")
	})

	It("cannot keep an object by changing another one again and again", func(ctx context.Context) {
		start(ctx)
		for range 3 {
			patch(ctx, "other", `{"data":{"key":"theirs"}}`)
			expectValue(ctx, hostile, "other", "a")
		}
		patch(ctx, "other", `{"data":{"key":"theirs"}}`)
		expectCondition(ctx, template.Name, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			three("a")(spec)
			spec.Objects = spec.Objects[:2]
		})
		expectDeleted(ctx, hostile, "revoked")
		expectDeleted(ctx, another, "revoked")
	})

	for _, number := range []int{300, 1000} {
		It(fmt.Sprintf("cannot prevent the restoration of an object by %d labels", number), func(ctx context.Context) {
			start(ctx)
			labels := make([]string, number)
			for i := range labels {
				labels[i] = fmt.Sprintf(`"%s/label-%d":%q`, strings.Repeat("x", 250), i, strings.Repeat("x", 63))
			}
			patch(ctx, "config", `{"metadata":{"labels":{`+strings.Join(labels, ",")+`}}}`)
			patch(ctx, "config", `{"data":{"key":"theirs"}}`)
			expectValue(ctx, hostile, "config", "a")
			change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
				three("b")(spec)
				spec.Objects[0].Lock = v1alpha1.LockAll
			})
			expectReachedOthers(ctx)
			expectValue(ctx, hostile, "config", "b")
			expectDeleted(ctx, hostile, "revoked")
		})
	}

	It("cannot prevent the restoration of an object that has no space for annotations", func(ctx context.Context) {
		start(ctx)
		patch(ctx, "config", `{"metadata":{"annotations":{"`+v1alpha1.AnnotationNamespaceUID+`":null,"fill":"`+
			strings.Repeat("x", 256<<10-4)+`"}},"data":{"key":"theirs"}}`)
		expectValue(ctx, hostile, "config", "a")
		change(ctx, template.Name, three("b"))
		expectReachedOthers(ctx)
		expectValue(ctx, hostile, "config", "b")
	})
})
