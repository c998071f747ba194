// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

var _ = Describe("A failure of a template", func() {
	const binding = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"creator"},` +
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"edit-configmaps"},` +
		`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"alice"}]}`
	// addLimitedAccount creates a ServiceAccount that may write objects, but not grant permissions.
	addLimitedAccount := func(ctx context.Context) string {
		GinkgoHelper()
		name := framework.Unique("limited")
		cluster.Admin.Creates(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: name},
		})
		cluster.Bind(ctx, name, []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbProvision}},
			{
				APIGroups: []string{"", rbacv1.GroupName}, Resources: []string{"resourcequotas", "pods", "rolebindings"},
				Verbs: []string{"create", "patch", "delete"},
			},
		}, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: name})
		cluster.AllowImpersonation(ctx, name)
		return name
	}
	withAccount := func(name string) func(*v1alpha1.NamespaceTemplateSpec) {
		return func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = name }
	}
	notesAbout := func(g Gomega, ctx context.Context, object client.Object, reason string) []string {
		var list eventsv1.EventList
		g.Expect(cluster.Admin.List(ctx, &list)).To(Succeed())
		var notes []string
		for _, event := range list.Items {
			if event.Regarding.UID == object.GetUID() && event.Reason == reason {
				notes = append(notes, event.Note)
			}
		}
		return notes
	}

	DescribeTable("is reported with the object and the reason, and without the user",
		func(ctx context.Context, name, manifest, reason string, clauses ...string) {
			template := createTemplate(ctx, "failure", only(name, manifest), withAccount(addLimitedAccount(ctx)))
			namespace := framework.CreateAs(ctx, creator, selectedBy(template.Name))
			expectWaiting(ctx, namespace, reason, clauses...)
			texts := make([]types.GomegaMatcher, 0, len(clauses))
			for _, clause := range clauses {
				texts = append(texts, ContainSubstring(clause))
			}
			message := And(append(texts, Not(ContainSubstring("system:serviceaccount")), Not(ContainSubstring("groups=")))...)
			Eventually(func(g Gomega) {
				condition := nsobject.FindCondition(cluster.GetNamespace(g, ctx, namespace.Name),
					v1alpha1.TemplatesInitializer+v1alpha1.ConditionInitializedSuffix)
				g.Expect(condition).To(HaveValue(HaveField("Message", message)))
				g.Expect(getTemplate(g, ctx, template.Name).Status.Failures).To(HaveExactElements(And(
					HaveField("Namespace", namespace.Name), HaveField("Object", name), HaveField("Reason", reason),
					HaveField("Message", message))))
				for _, object := range []client.Object{namespace, template} {
					g.Expect(notesAbout(g, ctx, object, "Template"+reason)).To(ContainElement(message))
				}
			}).WithContext(ctx).Should(Succeed())
		},
		Entry("a RoleBinding that may not be granted", "binding", binding, "Forbidden", `"creator" is forbidden`,
			`is attempting to grant RBAC permissions not currently held: {APIGroups:[""], Resources:["configmaps"]`),
		Entry("a missing permission", "config", configMap("config", "a"), "Forbidden",
			"cannot patch", "configmaps"), // The operator reviews the permission, or the API server denies the request.
		Entry("invalid fields", "quota", `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"team"},`+
			`"spec":{"hard":{"a":"1","b":"-1","c":"1","pods":"1"}}}`, "InvalidObject", `"team" is invalid`,
			"spec.hard[a]: Invalid value", "spec.hard[c]: Invalid value"),
		Entry("an unknown field", "quota", `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"team"},`+
			`"spec":{"hardd":{"pods":"1"}}}`, "InvalidObject", `ResourceQuota "team"`, "hardd"),
		Entry("an expression", "config", configMap("config", "${ns.labels['absent']}"), "ExpressionFailed", "absent"),
	)

	It("is a role that does not exist, until it is created", func(ctx context.Context) {
		role, other := framework.Unique("missing"), framework.Unique("missing")
		bound := func(name string) func(*v1alpha1.NamespaceTemplateSpec) {
			return only("binding", bindingTo("ClusterRole", name))
		}
		expectFailure := func(template string, namespace *corev1.Namespace, role string) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				g.Expect(getTemplate(g, ctx, template).Status.Failures).To(HaveExactElements(And(
					HaveField("Namespace", namespace.Name), HaveField("Object", "binding"), HaveField("Reason", "RoleNotFound"),
					HaveField("Message", ContainSubstring(role)))))
			}).WithContext(ctx).Should(Succeed())
		}
		createRole := func(name string) {
			GinkgoHelper()
			empty := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
			cluster.Admin.Creates(ctx, empty)
			DeferCleanup(cluster.Admin.Delete, empty)
		}
		template := createTemplate(ctx, "failure", bound(role))
		namespace := framework.CreateAs(ctx, creator, selectedBy(template.Name))
		expectWaiting(ctx, namespace, "RoleNotFound", role)
		expectFailure(template.Name, namespace, role)
		By("the creation of a role that grants nothing, for which no namespace waits")
		createRole(role)
		expectInitialized(ctx, namespace)
		By("another missing role, in an initialized namespace")
		change(ctx, template.Name, bound(other))
		expectFailure(template.Name, namespace, other)
		createRole(other)
		expectCondition(ctx, template.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "All 1")
	})

	It("fails the initialization at the deadline", func(ctx context.Context) {
		template := createTemplate(ctx, "failure", only("binding", binding), withAccount(addLimitedAccount(ctx)),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Initialization.FailureTimeoutSeconds = 2 })
		namespace := framework.CreateAs(ctx, creator, selectedBy(template.Name))
		seen := framework.WatchNamespace(ctx, cluster.Admin.Config, namespace)
		final, _ := seen.WaitForRemoval(ctx)
		var result metav1.Status
		Expect(json.Unmarshal([]byte(final.Annotations[v1alpha1.AnnotationInitializationResult]), &result)).To(Succeed())
		Expect(result).To(And(HaveField("Reason", metav1.StatusReasonTimeout), HaveField("Message", And(
			ContainSubstring("attempting to grant RBAC permissions"), ContainSubstring("2s")))))
		Expect(final.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPendingInitializers, v1alpha1.TemplatesInitializer))
	})
})
