// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

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
			createOpen(ctx, namespace)
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 2")
	}
	patch := func(ctx context.Context, name, patch string) {
		GinkgoHelper()
		config := get(ctx, hostile, name, &corev1.ConfigMap{})
		Expect(cluster.Admin.Patch(ctx, config, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
	}
	// expectReachedOthers waits until all other namespaces, also new ones, have the latest revision.
	expectReachedOthers := func(ctx context.Context) {
		GinkgoHelper()
		expectValue(ctx, another, "config", "b")
		expectReached(ctx, template.Name)
		added := selectedBy(template.Name)
		createOpen(ctx, added)
		expectValue(ctx, added, "config", "b")
	}
	expectFailure := func(ctx context.Context, reason string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			current := &v1alpha1.NamespaceTemplate{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
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
		patchNamespace(ctx, hostile, fmt.Sprintf(`{"metadata":{"annotations":{"fill":%q}}}`, strings.Repeat("x", space)))
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			three("b")(spec)
			spec.Objects = append(spec.Objects, objectNamed("more", configMap("more", "b")), objectNamed("most", configMap("most", "b")))
		})
		expectFailure(ctx, "NotRecorded")
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionTrue, "1 of 2", "1 failed")
		expectEvents(ctx, hostile, "NotRecorded")
		expectReachedOthers(ctx)
		By("space for the record")
		patchNamespace(ctx, hostile, `{"metadata":{"annotations":{"fill":null}}}`)
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 3")
	})

	It("cannot keep an object by a finalizer, or change it while it is terminating", func(ctx context.Context) {
		start(ctx)
		for _, name := range []string{"config", "revoked"} {
			patch(ctx, name, `{"metadata":{"finalizers":["test.example.com/keep"]}}`)
		}
		terminating := get(ctx, hostile, "config", &corev1.ConfigMap{})
		Expect(cluster.Admin.Delete(ctx, terminating)).To(Succeed())
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
			g.Expect(get(ctx, hostile, "revoked", &corev1.ConfigMap{}).DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
		Expect(recordOf(Default, ctx, hostile, template.Name).Objects).To(ContainElement(HaveField("ObjectName", "revoked")))
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
				spec.Objects[0].Locked = true
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
