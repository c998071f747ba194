// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
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
			created := framework.MakeInitializing(framework.Unique("entries")).Obj()
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
		Expect(cluster.Ordinary.Patch(ctx, namespace.DeepCopy(), framework.MergePatch(`{"metadata":{"annotations":{"one-more":""}}}`))).
			To(BeDeniedBy("guard", "at most 2000"))
		Expect(cluster.Initializer.Patch(ctx, namespace.DeepCopy(), resultPatch(`{"status":"Success"}`))).To(Succeed())
		cluster.Finish(ctx, namespace.Name)
		Expect(cluster.Initializer.Patch(ctx, namespace.DeepCopy(), resultPatch(`{"status":"Failure"}`))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
		cluster.Ordinary.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"finalizers":null}}`)
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, SpecTimeout(specTimeout))
})

// These specs take a long time because they search for the largest possible Namespace with large
// requests.
var _ = Describe("The size of a Namespace", Label("long"), func() {
	for name, enlarge := range map[string]func(*corev1.Namespace, string){
		"an owner reference": func(n *corev1.Namespace, filler string) {
			n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Filler", Name: filler, UID: "u"}}
		},
		"annotations": func(n *corev1.Namespace, filler string) {
			n.Annotations["example.com/filler"] = filler
		},
		"managed fields": func(n *corev1.Namespace, filler string) {
			n.ManagedFields = append(n.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: "filler", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
				Time: new(metav1.Now()), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + filler + `":{}}}}`),
			})
		},
	} {
		It("does not prevent a failure result or the deletion of the namespace: "+name, func(ctx context.Context) {
			namespace := cluster.CreateInitializing(ctx, "size")
			size := largest(ctx, namespace, enlarge)
			AddReportEntry("largest filler", fmt.Sprint(size))
			Expect(cluster.Initializer.Patch(ctx, namespace, resultPatch(failureResult))).To(Succeed())
			framework.ExpectDeleted(ctx, cluster.Admin, namespace)
		}, SpecTimeout(specTimeout))
	}
})

// failureResult is the result of an initializer that failed.
const failureResult = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"quota exceeded"}`

// largest makes a namespace as large as the API server allows for an ordinary user, and returns the
// size of the filler.
func largest(ctx context.Context, namespace *corev1.Namespace, enlarge func(*corev1.Namespace, string)) int {
	GinkgoHelper()
	low, high := 0, 1600<<10
	var rejection error
	for high-low > 8 {
		middle := (low + high) / 2
		now := cluster.GetNamespace(Default, ctx, namespace.Name)
		base := now.DeepCopy()
		enlarge(now, strings.Repeat("x", middle))
		err := cluster.Ordinary.Patch(ctx, now, client.MergeFrom(base), client.FieldOwner("filler"))
		if err == nil {
			low = middle
			continue
		}
		high, rejection = middle, err
	}
	AddReportEntry("rejection", fmt.Sprintf("%.300s", rejection))
	return low
}

var _ = Describe("A creator who continuously updates the Namespace", func() {
	// writeUntil runs keepAnnotating until reached returns true, and returns the duration.
	writeUntil := func(ctx context.Context, namespace *corev1.Namespace, reached func(*corev1.Namespace) bool) time.Duration {
		GinkgoHelper()
		begin := time.Now()
		defer keepAnnotating(ctx, cluster.Ordinary, namespace.Name)()
		Eventually(func(g Gomega) bool {
			return reached(cluster.GetNamespace(g, ctx, namespace.Name))
		}).WithContext(ctx).Should(BeTrue())
		return time.Since(begin)
	}

	It("cannot prevent the deletion of a failed namespace", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "busy")
		go func() {
			defer GinkgoRecover()
			Eventually(func(g Gomega) { // Wait until the other clients have started to write.
				g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).Annotations).To(HaveKey("a"))
			}).WithContext(ctx).Should(Succeed())
			Expect(cluster.Initializer.Patch(ctx, namespace.DeepCopy(), resultPatch(failureResult))).To(Succeed())
		}()
		held := &corev1.Namespace{}
		held.Name = namespace.Name
		cluster.Initializer.Patches(ctx, held, `{"metadata":{"finalizers":["test.example.com/hold"]}}`)
		DeferCleanup(func(ctx context.Context) {
			Expect(cluster.Admin.Patch(ctx, held, withoutFinalizers)).To(Succeed())
		})
		AddReportEntry("deleted after", writeUntil(ctx, namespace, func(now *corev1.Namespace) bool {
			return now.DeletionTimestamp != nil
		}).String())
	}, SpecTimeout(specTimeout))

	It("cannot prevent a timeout from being enforced", func(ctx context.Context) {
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("busy").Initializer("absent.test.example.com",
			v1alpha1.InitializerSettings{
				TimeoutSeconds: new(int32(1)), FailurePolicy: v1alpha1.FailurePolicyIgnore,
			}))
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("busy"))
		AddReportEntry("initialized after", writeUntil(ctx, namespace, func(now *corev1.Namespace) bool {
			return now.Labels[v1alpha1.LabelInitializing] == ""
		}).String())
	}, SpecTimeout(specTimeout))
})

// keepAnnotating patches an annotation of a namespace with eight concurrent clients until the
// returned function is called.
func keepAnnotating(ctx context.Context, user *framework.User, name string) (stop func()) {
	GinkgoHelper()
	namespaces := user.Clientset().CoreV1().Namespaces()
	stopped := make(chan struct{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			repeatUntil(stopped, func() {
				_, _ = namespaces.Patch(ctx, name, types.MergePatchType,
					[]byte(`{"metadata":{"annotations":{"a":"`+framework.Unique("v")+`"}}}`), metav1.PatchOptions{})
			})
		})
	}
	return sync.OnceFunc(func() {
		close(stopped)
		group.Wait()
	})
}
