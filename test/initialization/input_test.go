// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"context"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("The API validation", func() {
	It("accepts the sample with all settings", func(ctx context.Context) {
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "create", "--dry-run=server", "-f", filepath.Join(controlplane.Root(),
			"config/samples/v1alpha1_namespaceinitializerconfiguration_settings.yaml"))
		Expect(err).NotTo(HaveOccurred())
	})

	It("accepts an empty list of initializers", func(ctx context.Context) {
		cluster.Admin.Creates(ctx, wrappers.MakeConfiguration("empty").Obj())
		DeferCleanup(func(ctx context.Context) {
			cluster.Admin.Deletes(ctx, wrappers.MakeConfiguration("empty").Obj())
		})
		cluster.ExpectActive(ctx, "empty")
		var empty v1alpha1.NamespaceInitializerConfiguration
		Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: "empty"}, &empty)).To(Succeed())
		Expect(meta.FindStatusCondition(empty.Status.Conditions, v1alpha1.ConditionActive).Reason).To(Equal(v1alpha1.ReasonEmpty))
		Expect(framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("empty")).Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
	})

	It("accepts an initializer name of the maximum length", func(ctx context.Context) {
		part := strings.Repeat("x", 63)
		longest := strings.Join([]string{part, part, part, strings.Repeat("y", 61)}, ".")
		Expect(longest).To(HaveLen(253))
		cluster.Register(ctx, "longest", longest)
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("longest"))
		Expect(framework.PendingOf(namespace)).To(Equal(longest))
		cluster.Finish(ctx, namespace.Name)
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(BeInitializing("False", v1alpha1.ReasonInitialized))
	})

	// API servers encode the set to JSON for each evaluation of a policy.
	It("writes the NamespaceInitializerSet and its status without managedFields", func(ctx context.Context) {
		before := cluster.EffectiveSet(Default, ctx).Generation
		cluster.Register(ctx, "small", "small.example.com")
		set := cluster.EffectiveSet(Default, ctx)
		Expect(set.Generation).To(BeNumerically(">", before))
		Expect(set.Status.ObservedGeneration).To(Equal(set.Generation))
		Expect(set.ManagedFields).To(BeEmpty())
	})
})
