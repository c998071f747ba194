// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/initializers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("The policies in config/samples/fence", func() {
	It("restrict an initializer to initializing namespaces", func(ctx context.Context) {
		// The ServiceAccount is not deleted, because other specs use it.
		config := installInitializer(ctx, initializers.OwnerManifest, initializers.OwnerAccount)
		fence := filepath.Join(controlplane.Root(), "config", "samples", "fence")
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-k", fence)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", "-k", fence)
			Expect(err).NotTo(HaveOccurred())
		})
		fenced := framework.NewUser(config)
		initialized := wrappers.MakeNamespace("default").Obj()
		cluster.Register(ctx, "fence", "a.test.example.com")
		initializing := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("fenced"))

		patch := func(ctx context.Context, name, metadata string) error {
			return fenced.Patch(ctx, wrappers.MakeNamespace(name).Obj(),
				client.RawPatch(types.MergePatchType, []byte(`{"metadata": `+metadata+`}`)), client.DryRunAll)
		}
		bind := func(ctx context.Context, namespace string) error {
			binding := &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"}}
			binding.Namespace, binding.Name = namespace, "fenced"
			return fenced.Create(ctx, binding, client.DryRunAll)
		}
		const label = `{"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}`
		By("rejecting requests for other namespaces, although the initializer's ClusterRole allows them")
		Eventually(patch).WithContext(ctx).WithArguments(initialized.Name, label).
			Should(MatchError(ContainSubstring("can change only Namespaces")))
		Expect(patch(ctx, initialized.Name, `{"annotations": {"a": "b"}}`)).To(MatchError(ContainSubstring("can change only Namespaces")))
		Expect(bind(ctx, initialized.Name)).To(MatchError(ContainSubstring("can write only")))

		By("allowing the initializer to initialize a namespace")
		Expect(bind(ctx, initializing.Name)).To(Succeed())
		Expect(patch(ctx, initializing.Name, `{"annotations": {"a": "b"}}`)).To(Succeed())
		Expect(patch(ctx, initializing.Name, `{"annotations": {"nslifecycle.dev/pending-initializers": null}}`)).To(Succeed())

		By("rejecting changes to other labels of an initializing namespace")
		Expect(patch(ctx, initializing.Name, label)).To(MatchError(ContainSubstring("their other labels")))

		By("not affecting other users")
		Expect(cluster.Admin.Patch(ctx, initialized, client.RawPatch(types.MergePatchType, []byte(`{"metadata": `+label+`}`)), client.DryRunAll)).
			To(Succeed())
	}, SpecTimeout(5*time.Minute))
})
