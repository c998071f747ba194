// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package guardrails

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("Deletion only by creators", func() {
	It("does not apply to the operator, which deletes failed and expired namespaces of all users", func(ctx context.Context) {
		others := create(ctx, editor, wrappers.MakeNamespace(unique("others")))
		tryOthers := func(ctx context.Context) error { return owner.Delete(ctx, others.DeepCopy(), client.DryRunAll) }
		directory := filepath.Join(controlplane.Root(), "config", "owners")
		_, err := plane.Kubectl(ctx, plane.Admin, "apply", "-k", directory)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := plane.Kubectl(ctx, plane.Admin, "delete", "-k", directory)
			Expect(err).NotTo(HaveOccurred())
			Eventually(tryOthers).WithContext(ctx).Should(Succeed())
		})
		Eventually(tryOthers).WithContext(ctx).Should(MatchError(ContainSubstring("namespace-owners")))

		runManager(ctx, manager.Initialization+","+manager.Expiry+","+manager.Finalization)
		expired := create(ctx, owner, withTTL("expires", "15s"))
		registerInitializer(ctx, "owners")
		failed := create(ctx, owner, wrappers.MakeNamespace(unique("failed")))
		fail(ctx, failed)
		for _, namespace := range []*corev1.Namespace{failed, expired} {
			expectDeleted(ctx, namespace)
		}
	}, SpecTimeout(5*time.Minute))
})
