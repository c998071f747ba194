// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// The duration of a write grows with the square of the number of entries in a map or list. With
// 30,000 conditions, every write to a Namespace exceeds its time limit. These specs take a long
// time because they send large requests.
var _ = Describe("The number of entries in an initializing Namespace", Label("long"), func() {
	const many = 5000

	for name, fill := range map[string]func(*corev1.Namespace){
		"short annotations": func(namespace *corev1.Namespace) {
			for i := range many {
				namespace.Annotations[fmt.Sprintf("a%d", i)] = ""
			}
		},
		"finalizers": func(namespace *corev1.Namespace) {
			for range many {
				namespace.Finalizers = append(namespace.Finalizers, "a.b/c")
			}
		},
		"owner references": func(namespace *corev1.Namespace) {
			for i := range many {
				namespace.OwnerReferences = append(namespace.OwnerReferences, metav1.OwnerReference{
					APIVersion: "v1", Kind: "k", Name: "n", UID: types.UID(fmt.Sprint(i)),
				})
			}
		},
	} {
		It("is limited for "+name, func(ctx context.Context) {
			namespace := cluster.CreateInitializing(ctx, "entries")
			before := namespace.DeepCopy()
			fill(namespace)
			Expect(cluster.Ordinary.Patch(ctx, namespace, client.MergeFrom(before))).To(BeDeniedBy("guard", "at most 2000"))
			created := wrappers.MakeNamespace(framework.Unique("entries")).Obj()
			fill(created)
			Expect(cluster.Ordinary.Create(ctx, created)).To(BeDeniedBy("guard", "at most 2000"))
			expectUnchanged(ctx, before)
		}, SpecTimeout(specTimeout))
	}

	for name, conditions := range map[string][]corev1.NamespaceCondition{
		"5000 empty types":  make([]corev1.NamespaceCondition, many),
		"a large status":    {{Type: "corp.example.com/Ready", Status: corev1.ConditionStatus(strings.Repeat("s", 64<<10))}},
		"12000 empty types": make([]corev1.NamespaceCondition, 12000),
	} {
		It("is limited for conditions: "+name, func(ctx context.Context) {
			namespace := cluster.CreateInitializing(ctx, "entries")
			Eventually(func(g Gomega) {
				now := cluster.GetNamespace(g, ctx, namespace.Name)
				now.Status.Conditions = append(now.Status.Conditions, conditions...)
				g.Expect(cluster.Ordinary.Status().Update(ctx, now)).To(BeForbiddenBy("guard", "64 KiB"))
			}).WithContext(ctx).Should(Succeed())
			expectUnchanged(ctx, namespace)
		}, SpecTimeout(specTimeout))
	}

	It("does not prevent the initialization and deletion of the namespace, even at the maximum", func(ctx context.Context) {
		cluster.Register(ctx, "entries", "a.test.example.com", "b.test.example.com")
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("entries"))
		before := namespace.DeepCopy()
		namespace.Finalizers = []string{"test.example.com/hold"}
		// The limit includes the name label.
		taken := len(namespace.Labels) - 1 + len(namespace.Finalizers)
		annotations := map[string]string{}
		for i := range 2000 - taken {
			annotations[fmt.Sprintf("a%d", i)] = ""
		}
		maps.Copy(namespace.Annotations, annotations)
		Expect(cluster.Ordinary.Patch(ctx, namespace, client.MergeFrom(before))).To(Succeed())
		Expect(cluster.Ordinary.Patch(ctx, namespace.DeepCopy(), mergePatch(`{"metadata":{"annotations":{"one-more":""}}}`))).
			To(BeDeniedBy("guard", "at most 2000"))
		Expect(cluster.Initializer.Patch(ctx, namespace.DeepCopy(), resultPatch(`{"status":"Success"}`))).To(Succeed())
		cluster.Finish(ctx, namespace.Name)
		Expect(cluster.Initializer.Patch(ctx, namespace.DeepCopy(), resultPatch(`{"status":"Failure"}`))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
		Expect(cluster.Ordinary.Patch(ctx, namespace.DeepCopy(), mergePatch(`{"metadata":{"finalizers":null}}`))).To(Succeed())
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, SpecTimeout(specTimeout))
})
