// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var operator = rbacv1.Subject{
	Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: controlplane.ServiceAccount,
}

// createLimitedAccount creates a ServiceAccount with some permissions.
func createLimitedAccount(ctx context.Context, rules ...rbacv1.PolicyRule) string {
	GinkgoHelper()
	name := framework.Unique("limited")
	cluster.Admin.Creates(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: name},
	})
	provision := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbProvision}}
	cluster.Bind(ctx, name, append(rules, provision), rbacv1.Subject{
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
		template := createTemplate(ctx, "forbidden", withAccount(name))
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionFalse, name,
			`create limitranges "limits"`, "resourceNames:\n  - limits\n  resources:\n  - limitranges\n  verbs:\n  - create")
		namespace := framework.CreateAs(ctx, creator, selectedBy(template.Name))
		expectWaiting(ctx, namespace, "Forbidden", `object "limits"`, "limitranges", name)
		expectEvents(ctx, namespace, "TemplateForbidden")
		cluster.Bind(ctx, framework.Unique("granted"), []rbacv1.PolicyRule{ruleFor("", "limitranges", "create")},
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: name})
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionTrue)
		expectInitialized(ctx, namespace)
		expectEvents(ctx, namespace, "TemplateForbidden")
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
		template := createTemplate(ctx, "watched", withAccount(name), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects[1] = objectNamed("pods", `{"apiVersion":"v1","kind":"PodTemplate","metadata":{"name":"pods"},
				"template":{"spec":{"containers":[{"name":"a","image":"a"}]}}}`)
		})
		namespace := framework.CreateAs(ctx, creator, selectedBy(template.Name))
		expectWaiting(ctx, namespace, "Forbidden", `object "pods"`, "podtemplates", name)
		Expect(isWatched(Default)).To(BeFalse())
		cluster.Bind(ctx, framework.Unique("granted"), []rbacv1.PolicyRule{ruleFor("", "podtemplates", "create", "patch")},
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: name})
		expectInitialized(ctx, namespace)
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
		template := createTemplate(ctx, "constrained", withAccount(name))
		namespace := framework.CreateAs(ctx, creator, selectedBy(template.Name))
		// The verb is that of the last successful impersonation by the operator, or impersonate-on:serviceaccount:patch.
		expectWaiting(ctx, namespace, "Forbidden", "cannot impersonate")
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionFalse, "impersonate", name)
		By("the right to impersonate the ServiceAccount, for no request")
		namespaced := metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: "constrained-" + name}
		rule := ruleFor(authenticationv1.GroupName, "serviceaccounts", "impersonate:serviceaccount")
		rule.ResourceNames = []string{name}
		cluster.Admin.Creates(ctx, &rbacv1.Role{ObjectMeta: namespaced, Rules: []rbacv1.PolicyRule{rule}})
		cluster.Admin.Creates(ctx, &rbacv1.RoleBinding{
			ObjectMeta: namespaced, Subjects: []rbacv1.Subject{operator},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: namespaced.Name},
		})
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionFalse,
			"impersonate-on:serviceaccount:patch", "configmaps", "limitranges")
		By("the printed right to do so for patches and deletions of the objects in the template")
		grantPrinted(ctx, template.Name)
		expectInitialized(ctx, namespace)
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
			creator.Creates(ctx, namespaces[i])
		}
		for _, namespace := range namespaces {
			expectWaiting(ctx, namespace, "KindNotFound")
			expectValue(ctx, namespace, "config", "a")
			expectEvents(ctx, namespace, "TemplateKindNotFound")
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionTrue, "10 failed")
		intercepted.sent()
		Consistently(func() []string { return writes(intercepted.requestsSoFar()) }).WithTimeout(5 * time.Second).
			WithContext(ctx).Should(BeEmpty())
		Expect(len(intercepted.sent())).To(BeNumerically("<", 30), "only discoveries and leases")
	})

	It("is restored three times, and then causes no requests while the other client, which is reported, continues", func(ctx context.Context) {
		template := newTemplate(framework.Unique("rival"), only("config", configMap("config", "ours")))
		var count atomic.Int32
		intercepted := restartManager(ctx, nil)
		create(ctx, template)
		namespace := createInitialized(ctx, selectedBy(template.Name))
		intercepted.set(func(request *http.Request) fault {
			if request.Method == http.MethodPatch && request.URL.Path == "/api/v1/namespaces/"+namespace.Name+"/configmaps/config" {
				count.Add(1)
			}
			return noFault
		})
		number := 0
		overwrite := func() {
			object := getConfig(ctx, namespace, "config")
			object.Data["key"] = fmt.Sprintf("theirs-%d", number)
			_ = cluster.Admin.Update(ctx, object, client.FieldOwner("rival")) // Conflicts with the operator are expected.
			number++
		}
		Eventually(func(g Gomega) {
			overwrite()
			current := getTemplate(g, ctx, template.Name)
			g.Expect(meta.IsStatusConditionTrue(current.Status.Conditions, v1alpha1.ConditionConflicted)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		for range 100 {
			overwrite()
		}
		Expect(count.Load()).To(BeNumerically("<=", 4), "three restorations and a dry run")
		expectEvents(ctx, namespace, "TemplateConflict")
		Expect(getTemplate(Default, ctx, template.Name).Status.Failures).To(HaveExactElements(And(
			HaveField("Namespace", namespace.Name),
			HaveField("Message", And(ContainSubstring("rival"), ContainSubstring(".data.key"))))))
		By("a change of the template, which ends the conflict")
		change(ctx, template.Name, only("config", configMap("config", "new")))
		expectValue(ctx, namespace, "config", "new")
	})
})

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
		template := createTemplate(ctx, "revision", only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				forged := objectNamed("secret", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"forged"}}`)
				forged.IncludeWhen = "'forge' in ns.labels"
				spec.Objects, spec.ServiceAccountName = append(spec.Objects, forged), weak
			})
		createInitialized(ctx, selectedBy(template.Name))
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "b"))(spec)
			spec.Rollout.Paused = true
		})
		current := &v1alpha1.NamespaceTemplate{}
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
			g.Expect(current.Status.CurrentRevision).NotTo(Or(BeEmpty(), Equal(current.Status.UpdateRevision)))
		}).WithContext(ctx).Should(Succeed())
		By("another author who changes only the ServiceAccount")
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = strong })
		expectAccount := func() {
			GinkgoHelper()
			namespace := framework.CreateAs(ctx, creator, wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", template.Name).Label("forge", "").Obj())
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
		createInitialized(ctx, selectedBy(template.Name))
	})

	It("are not those of a revision that a forged status contains", func(ctx context.Context) {
		name := framework.Unique("status")
		template := newTemplate(name, only("config", configMap("config", "own")))
		create(ctx, template)
		createInitialized(ctx, selectedBy(name))
		other := newTemplate(name+"-x", only("config", configMap("config", "foreign")))
		create(ctx, other)
		createInitialized(ctx, selectedBy(other.Name))
		cluster.Admin.Reads(ctx, other)
		change(ctx, name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "new"))(spec)
			spec.Rollout.Paused = true
		})
		expectCondition(ctx, name, v1alpha1.ConditionProgressing, metav1.ConditionUnknown)
		cluster.Admin.Reads(ctx, template)
		By("the revision of the spec, which is paused, and ControllerRevision NAME-x-REVISION of the other template")
		for _, forged := range []string{template.Status.UpdateRevision, "x-" + other.Status.UpdateRevision} {
			Expect(cluster.Admin.Status().Patch(ctx, template.DeepCopy(), framework.MergePatch(
				`{"status":{"currentRevision":"`+forged+`"}}`))).To(Succeed())
			DeferCleanup(restoreManager)
			restartManager(ctx, nil)
			namespace := createInitialized(ctx, selectedBy(name))
			expectValue(ctx, namespace, "config", "own")
			Eventually(getTemplate).WithContext(ctx).WithArguments(template.Name).Should(HaveField("Status.CurrentRevision", Equal(template.Status.CurrentRevision)))
		}
	})

	It("cannot be used for a revision of a deleted template with the same name", func(ctx context.Context) {
		name := framework.Unique("recreated")
		template := newTemplate(name, only("config", configMap("config", "a")))
		create(ctx, template)
		createInitialized(ctx, selectedBy(name))
		first := template.UID
		deleteTemplate(ctx, name, nil)
		create(ctx, newTemplate(name, only("config", configMap("config", "a"))))
		Eventually(func(g Gomega) {
			var revisions appsv1.ControllerRevisionList
			g.Expect(cluster.Admin.List(ctx, &revisions, client.InNamespace(controlplane.SystemNamespace),
				client.MatchingLabels{v1alpha1.LabelManagedByTemplate: name})).To(Succeed())
			g.Expect(revisions.Items).To(HaveLen(1))
			g.Expect(metav1.GetControllerOf(&revisions.Items[0]).UID).NotTo(Equal(first))
		}).WithContext(ctx).Should(Succeed())
		createInitialized(ctx, selectedBy(name))
	})
})
