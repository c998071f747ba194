// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const tokenTimeout = 10 * time.Minute

var _ = Describe("The token of a ServiceAccount of the operator", Ordered, SpecPriority(10), func() {
	results := newReport()

	for _, variant := range []string{"default", "separate-finalization", "without-finalization"} {
		Context("with "+variant, Ordered, func() {
			BeforeAll(func(ctx context.Context) {
				shared := cluster
				cluster = framework.StartControlPlane(ctx)
				DeferCleanup(func() { cluster = shared })
				var components []string
				if variant != "default" {
					components = append(components, variant)
				}
				installVariant(ctx, components...)
			}, NodeTimeout(tokenTimeout))

			It("has only permissions that are needed", func(ctx context.Context) {
				types := discover(ctx)
				for _, account := range serviceAccounts(ctx) {
					for _, one := range boundPermissions(ctx, identity{systemNamespace, account}, types) {
						results.purposeOf(one)
					}
				}
				Expect(sets.List(results.missing)).To(BeEmpty(), "add entries to testdata/purposes.yaml for these permissions")
			}, SpecTimeout(tokenTimeout))

			describeAttempts(variant, results)
		})
	}

	It("has exactly the power that SECURITY.md documents", func() {
		if len(results.results) == 0 {
			Skip("no variant was tested")
		}
		Expect(sets.List(results.missing)).To(BeEmpty(), "add entries to testdata/purposes.yaml for these permissions")
		Expect(results.unused()).To(BeEmpty(), "testdata/purposes.yaml contains permissions that no ServiceAccount has")
		expectDocumented(results.format())
	})
})

// describeAttempts uses the tokens of a variant. No namespace can be created on an API server without
// MutatingAdmissionPolicy while the managers are stopped.
func describeAttempts(variant string, results *report) {
	Context("used by an attacker", Ordered, func() {
		var f *fixtures
		var stop func()
		attackers := map[string]*attacker{}

		BeforeAll(func(ctx context.Context) {
			framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "no namespaces are created while the manager is stopped")
			stop = startManagers(ctx)
			f = createClusterFixtures(ctx)
			expectReady(ctx)
		}, NodeTimeout(tokenTimeout))

		It("on the content of namespaces and on cluster-scoped objects while the managers run", func(ctx context.Context) {
			for _, account := range serviceAccounts(ctx) {
				f.createContent(ctx)
				attackers[account] = newAttacker(ctx, identity{systemNamespace, account}, f)
				before := takeSnapshot(ctx, f.types)
				attackers[account].tryContent(ctx)
				expectExplained(before, takeSnapshot(ctx, f.types), attackers[account].successes)
			}
		}, SpecTimeout(tokenTimeout))

		It("on Namespaces in all states", func(ctx context.Context) {
			stop()
			for _, account := range serviceAccounts(ctx) {
				before := takeSnapshot(ctx, f.types)
				attackers[account].tryNamespaces(ctx)
				after := takeSnapshot(ctx, f.types)
				for path := range after {
					if _, ok := before[path]; !ok {
						delete(after, path) // A Namespace for the attempts.
					}
				}
				expectExplained(before, after, attackers[account].successes)
				results.add(holder{account, variant}, attackers[account])
			}
		}, SpecTimeout(tokenTimeout))

		if variant == "without-finalization" {
			It("has less power than that of the namespace controller of Kubernetes", func(ctx context.Context) {
				results.sentence = tryNamespaceController(ctx, f)
			}, SpecTimeout(tokenTimeout))

			// Admission policies do not apply to admission policies, so the policy confine needs narrow roles.
			It("can delete the policy that confines it, if an administrator grants all permissions", func(ctx context.Context) {
				expectUnconfinedWithAllPermissions(ctx, f)
			}, SpecTimeout(tokenTimeout))
		}
	})
}

// installVariant applies config/default with components, as in docs/install.md.
func installVariant(ctx context.Context, components ...string) {
	GinkgoHelper()
	_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-k", framework.Variant(components...))
	Expect(err).NotTo(HaveOccurred())
	Expect(cluster.AggregateClusterRoles(ctx)).To(Succeed())
	// The API server cannot reach the webhooks, and ignores the failures after this time.
	_, err = cluster.Kubectl(ctx, cluster.Admin.Config, "patch", "validatingwebhookconfiguration",
		internalv1alpha1.TemplatesConfiguration, "--type=json", `--patch=[{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":1}]`)
	Expect(err).NotTo(HaveOccurred())
}

// startManagers runs a manager for each installed Deployment, with its ServiceAccount and its controllers. It returns a
// function that stops them.
func startManagers(ctx context.Context) (stop func()) {
	GinkgoHelper()
	deployments, err := cluster.Admin.Clientset().AppsV1().Deployments(systemNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=nslifecycle",
	})
	Expect(err).NotTo(HaveOccurred())
	webhooks, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	webhooks.URL = "" // As installed, although the API server cannot reach the Service.
	var running []*controlplane.Manager
	stop = func() {
		for _, one := range running {
			Expect(one.Stop()).To(Succeed())
		}
		running = nil
	}
	DeferCleanup(func() { stop() })
	for _, deployment := range deployments.Items {
		pod := deployment.Spec.Template.Spec
		config, err := cluster.ServiceAccountConfig(ctx, systemNamespace, pod.ServiceAccountName)
		Expect(err).NotTo(HaveOccurred())
		one, err := controlplane.RunManager(ctx, config, func(options *manager.Options) {
			options.Controllers = controllersOf(pod.Containers[0].Args)
			options.Hold = webhooks
		})
		Expect(err).NotTo(HaveOccurred())
		running = append(running, one)
	}
	Eventually(func(g Gomega) {
		hold := &admissionv1.MutatingWebhookConfiguration{}
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: internalv1alpha1.HoldConfiguration}, hold)).To(Succeed())
		g.Expect(hold.Webhooks[0].ClientConfig.CABundle).NotTo(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
	return stop
}

