// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("An initializer in the user stories of the KEP", func() {
	// The creator can only create and read namespaces. An initializer must grant all permissions in
	// the namespace.
	const creator = "user1@corp.example.com"

	It("creates policies before the creator gains permissions in the namespace", func(ctx context.Context) {
		policy := installInitializer(ctx, initializers.PolicyManifest, initializers.PolicyAccount)
		owner := installInitializer(ctx, initializers.OwnerManifest, initializers.OwnerAccount)
		confined := func(account string) v1alpha1.InitializerSettings {
			return v1alpha1.InitializerSettings{
				Confinement: v1alpha1.ConfinementInitializingNamespaces,
				Subjects:    []v1alpha1.Subject{{Kind: v1alpha1.SubjectServiceAccount, Namespace: account, Name: account}},
			}
		}
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("policies").
			Initializer("quota.policy.example.com", confined(initializers.PolicyAccount)).
			Initializer("owner.policy.example.com", confined(initializers.OwnerAccount)))
		Eventually(func() error {
			return framework.NewUser(owner).Patch(ctx, wrappers.MakeNamespace(preExistingName).Obj(), framework.MergePatch(`{"metadata":{"labels":{"a":"b"}}}`), client.DryRunAll)
		}).WithContext(ctx).Should(BeForbiddenBy(internalv1alpha1.PolicyConfinedInitializers))
		serve(ctx, policy, "quota.policy.example.com", initializers.Policy)
		serve(ctx, owner, "owner.policy.example.com", initializers.Owner)

		for _, creator := range []string{creator, "system:serviceaccount:ci:pipeline"} {
			config := newCreator(ctx, creator)
			name := framework.Unique("population")
			_, err := cluster.Kubectl(ctx, config, "create", "namespace", name)
			Expect(err).NotTo(HaveOccurred())
			_, err = cluster.Kubectl(ctx, config, "wait", "--for=condition=Ready", "namespace/"+name, "--timeout=2m")
			Expect(err).NotTo(HaveOccurred())

			var quotas corev1.ResourceQuotaList
			Expect(cluster.Admin.List(ctx, &quotas, client.InNamespace(name))).To(Succeed())
			Expect(quotas.Items).To(HaveLen(1))
			var networkPolicies networkingv1.NetworkPolicyList
			Expect(cluster.Admin.List(ctx, &networkPolicies, client.InNamespace(name))).To(Succeed())
			Expect(networkPolicies.Items).To(HaveLen(1))

			user := framework.NewUser(config)
			Eventually(user.Create).WithContext(ctx).WithArguments(wrappers.MakeConfigMap(name, "mine")).Should(Succeed())
			Expect(user.Create(ctx, wrappers.MakeConfigMap(preExistingName, "not-mine"))).To(Satisfy(apierrors.IsForbidden))
		}
	})
})

// installInitializer installs the ServiceAccount of an initializer with its permissions and returns
// the client configuration of the ServiceAccount.
func installInitializer(ctx context.Context, manifest, account string) *rest.Config {
	GinkgoHelper()
	_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, manifest, "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, manifest, "delete", "--wait=false", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
	})
	config, err := cluster.ServiceAccountConfig(ctx, account, account)
	Expect(err).NotTo(HaveOccurred())
	return config
}
