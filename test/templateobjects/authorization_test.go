// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0
package templateobjects

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var operator = rbacv1.Subject{
	Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: controlplane.ServiceAccount,
}

// createLimitedAccount creates a ServiceAccount with some permissions.
func createLimitedAccount(ctx context.Context, rules ...rbacv1.PolicyRule) string {
	GinkgoHelper()
	name := framework.Unique("limited")
	Expect(cluster.Admin.Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: name},
	})).To(Succeed())
	furnish := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbFurnish}}
	cluster.Bind(ctx, name, append(rules, furnish), rbacv1.Subject{
		Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: name,
	})
	return name
}

func ruleFor(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

var _ = Describe("Missing permissions", func() {
	withAccount := func(name string) func(*v1alpha1.NamespaceTemplateSpec) {
		return func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "a"))(spec)
			spec.Objects = append(spec.Objects, objectNamed("limits",
				`{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"limits"}}`))
			spec.ServiceAccountName = name
		}
	}

	It("of the ServiceAccount are reported with the object and the rule, until they are granted", func(ctx context.Context) {
		name := createLimitedAccount(ctx, ruleFor("", "configmaps", "create", "patch", "delete"),
			ruleFor("", "limitranges", "patch", "delete"))
		cluster.AllowImpersonation(ctx, name)
		template := newTemplate(framework.Unique("forbidden"), withAccount(name))
		create(ctx, template)
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionFalse, name,
			`create limitranges "limits"`, "resourceNames:\n  - limits\n  resources:\n  - limitranges\n  verbs:\n  - create")
		namespace := selectedBy(template.Name)
		Expect(creator.Create(ctx, namespace)).To(Succeed())
		expectWaiting(ctx, namespace, "Forbidden", `object "limits"`, "limitranges", name)
		expectEvents(ctx, namespace, "Forbidden")
		cluster.Bind(ctx, framework.Unique("granted"), []rbacv1.PolicyRule{ruleFor("", "limitranges", "create")},
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: name})
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionTrue)
		expectOpen(ctx, namespace)
		expectEvents(ctx, namespace, "Forbidden")
	})

	It("of the ServiceAccount do not extend the permissions of the operator", func(ctx context.Context) {
		isWatched := func(g Gomega) bool {
			role := &rbacv1.ClusterRole{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: "nslifecycle-template-objects"}, role)).To(Succeed())
			return slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
				return slices.Contains(rule.Resources, "podtemplates") && slices.Equal(rule.Verbs, []string{"list", "watch"})
			})
		}
		name := createLimitedAccount(ctx, ruleFor("", "configmaps", "create", "patch", "delete"))
		cluster.AllowImpersonation(ctx, name)
		template := newTemplate(framework.Unique("watched"), withAccount(name), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects[1] = objectNamed("pods", `{"apiVersion":"v1","kind":"PodTemplate","metadata":{"name":"pods"},
				"template":{"spec":{"containers":[{"name":"a","image":"a"}]}}}`)
		})
		create(ctx, template)
		namespace := selectedBy(template.Name)
		Expect(creator.Create(ctx, namespace)).To(Succeed())
		expectWaiting(ctx, namespace, "Forbidden", `object "pods"`, "podtemplates", name)
		Expect(isWatched(Default)).To(BeFalse())
		cluster.Bind(ctx, framework.Unique("granted"), []rbacv1.PolicyRule{ruleFor("", "podtemplates", "create", "patch")},
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: name})
		expectOpen(ctx, namespace)
		Expect(isWatched(Default)).To(BeTrue())
	})

	It("of the operator are reported, and constrained impersonation is sufficient", func(ctx context.Context) {
		server, err := discovery.NewDiscoveryClientForConfig(cluster.Admin.Config)
		Expect(err).NotTo(HaveOccurred())
		version, err := server.ServerVersion()
		Expect(err).NotTo(HaveOccurred())
		if version.Minor < "36" {
			Skip("constrained impersonation is enabled by default since Kubernetes 1.36")
		}
		name := createLimitedAccount(ctx, ruleFor("", "configmaps", "create", "patch", "delete"),
			ruleFor("", "limitranges", "create", "patch", "delete"))
		template := newTemplate(framework.Unique("constrained"), withAccount(name))
		create(ctx, template)
		namespace := selectedBy(template.Name)
		Expect(creator.Create(ctx, namespace)).To(Succeed())
		// The verb is that of the last successful impersonation by the operator, or impersonate-on:serviceaccount:patch.
		expectWaiting(ctx, namespace, "Forbidden", "cannot impersonate")
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionFalse, "impersonate", name)
		By("the right to impersonate the ServiceAccount, for no request")
		namespaced := metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: "constrained-" + name}
		rule := ruleFor(authenticationv1.GroupName, "serviceaccounts", "impersonate:serviceaccount")
		rule.ResourceNames = []string{name}
		Expect(cluster.Admin.Create(ctx, &rbacv1.Role{ObjectMeta: namespaced, Rules: []rbacv1.PolicyRule{rule}})).To(Succeed())
		Expect(cluster.Admin.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: namespaced, Subjects: []rbacv1.Subject{operator},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: namespaced.Name},
		})).To(Succeed())
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionFalse,
			"impersonate-on:serviceaccount:patch", "configmaps", "limitranges")
		By("the printed right to do so for patches and deletions of the objects in the template")
		grantPrinted(ctx, template.Name)
		expectOpen(ctx, namespace)
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionTrue)
		Expect(objectsOf(ctx, namespace)).To(HaveLen(2))
	})
})

