// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

var _ = Describe("template permissions", func() {
	It("prints what a template requires, and reports what is missing", func(ctx context.Context) {
		user := newUser(plane.Admin.Config)
		admin.Creates(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SourceNamespace, Name: "source"},
		})
		template := newTemplate(unique("permissions"))
		template.Spec.ServiceAccountName = template.Name
		template.Spec.Objects = append(template.Spec.Objects, v1alpha1.TemplateObject{
			Name: "copied", SourceRef: &v1alpha1.TemplateSourceReference{Kind: "Secret", Name: "source"},
		})
		file := writeTemplate(user, template)

		By("checking a template without permissions")
		missing := user.run(ctx, "template", "permissions", "-f", file, "--check")
		Expect(missing.code).To(Equal(3), missing.stderr)
		Expect(missing.stdout).To(And(
			ContainSubstring("ServiceAccount %s does not exist.\n", template.Name),
			ContainSubstring("  impersonate serviceaccounts %q in namespace %q\n", template.Name, controlplane.SystemNamespace),
			ContainSubstring("  provision namespaces\n"), ContainSubstring("  patch configmaps \"settings\"\n"),
			ContainSubstring("  patch secrets \"source\"\n"),
			ContainSubstring("kubectl nslifecycle template permissions -f "+file),
		))

		By("applying the output")
		printed := user.run(ctx, "template", "permissions", "-f", file)
		Expect(printed.code).To(BeZero())
		Expect(printed.stderr).To(BeEmpty())
		grants := filepath.Join(user.home, "grants.yaml")
		Expect(os.WriteFile(grants, []byte(printed.stdout), 0o600)).To(Succeed())
		Expect(user.kubectl(ctx, nil, "apply", "-f", grants).code).To(BeZero())
		DeferCleanup(func(ctx context.Context) {
			Expect(user.kubectl(ctx, nil, "delete", "-f", grants).code).To(BeZero())
		})
		plane.CreateTemplate(ctx, template.DeepCopy())
		Eventually(func(g Gomega) {
			current := &v1alpha1.NamespaceTemplate{}
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
			g.Expect(meta.IsStatusConditionTrue(current.Status.Conditions, v1alpha1.ConditionAuthorized)).To(BeTrue(),
				"%+v", current.Status.Conditions)
		}).WithContext(ctx).Should(Succeed())
		name := unique("permitted")
		created := user.run(ctx, "create", name, "--wait", "--template="+template.Name)
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		Expect(created.code).To(BeZero(), created.stderr)
		Expect(admin.Get(ctx, client.ObjectKey{Namespace: name, Name: "source"}, &corev1.Secret{})).To(Succeed())
		complete := user.run(ctx, "template", "permissions", template.Name, "--check")
		Expect(complete.code).To(BeZero(), complete.stdout)
		Expect(complete.stdout).To(Equal("Template " + template.Name + ": authorized\n"))

		By("printing the same for the template in the cluster")
		Expect(user.run(ctx, "template", "permissions", template.Name).stdout).To(Equal(printed.stdout))

		By("removing a verb")
		role := &rbacv1.ClusterRole{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: "nslifecycle:template:" + template.Name}, role)).To(Succeed())
		for i := range role.Rules {
			if slices.Contains(role.Rules[i].Resources, "configmaps") {
				role.Rules[i].Verbs = []string{"create", "patch"}
			}
		}
		admin.Updates(ctx, role)
		DeferCleanup(func(ctx context.Context) { // For the cleanup of grants.
			Expect(user.kubectl(ctx, nil, "apply", "-f", grants).code).To(BeZero())
		})
		want := strings.Join([]string{
			"ServiceAccount " + template.Name + " lacks:", `  delete configmaps "settings"`, `  delete configmaps "notes"`,
			"To print",
		}, "\n")
		Eventually(func(g Gomega) {
			for _, arguments := range [][]string{{template.Name}, {"-f", file}} {
				partial := user.run(ctx, append([]string{"template", "permissions", "--check"}, arguments...)...)
				g.Expect(partial.code).To(Equal(3))
				g.Expect(partial.stdout).To(And(ContainSubstring("not authorized\n"+want), Not(ContainSubstring("The operator lacks"))))
			}
		}).WithContext(ctx).Should(Succeed())

		By("checking without permission to create reviews")
		reader := newRestrictedUser(ctx, plane, unique("reader"), rbacv1.PolicyRule{
			APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"},
		})
		unknown := reader.run(ctx, "template", "permissions", template.Name, "--check")
		Expect(unknown.code).To(Equal(1))
		Expect(unknown.stdout).To(And(ContainSubstring(": unknown\n"), ContainSubstring("failed to review access")))
	}, NodeTimeout(testTimeout))

	It("is unknown to users who cannot impersonate the ServiceAccount whether it holds what it grants", func(ctx context.Context) {
		user := newUser(plane.Admin.Config)
		template := newTemplate(unique("bound"))
		template.Spec.ServiceAccountName = template.Name
		template.Spec.Objects[0].Template.Raw = []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding",
			"metadata":{"name":"viewers"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}}`)
		file := writeTemplate(user, template)
		printed := user.run(ctx, "template", "permissions", "-f", file).stdout
		Expect(printed).To(ContainSubstring("  - bind\n"))
		grants := filepath.Join(user.home, "grants.yaml")
		Expect(os.WriteFile(grants, []byte(strings.ReplaceAll(printed, "  - bind\n", "  - get\n")), 0o600)).To(Succeed())
		Expect(user.kubectl(ctx, nil, "apply", "-f", grants).code).To(BeZero())
		DeferCleanup(func(ctx context.Context) {
			Expect(user.kubectl(ctx, nil, "delete", "-f", grants).code).To(BeZero())
		})
		reader := newRestrictedUser(ctx, plane, unique("reader"),
			rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
			rbacv1.PolicyRule{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}})
		Eventually(func(g Gomega) {
			unknown := reader.run(ctx, "template", "permissions", "-f", file, "--check")
			g.Expect(unknown.code).To(Equal(1), unknown.stdout)
			g.Expect(strings.Join(strings.Fields(unknown.stdout), " ")).To(And(
				ContainSubstring(`: unknown Unknown: bind clusterroles.rbac.authorization.k8s.io "view": `),
				ContainSubstring("cannot impersonate")))
		}).WithContext(ctx).Should(Succeed())
		lacking := user.run(ctx, "template", "permissions", "-f", file, "--check")
		Expect(lacking.code).To(Equal(3), lacking.stdout)
		Expect(lacking.stdout).To(ContainSubstring("lacks:\n  bind clusterroles.rbac.authorization.k8s.io \"view\"\n"))
	}, NodeTimeout(testTimeout))

	It("asks the API server about kinds that the plugin does not know", func(ctx context.Context) {
		user := newUser(plane.Admin.Config)
		template := newTemplate(unique("kinds"))
		object := &template.Spec.Objects[0]
		object.Template = &runtime.RawExtension{Raw: []byte(
			`{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaimTemplate","metadata":{"name":"gpu"}}`)}
		printed := user.run(ctx, "template", "permissions", "-f", writeTemplate(user, template))
		Expect(printed.code).To(BeZero(), printed.stderr)
		Expect(printed.stdout).To(ContainSubstring("resourceclaimtemplates"))

		object.Template.Raw = []byte(`{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"high"},"value":1}`)
		refused := user.run(ctx, "template", "permissions", "-f", writeTemplate(user, template))
		Expect(refused.code).To(Equal(1))
		Expect(refused.stdout).To(BeEmpty())
		Expect(refused.stderr).To(ContainSubstring("cluster-scoped"))

		By("comparing the kinds that it knows with those of the API server")
		discoverer, err := discovery.NewDiscoveryClientForConfig(plane.Admin.Config)
		Expect(err).NotTo(HaveOccurred())
		_, lists, err := discoverer.ServerGroupsAndResources()
		Expect(err).NotTo(HaveOccurred())
		known := 0
		for _, list := range lists {
			version, err := schema.ParseGroupVersion(list.GroupVersion)
			Expect(err).NotTo(HaveOccurred())
			for _, served := range list.APIResources {
				resource, ok := templates.BuiltInResource(version.WithKind(served.Kind))
				if !ok || strings.Contains(served.Name, "/") {
					continue
				}
				known++
				Expect(resource).To(Equal(version.WithResource(served.Name)))
				Expect(served.Namespaced).To(BeTrue(), served.Name)
			}
		}
		Expect(known).To(BeNumerically(">", 20))
	}, NodeTimeout(testTimeout))
})
