// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("A deleted namespace", func() {
	It("is finalized if it is empty", func(ctx context.Context) {
		namespace := createNamespace(ctx, "empty")
		deleteObject(ctx, namespace)
		expectDeleted(ctx, namespace)
	})

	It("is finalized after its content is deleted", func(ctx context.Context) {
		namespace := createNamespace(ctx, "full")
		for range 30 {
			create(ctx, wrappers.MakeConfigMap(namespace.Name, unique("settings")))
		}
		deleteObject(ctx, namespace)
		expectDeleted(ctx, namespace)
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(BeZero())
	})

	It("is kept while an object has a finalizer, and reports the finalizer", func(ctx context.Context) {
		namespace := createNamespace(ctx, "held")
		held := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, held)
		deleteObject(ctx, namespace)
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name)).To(And(
				HaveRemaining("configmaps. has 1 resource instances"),
				HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"),
			))
		}).WithContext(ctx).Should(Succeed())
		removeFinalizers(ctx, held)
		expectDeleted(ctx, namespace)
	})
})
