// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

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
		Expect(cluster.Initializer.Patch(ctx, held, mergePatch(`{"metadata":{"finalizers":["test.example.com/hold"]}}`))).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(cluster.Admin.Patch(ctx, held, withoutFinalizers)).To(Succeed())
		})
		AddReportEntry("deleted after", writeUntil(ctx, namespace, func(now *corev1.Namespace) bool {
			return now.DeletionTimestamp != nil
		}).String())
	}, SpecTimeout(specTimeout))

	It("cannot prevent a timeout from being enforced", func(ctx context.Context) {
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("busy").Initializer("absent.test.example.com",
			v1alpha1.InitializerSettings{TimeoutSeconds: new(int32(1)), FailurePolicy: new(v1alpha1.InitializerIgnore)}))
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
