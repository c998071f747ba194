// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("A namespace that is deleted", func() {
	It("is finalized when it is empty", func(ctx context.Context) {
		namespace := createNamespace(ctx, "empty")
		begin := time.Now()
		deleteObject(ctx, namespace)
		expectGone(ctx, namespace)
		GinkgoWriter.Println("took", time.Since(begin))
	})

	It("is finalized with its content", func(ctx context.Context) {
		namespace := createNamespace(ctx, "full")
		for range 30 {
			create(ctx, wrappers.MakeConfigMap(namespace.Name, unique("settings")))
		}
		deleteObject(ctx, namespace)
		expectGone(ctx, namespace)
		Expect(countOf(Default, ctx, corev1.SchemeGroupVersion.WithResource("configmaps"), namespace.Name)).To(BeZero())
	})

	It("waits for a finalizer and reports it", func(ctx context.Context) {
		namespace := createNamespace(ctx, "held")
		held := hold(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, held)
		deleteObject(ctx, namespace)
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name)).To(And(
				HaveRemaining("configmaps. has 1 resource instances"),
				HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"),
			))
		}).WithContext(ctx).Should(Succeed())
		release(ctx, held)
		expectGone(ctx, namespace)
	})
})
