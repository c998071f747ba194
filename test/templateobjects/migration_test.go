// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var yamlBlocks = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// The objects are those that the other controllers leave in existing namespaces.
var _ = DescribeTable("The template of a migration page adopts existing objects, keeps them, and creates them in new namespaces",
	func(ctx context.Context, page, key, value string, existing client.Object) {
		applySample(ctx, "baseline")
		template := templateIn(page)
		labeled := func(name string) *corev1.Namespace {
			namespace := wrappers.MakeNamespace(name)
			if key != "" {
				namespace.Label(key, value)
			}
			return namespace.Obj()
		}
		old := labeled(framework.Unique("existing"))
		createOpen(ctx, old)
		existing.SetNamespace(old.Name)
		existing.SetLabels(map[string]string{"example.com/managed-by": "other-controller"})
		Expect(cluster.Admin.Create(ctx, existing)).To(Succeed())

		Expect(cluster.Admin.Create(ctx, template)).To(Succeed())
		waitUntilSelected(ctx, template.Name, labeled("probe"))
		Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), template)).To(Succeed())
		added := labeled(framework.Unique("ns"))
		createOpen(ctx, added)
		uid := existing.GetUID()
		for _, namespace := range []*corev1.Namespace{old, added} {
			Eventually(func(g Gomega) {
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: existing.GetName()}, existing)).
					To(Succeed())
				g.Expect(existing.GetLabels()).To(HaveKeyWithValue(v1alpha1.LabelTemplate, template.Name))
			}).WithContext(ctx).Should(Succeed())
			if namespace == old {
				Expect(existing.GetUID()).To(Equal(uid))
			}
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionConflicted, metav1.ConditionFalse)
		waitUntilUnselected(ctx, template.Name)
		for _, namespace := range []*corev1.Namespace{old, added} {
			get(ctx, namespace, existing.GetName(), existing)
		}
	},
	Entry("kyverno-generate", "kyverno-generate", "", "", &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "default-deny"},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
	}, SpecTimeout(5*time.Minute)),
	Entry("capsule", "capsule", "capsule.clastix.io/tenant", "solar",
		quotaOf("capsule-solar-0", "requests.cpu", "8", "pods", "10"), SpecTimeout(5*time.Minute)),
	Entry("hnc", "hnc", "corp.example.com/team", "team-a", &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "team-admins"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "team-a"}},
	}, SpecTimeout(5*time.Minute)),
	Entry("namespace-configuration-operator", "namespace-configuration-operator", "size", "small",
		quotaOf("small-size", "requests.cpu", "4", "requests.memory", "2Gi"), SpecTimeout(5*time.Minute)),
)

// templateIn returns the template in a page, without access control, which the samples test.
func templateIn(page string) *v1alpha1.NamespaceTemplate {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(controlplane.Root(), "docs", "migrate", page+".md"))
	Expect(err).NotTo(HaveOccurred())
	template := &v1alpha1.NamespaceTemplate{}
	for _, block := range yamlBlocks.FindAllStringSubmatch(string(content), -1) {
		if strings.Contains(block[1], "kind: NamespaceTemplate\n") {
			Expect(template.Name).To(BeEmpty(), "the page contains several templates")
			Expect(yaml.UnmarshalStrict([]byte(block[1]), template)).To(Succeed())
		}
	}
	Expect(template.Name).NotTo(BeEmpty())
	template.Spec.Access = v1alpha1.AccessOpen
	return template
}

// quotaOf returns a ResourceQuota with resources and their quantities.
func quotaOf(name string, hard ...string) *corev1.ResourceQuota {
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}}
	quota.Spec.Hard = corev1.ResourceList{}
	for i := 0; i < len(hard); i += 2 {
		quota.Spec.Hard[corev1.ResourceName(hard[i])] = resource.MustParse(hard[i+1])
	}
	return quota
}
