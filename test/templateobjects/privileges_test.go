// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// An attacker can write a template, or its status, but may not do what the operator does for the template.
var _ = Describe("The permissions with which the operator applies a template", func() {
	newAccount := func(ctx context.Context, rules ...rbacv1.PolicyRule) string {
		GinkgoHelper()
		name := createLimitedAccount(ctx, rules...)
		cluster.AllowImpersonation(ctx, name)
		return name
	}

	It("are those of the revision, not those of a later author", func(ctx context.Context) {
		weak := newAccount(ctx, ruleFor("", "configmaps", "create", "patch"))
		strong := newAccount(ctx, ruleFor("", "configmaps", "create", "patch"), ruleFor("", "secrets", "create", "patch"))
		By("an attacker whose ServiceAccount may not create Secrets, and who hides the attempt in an earlier revision")
		template := newTemplate(framework.Unique("revision"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				forged := objectNamed("secret", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"forged"}}`)
				forged.IncludeWhen = "'forge' in ns.labels"
				spec.Objects, spec.ServiceAccountName = append(spec.Objects, forged), weak
			})
		create(ctx, template)
		createOpen(ctx, selectedBy(template.Name))
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "b"))(spec)
			spec.Rollout.Paused = true
		})
		current := &v1alpha1.NamespaceTemplate{}
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
			g.Expect(current.Status.CurrentRevision).NotTo(Or(BeEmpty(), Equal(current.Status.Revision)))
		}).WithContext(ctx).Should(Succeed())
		By("another author who changes only the ServiceAccount")
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = strong })
		expectAccount := func() {
			GinkgoHelper()
			namespace := wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", template.Name).Label("forge", "").Obj()
			Expect(creator.Create(ctx, namespace)).To(Succeed())
			expectWaiting(ctx, namespace, "Forbidden", "secrets", weak)
			Expect(client.IgnoreNotFound(cluster.Admin.Get(ctx,
				client.ObjectKey{Namespace: namespace.Name, Name: "forged"}, &corev1.Secret{}))).To(Succeed())
		}
		expectAccount()
		By("restarting the operator")
		DeferCleanup(restoreManager)
		restartManager(ctx, nil)
		expectAccount()
		By("completing the rollout")
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Rollout.Paused = false })
		expectReached(ctx, template.Name)
		createOpen(ctx, selectedBy(template.Name))
	})

	It("cannot be used for a revision of another template with a forged status", func(ctx context.Context) {
		name := framework.Unique("status")
		template := newTemplate(name, only("config", configMap("config", "own")))
		create(ctx, template)
		createOpen(ctx, selectedBy(name))
		other := newTemplate(name+"-x", only("config", configMap("config", "foreign")))
		create(ctx, other)
		createOpen(ctx, selectedBy(other.Name))
		Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
		change(ctx, name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "new"))(spec)
			spec.Rollout.Paused = true
		})
		// The ControllerRevision "NAME-x-REVISION" exists. Before the change, the operator would correct the status.
		forged := "x-" + other.Status.Revision
		Expect(cluster.Admin.Status().Patch(ctx, template, client.RawPatch(types.MergePatchType,
			[]byte(`{"status":{"currentRevision":"`+forged+`"}}`)))).To(Succeed())
		// A write to the status does not cause a reconciliation.
		DeferCleanup(restoreManager)
		restartManager(ctx, nil)
		expectCondition(ctx, name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, forged)
		namespace := selectedBy(name)
		Expect(creator.Create(ctx, namespace)).To(Succeed())
		expectWaiting(ctx, namespace, "RevisionNotFound", forged)
		Expect(client.IgnoreNotFound(cluster.Admin.Get(ctx,
			client.ObjectKey{Namespace: namespace.Name, Name: "config"}, &corev1.ConfigMap{}))).To(Succeed())
	})

	It("cannot be used for a revision of a deleted template with the same name", func(ctx context.Context) {
		name := framework.Unique("recreated")
		template := newTemplate(name, only("config", configMap("config", "a")))
		create(ctx, template)
		createOpen(ctx, selectedBy(name))
		first := template.UID
		deleteTemplate(ctx, name, nil)
		create(ctx, newTemplate(name, only("config", configMap("config", "a"))))
		Eventually(func(g Gomega) {
			var revisions appsv1.ControllerRevisionList
			g.Expect(cluster.Admin.List(ctx, &revisions, client.InNamespace(controlplane.SystemNamespace),
				client.MatchingLabels{v1alpha1.LabelTemplate: name})).To(Succeed())
			g.Expect(revisions.Items).To(HaveLen(1))
			g.Expect(metav1.GetControllerOf(&revisions.Items[0]).UID).NotTo(Equal(first))
		}).WithContext(ctx).Should(Succeed())
		createOpen(ctx, selectedBy(name))
	})

	// This takes more than 10 s: the operator uses for this time what it has read.
	It("are required for each copy of a source", func(ctx context.Context) {
		source := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: framework.Unique("revoked")},
			Data:       map[string][]byte{"token": []byte("a")},
		}
		Expect(cluster.Admin.Create(ctx, source)).To(Succeed())
		name := newAccount(ctx, ruleFor("", "secrets", "create", "patch"))
		read := ruleFor("", "secrets", "get")
		meta := metav1.ObjectMeta{Namespace: source.Namespace, Name: name}
		binding := &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{
				Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: name,
			}},
		}
		Expect(cluster.Admin.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{read}})).To(Succeed())
		Expect(cluster.Admin.Create(ctx, binding)).To(Succeed())
		template := newTemplate(framework.Unique("revoked"), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.ServiceAccountName = name
			spec.Objects = []v1alpha1.TemplateObject{{Name: "secret", Copy: &v1alpha1.TemplateCopy{
				APIVersion: "v1", Kind: "Secret", Namespace: source.Namespace, Name: source.Name,
			}}}
		})
		create(ctx, template)
		open := selectedBy(template.Name)
		createOpen(ctx, open)
		Expect(cluster.Admin.Delete(ctx, binding)).To(Succeed())
		var namespace *corev1.Namespace
		Eventually(func(g Gomega) {
			namespace = selectedBy(template.Name)
			g.Expect(creator.Create(ctx, namespace)).To(Succeed())
			var reason string
			g.Eventually(func(g Gomega) {
				current := cluster.GetNamespace(g, ctx, namespace.Name)
				condition := nscondition.Find(current, v1alpha1.TemplatesInitializer+v1alpha1.ConditionInitializedSuffix)
				g.Expect(condition).NotTo(BeNil())
				reason = condition.Reason
				g.Expect(reason).To(BeElementOf(v1alpha1.ReasonCompleted, "Forbidden"))
			}).WithContext(ctx).Should(Succeed())
			g.Expect(reason).To(Equal("Forbidden"))
		}).WithContext(ctx).WithPolling(time.Second).Should(Succeed())
		expectWaiting(ctx, namespace, "Forbidden", "failed to read the source of the copy")
		Expect(client.IgnoreNotFound(cluster.Admin.Get(ctx,
			client.ObjectKey{Namespace: namespace.Name, Name: source.Name}, &corev1.Secret{}))).To(Succeed())
		Expect(get(ctx, open, source.Name, &corev1.Secret{}).Data).To(Equal(source.Data), "the earlier copy remains")
	})
})
