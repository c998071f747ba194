// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	. "github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// sizeLabel is the label with which developers choose a template.
const sizeLabel = "example.com/size"

var _ = Describe("The sample for self-service", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		directory := filepath.Join(controlplane.Root(), "config", "samples", "self-service")
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-k", directory)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", "-k", directory)
			Expect(err).NotTo(HaveOccurred())
		})
		for _, name := range []string{"self-service", "small", "medium", "large"} {
			expectCondition(ctx, name, v1alpha1.ConditionValid, metav1.ConditionTrue)
			expectCondition(ctx, name, v1alpha1.ConditionAuthorized, metav1.ConditionTrue)
		}
		Eventually(func(g Gomega) {
			probe := sized(framework.Unique("probe"), "small")
			g.Expect(cluster.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			g.Expect(framework.PendingOf(probe)).To(Equal(v1alpha1.TemplatesInitializer))
		}).WithContext(ctx).Should(Succeed())
		probe := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("probe"))
		Eventually(func() error {
			return developer("probe").Delete(ctx, probe.DeepCopy(), client.DryRunAll)
		}).WithContext(ctx).Should(beDenied("namespace-owners", "its creator is not recorded"))
	})

	Describe("lets a developer", developers)
	It("is described in docs/self-service.md, whose commands succeed", func(ctx context.Context) {
		page, err := os.ReadFile(filepath.Join(controlplane.Root(), "docs", "self-service.md"))
		Expect(err).NotTo(HaveOccurred())
		kubeconfig, home := framework.KubeconfigFile(cluster.Admin.Config), GinkgoT().TempDir()
		Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.PluginProgram,
			filepath.Join(home, "kubectl-nslifecycle"))).To(Succeed())
		blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1)
		Expect(blocks).To(HaveLen(3))
		for _, block := range blocks {
			for line := range strings.Lines(block[1]) { // Most commands cannot be repeated after they have succeeded.
				// The gate of the API server can observe the completion later than the commands.
				Eventually(func(g Gomega) {
					command := exec.CommandContext(ctx, "bash", "-ec", line)
					command.Dir = controlplane.Root()
					command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+home, "XDG_CONFIG_HOME=",
						"PATH="+home+string(os.PathListSeparator)+filepath.Dir(cluster.KubectlPath())+
							string(os.PathListSeparator)+os.Getenv("PATH"))
					output, err := command.CombinedOutput()
					g.Expect(err).NotTo(HaveOccurred(), "%s", output)
				}).WithContext(ctx).Should(Succeed())
			}
		}
	})
})

// developer returns a user whose only group is that of the sample.
func developer(name string) *framework.User {
	GinkgoHelper()
	config, err := cluster.User(name, "developers")
	Expect(err).NotTo(HaveOccurred())
	return framework.NewUser(config)
}

// sized returns a Namespace with the size that selects a template.
func sized(name, size string) *corev1.Namespace {
	return wrappers.MakeNamespace(name).Label(sizeLabel, size).Obj()
}

// beDenied matches the error of a policy that was applied without config/default, so its name has no
// prefix.
func beDenied(policy string, texts ...string) OmegaMatcher {
	all := []OmegaMatcher{
		Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("ValidatingAdmissionPolicy '" + policy + "'")),
	}
	for _, text := range texts {
		all = append(all, MatchError(ContainSubstring(text)))
	}
	return And(all...)
}

func developers() {
	It("choose a template and a parameter, and administer the namespace as soon as it is initialized", func(ctx context.Context) {
		alice := developer(framework.Unique("alice"))
		namespace := sized(framework.Unique("shop"), "small")
		namespace.Annotations = map[string]string{v1alpha1.PrefixParameter + "memory": "2Gi"}
		createInitializedAs(ctx, alice, namespace)
		// The first requests. The gate of the API server can observe the completion later than its clients.
		Eventually(func(g Gomega) {
			err := alice.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "first"))
			Expect(err).To(Or(Succeed(), BeForbiddenBy(internalv1alpha1.PolicyGate)))
			g.Expect(err).NotTo(HaveOccurred())
		}).WithContext(ctx).Should(Succeed())
		quota := &corev1.ResourceQuota{}
		Expect(alice.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "size"}, quota)).To(Succeed())
		Expect(quota.Status.Hard).To(HaveKeyWithValue(corev1.ResourceName("requests.memory"), resource.MustParse("2Gi")))
		teammate := &rbacv1.RoleBinding{
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "carol"}},
		}
		teammate.Namespace, teammate.Name = namespace.Name, "teammate"
		alice.Creates(ctx, teammate)

		By("changing neither the quota nor the binding, although administrators can")
		binding := &rbacv1.RoleBinding{}
		Expect(alice.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "creator"}, binding)).To(Succeed())
		Expect(alice.Delete(ctx, binding)).To(BeForbiddenBy(internalv1alpha1.PolicyTemplateObjects))
		Expect(alice.Delete(ctx, quota)).To(Satisfy(apierrors.IsForbidden))
	})

	It("not choose other templates, invalid parameters, and namespaces without a template", func(ctx context.Context) {
		name := framework.Unique("bob")
		bob := developer(name)
		Expect(bob.Create(ctx, sized("shop", "large"))).To(BeForbiddenBy(internalv1alpha1.PolicyTemplates,
			`user "`+name+`" is not allowed to use template "large"`))
		namespace := sized("shop", "small")
		namespace.Annotations = map[string]string{v1alpha1.PrefixParameter + "memory": "64Gi"}
		Expect(bob.Create(ctx, namespace)).To(MatchError(And(ContainSubstring("memory"), ContainSubstring(`be one of "1Gi", "2Gi"`))))
		Eventually(func() error { return bob.Create(ctx, wrappers.MakeNamespace("shop").Obj(), client.DryRunAll) }).
			WithContext(ctx).Should(beDenied("self-service-size", sizeLabel))
		Expect(bob.Create(ctx, wrappers.MakeNamespace("shop").Label(v1alpha1.LabelTemplate, "small").Obj())).
			To(beDenied("self-service-size", sizeLabel))
	})

	It("have three namespaces, of all sizes together, and read why another one is deleted", func(ctx context.Context) {
		name := framework.Unique("carol")
		carol := developer(name)
		for _, size := range []string{"small", "medium", "medium"} {
			createInitializedAs(ctx, carol, sized(framework.Unique("shop"), size))
		}
		fourth := sized(framework.Unique("shop"), "small")
		fourth.Finalizers = []string{"test.example.com/hold"} // The spec reads the condition.
		carol.Creates(ctx, fourth)
		Eventually(func(g Gomega) *corev1.Namespace {
			g.Expect(carol.Get(ctx, client.ObjectKeyFromObject(fourth), fourth)).To(Succeed())
			return fourth
		}).WithContext(ctx).Should(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse,
			v1alpha1.ReasonFailed, `user "`+name+`" has 3 namespaces with template "self-service", which permits 3`))

		cluster.Admin.Patches(ctx, fourth, `{"metadata":{"finalizers":null}}`)
		framework.ExpectDeleted(ctx, cluster.Admin, fourth)
	})
}