// controllersOf returns the controllers that the flags of a manager select.
func controllersOf(args []string) manager.Controllers {
	GinkgoHelper()
	var names []string
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--controllers="); ok {
			names = append(names, value)
		}
	}
	if len(names) == 0 {
		return nil
	}
	controllers, err := manager.ParseControllers(strings.Join(names, ","))
	Expect(err).NotTo(HaveOccurred())
	return controllers
}

// serviceAccounts returns the names of the ServiceAccounts of the operator.
func serviceAccounts(ctx context.Context) []string {
	GinkgoHelper()
	list, err := cluster.Admin.Clientset().CoreV1().ServiceAccounts(systemNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=nslifecycle",
	})
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, one := range list.Items {
		names = append(names, one.Name)
	}
	slices.Sort(names)
	return names
}

// expectReady waits until the operator has processed the fixtures.
func expectReady(ctx context.Context) {
	GinkgoHelper()
	cluster.ExpectActive(ctx, fixture)
	// The template selects this Namespace, so the operator adds the types in the template to its permissions.
	cluster.AddTemplateAccount(ctx, "template")
	namespace := wrappers.MakeNamespace(fixture).Label(v1alpha1.LabelTemplate, fixture).Obj()
	Eventually(func(g Gomega) {
		// The template is effective if it selects new namespaces.
		probe := namespace.DeepCopy()
		g.Expect(cluster.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Annotations).To(HaveKey(v1alpha1.AnnotationSelectedTemplates))
	}).WithContext(ctx).Should(Succeed())
	cluster.Admin.Creates(ctx, namespace)
	Eventually(func(g Gomega) {
		role := &rbacv1.ClusterRole{}
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: filledRoles[1]}, role)).To(Succeed())
		g.Expect(role.Rules).NotTo(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
}

// tryNamespaceController tries the deletions of kube-controller-manager's namespace controller, and returns a sentence
// with the result.
func tryNamespaceController(ctx context.Context, f *fixtures) string {
	GinkgoHelper()
	account := identity{kubeSystem, "namespace-controller"}
	mustCreate(ctx, "/api/v1/namespaces/kube-system/serviceaccounts", &unstructured.Unstructured{Object: object{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": account.name},
	}})
	f.createContent(ctx)
	a := newAttacker(ctx, account, f)
	a.isBrief = true
	total, deleted := sets.New[string](), sets.New[string]()
	for _, one := range a.permissions {
		served, isServed := a.types[one.resource]
		if one.verb != "delete" || !isServed || !served.serves("delete") || one.resource == "namespaces" ||
			withoutFixture[one.resource] != "" {
			continue
		}
		place := live
		if !served.Namespaced {
			place = clusterScope
		}
		total.Insert(one.resource)
		a.useIn(ctx, one, served, place)
	}
	for _, found := range a.successes {
		deleted.Insert(found.resource)
	}
	namespace := createNamespace(ctx, live)
	Expect(a.try(ctx, attempt{success: success{path: "/api/v1/namespaces/" + namespace}, method: http.MethodDelete})).To(BeTrue())
	return fmt.Sprintf("For comparison, with its ServiceAccount, the namespace controller in kube-controller-manager deletes live objects of "+
		"%d of %d types, such as Nodes, PersistentVolumes and admission policies, and live Namespaces.", deleted.Len(), total.Len())
}

// expectUnconfinedWithAllPermissions shows that neither the policy nor the roles suffice alone.
func expectUnconfinedWithAllPermissions(ctx context.Context, f *fixtures) {
	GinkgoHelper()
	account := identity{systemNamespace, controlplane.ServiceAccount}
	all := rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}
	cluster.Bind(ctx, fixture+"-mistake", []rbacv1.PolicyRule{all},
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: account.namespace, Name: account.name})
	framework.ExpectAllowed(ctx, account.config(ctx), rbacv1.PolicyRule{
		Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"configmaps"},
	})
	a := newAttacker(ctx, account, f)
	remove := func(path string) response { return sendAs(ctx, a.client, "", http.MethodDelete, path, "", nil) }

	configMap := f.types["configmaps"].path(f.namespaces[live], fixture)
	Expect(remove(configMap).text).To(ContainSubstring("nslifecycle-confine"))
	for _, name := range []string{"validatingadmissionpolicybindings", "validatingadmissionpolicies"} {
		path := f.types[name+".admissionregistration.k8s.io"].path("", "nslifecycle-confine")
		Expect(remove(path).code).To(Equal(http.StatusOK))
	}
	Eventually(func() int { return remove(configMap).code }).WithContext(ctx).Should(Equal(http.StatusOK))
}