var _ = Describe("A namespace that cannot be completed", func() {
	AfterEach(restoreManager)

	It("causes few requests and no repeated Events or condition changes", func(ctx context.Context) {
		template := newTemplate(framework.Unique("wait"), only("unknown",
			`{"apiVersion":"test.example.com/v1","kind":"Unknown","metadata":{"name":"x"}}`))
		template.Spec.Objects = append(template.Spec.Objects, objectNamed("config", configMap("config", "a")))
		intercepted := restartManager(ctx, nil, func(o *manager.Options) { o.DiagnosisProgressDeadline = time.Hour })
		create(ctx, template)
		namespaces := make([]*corev1.Namespace, 10)
		for i := range namespaces {
			namespaces[i] = selectedBy(template.Name)
			Expect(creator.Create(ctx, namespaces[i])).To(Succeed())
		}
		for _, namespace := range namespaces {
			expectWaiting(ctx, namespace, "KindNotFound")
			expectValue(ctx, namespace, "config", "a")
			expectEvents(ctx, namespace, "KindNotFound")
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionTrue, "10 failed")
		intercepted.sent()
		Consistently(func() []string { return writes(intercepted.requestsSoFar()) }).WithTimeout(5 * time.Second).
			WithContext(ctx).Should(BeEmpty())
		Expect(len(intercepted.sent())).To(BeNumerically("<", 30), "only discoveries and leases")
	})

	It("is restored three times, and then causes no requests while the other client continues", func(ctx context.Context) {
		template := newTemplate(framework.Unique("rival"), only("config", configMap("config", "ours")))
		var count atomic.Int32
		intercepted := restartManager(ctx, nil)
		create(ctx, template)
		namespace := selectedBy(template.Name)
		createOpen(ctx, namespace)
		intercepted.set(func(request *http.Request) fault {
			if request.Method == http.MethodPatch && request.URL.Path == "/api/v1/namespaces/"+namespace.Name+"/configmaps/config" {
				count.Add(1)
			}
			return noFault
		})
		number := 0
		overwrite := func() {
			object := get(ctx, namespace, "config", &corev1.ConfigMap{})
			object.Data["key"] = fmt.Sprintf("theirs-%d", number)
			_ = cluster.Admin.Update(ctx, object) // Conflicts with the operator are expected.
			number++
		}
		Eventually(func(g Gomega) {
			overwrite()
			current := &v1alpha1.NamespaceTemplate{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
			g.Expect(meta.IsStatusConditionTrue(current.Status.Conditions, v1alpha1.ConditionConflicted)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		for range 100 {
			overwrite()
		}
		Expect(count.Load()).To(BeNumerically("<=", 4), "three restorations and a dry run")
		expectEvents(ctx, namespace, "Conflict")
	})
})
