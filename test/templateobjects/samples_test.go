// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const teamLabel, team = "corp.example.com/kind", "team"

var _ = Describe("The samples in config/samples/templates", func() {
	It("create a quota, limits, a locked NetworkPolicy and a RoleBinding for the creator", func(ctx context.Context) {
		applySample(ctx, "baseline")
		waitUntilSelected(ctx, "baseline", wrappers.MakeNamespace("probe").Label(teamLabel, team).Obj())
		namespace := wrappers.MakeNamespace(framework.Unique("ns")).Label(teamLabel, team).Obj()
		createOpen(ctx, namespace)
		get(ctx, namespace, "baseline", &corev1.ResourceQuota{})
		get(ctx, namespace, "baseline", &corev1.LimitRange{})
		Eventually(creator.Create).WithContext(ctx).WithArguments(wrappers.MakeConfigMap(namespace.Name, "settings")).
			Should(Succeed())
		policy := get(ctx, namespace, "deny-ingress", &networkingv1.NetworkPolicy{})
		Expect(creator.Delete(ctx, policy)).To(MatchError(ContainSubstring("is locked")))
	}, SpecTimeout(5*time.Minute))

	It("copy a pull secret to new and existing namespaces, and make the default ServiceAccount use it", func(ctx context.Context) {
		const secret = "regcred"
		source := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "registry", Name: secret},
			Type:       corev1.SecretTypeDockerConfigJson,
			Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
		}
		Expect(cluster.Admin.Create(ctx, wrappers.MakeNamespace(source.Namespace).Obj())).To(Succeed())
		Expect(cluster.Admin.Create(ctx, source)).To(Succeed())
		existing := wrappers.MakeNamespace(framework.Unique("existing")).Obj()
		createOpen(ctx, existing)
		Expect(cluster.Admin.Create(ctx, &corev1.ServiceAccount{
			ObjectMeta:       metav1.ObjectMeta{Namespace: existing.Name, Name: "default"},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "other"}},
		})).To(Succeed())

		applySample(ctx, "pull-secret")
		waitUntilSelected(ctx, "pull-secret", wrappers.MakeNamespace("probe").Obj())
		namespace := wrappers.MakeNamespace(framework.Unique("ns")).Obj()
		createOpen(ctx, namespace)
		source.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths":{"registry.example.com":{}}}`)
		Expect(cluster.Admin.Update(ctx, source)).To(Succeed())
		for _, name := range []string{namespace.Name, existing.Name} {
			Eventually(func(g Gomega) {
				var account corev1.ServiceAccount
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &account)).To(Succeed())
				g.Expect(account.ImagePullSecrets).To(ConsistOf(corev1.LocalObjectReference{Name: secret}))
				var copied corev1.Secret
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: name, Name: secret}, &copied)).To(Succeed())
				g.Expect(copied.Data).To(Equal(source.Data))
			}).WithContext(ctx).Should(Succeed())
		}
		err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: source.Namespace, Name: "default"}, &corev1.ServiceAccount{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(5*time.Minute))

	It("let users with the verb use choose one of several sizes", func(ctx context.Context) {
		const parameter = v1alpha1.PrefixParameter + "size"
		applySample(ctx, "sizes")
		sized := func(size string) *corev1.Namespace {
			namespace := wrappers.MakeNamespace(framework.Unique("ns")).Label(v1alpha1.LabelTemplate, "sized")
			if size != "" {
				namespace.Annotations[parameter] = size
			}
			return namespace.Obj()
		}
		waitUntilSelected(ctx, "sized", sized(""))
		Eventually(func() error { return creator.Create(ctx, sized(""), client.DryRunAll) }).WithContext(ctx).
			Should(MatchError(ContainSubstring(`not allowed to use template "sized"`)))
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("use")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "use-template-sized"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: alice}},
		}
		Expect(cluster.Admin.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, binding)).To(Succeed()) })
		Eventually(func() error { return creator.Create(ctx, sized(""), client.DryRunAll) }).WithContext(ctx).Should(Succeed())
		Expect(creator.Create(ctx, sized("huge"), client.DryRunAll)).
			To(MatchError(ContainSubstring(`"small", "medium", "large"`)))

		small, large := sized(""), sized("large")
		createOpen(ctx, small)
		createOpen(ctx, large)
		for namespace, cpu := range map[*corev1.Namespace]string{small: "2", large: "32"} {
			quota := get(ctx, namespace, "size", &corev1.ResourceQuota{})
			Expect(quota.Spec.Hard.Name(corev1.ResourceRequestsCPU, "").String()).To(Equal(cpu))
		}
		get(ctx, large, "storage", &corev1.ResourceQuota{})
		err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: small.Name, Name: "storage"}, &corev1.ResourceQuota{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(5*time.Minute))
})

// applySample applies a file in config/samples/templates until the spec ends.
func applySample(ctx context.Context, name string) {
	GinkgoHelper()
	applyFile(ctx, filepath.Join(controlplane.Root(), "config", "samples", "templates", name+".yaml"))
}

func applyFile(ctx context.Context, file string) {
	GinkgoHelper()
	_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-f", file)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", "-f", file, "--ignore-not-found")
		Expect(err).NotTo(HaveOccurred())
	})
}

// waitUntilSelected waits until a template is authorized and the API server selects namespaces such as the
// probe with it.
func waitUntilSelected(ctx context.Context, template string, probe *corev1.Namespace) {
	GinkgoHelper()
	expectCondition(ctx, template, v1alpha1.ConditionValid, metav1.ConditionTrue)
	expectCondition(ctx, template, v1alpha1.ConditionAuthorized, metav1.ConditionTrue)
	Eventually(func(g Gomega) {
		created := probe.DeepCopy()
		g.Expect(cluster.Admin.Create(ctx, created, client.DryRunAll)).To(Succeed())
		g.Expect(framework.PendingOf(created)).To(ContainSubstring(v1alpha1.TemplatesInitializer))
	}).WithContext(ctx).Should(Succeed())
	DeferCleanup(waitUntilUnselected, template)
}

// waitUntilUnselected waits until a deleted template no longer affects other specs.
func waitUntilUnselected(ctx context.Context, template string) {
	GinkgoHelper()
	err := cluster.Admin.Delete(ctx, &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: template}})
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	Eventually(func(g Gomega) {
		for _, entry := range cluster.EffectiveSet(g, ctx).Templates {
			g.Expect(entry.Name).NotTo(Equal(template))
		}
	}).WithContext(ctx).Should(Succeed())
}
