// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	teamLabel, team = "corp.example.com/kind", "team"
	// provisioner is the ServiceAccount of config/provisioner.
	provisioner = "nslifecycle-provisioner"
)

var _ = Describe("The samples in config/samples/templates", func() {
	It("create a quota, limits, a locked NetworkPolicy and a RoleBinding for the creator", func(ctx context.Context) {
		applyProvisioner(ctx)
		applySample(ctx, "baseline")
		waitUntilSelected(ctx, "baseline", wrappers.MakeNamespace("probe").Label(teamLabel, team).Obj())
		namespace := createInitialized(ctx, wrappers.MakeNamespace(framework.Unique("ns")).Label(teamLabel, team).Obj())
		get(ctx, namespace, "baseline", &corev1.ResourceQuota{})
		get(ctx, namespace, "baseline", &corev1.LimitRange{})
		Eventually(creator.Create).WithContext(ctx).WithArguments(wrappers.MakeConfigMap(namespace.Name, "settings")).
			Should(Succeed())
		policy := get(ctx, namespace, "deny-ingress", &networkingv1.NetworkPolicy{})
		Expect(creator.Delete(ctx, policy)).To(MatchError(ContainSubstring("is locked")))
	})

	It("set a Pod Security level, and create a quota, a locked NetworkPolicy, a pull secret and a RoleBinding", func(ctx context.Context) {
		createPullSecret(ctx)
		applySample(ctx, "team")
		grantPermissions(ctx, "team")
		waitUntilSelected(ctx, "team", wrappers.MakeNamespace("probe").Label(teamLabel, team).Obj())
		namespace := createInitialized(ctx, wrappers.MakeNamespace(framework.Unique("ns")).Label(teamLabel, team).Obj())
		Expect(namespace.Labels).To(HaveKeyWithValue(podSecurity, "restricted"))
		get(ctx, namespace, "team", &corev1.ResourceQuota{})
		get(ctx, namespace, "deny-ingress", &networkingv1.NetworkPolicy{})
		get(ctx, namespace, "creator", &rbacv1.RoleBinding{})
		get(ctx, namespace, "regcred", &corev1.Secret{})
		Expect(get(ctx, namespace, "default", &corev1.ServiceAccount{}).ImagePullSecrets).
			To(ConsistOf(corev1.LocalObjectReference{Name: "regcred"}))
	})

	It("copy a pull secret to new and existing namespaces, and make the default ServiceAccount use it", func(ctx context.Context) {
		source := createPullSecret(ctx)
		existing := createInitialized(ctx, wrappers.MakeNamespace(framework.Unique("existing")).Obj())
		cluster.Admin.Creates(ctx, &corev1.ServiceAccount{
			ObjectMeta:       metav1.ObjectMeta{Namespace: existing.Name, Name: "default"},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "other"}},
		})

		applySample(ctx, "pull-secret")
		grantPermissions(ctx, "pull-secret")
		waitUntilSelected(ctx, "pull-secret", wrappers.MakeNamespace("probe").Obj())
		namespace := createInitialized(ctx, wrappers.MakeNamespace(framework.Unique("ns")).Obj())
		source.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths":{"registry.example.com":{}}}`)
		cluster.Admin.Updates(ctx, source)
		for _, name := range []string{namespace.Name, existing.Name} {
			Eventually(func(g Gomega) {
				var account corev1.ServiceAccount
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &account)).To(Succeed())
				g.Expect(account.ImagePullSecrets).To(ConsistOf(corev1.LocalObjectReference{Name: source.Name}))
				var copied corev1.Secret
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: name, Name: source.Name}, &copied)).To(Succeed())
				g.Expect(copied.Data).To(Equal(source.Data))
			}).WithContext(ctx).Should(Succeed())
		}
		err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: source.Namespace, Name: "default"}, &corev1.ServiceAccount{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	})

	It("let users with the verb use choose one of several sizes", func(ctx context.Context) {
		const parameter = v1alpha1.PrefixParameter + "size"
		applyProvisioner(ctx)
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
		cluster.Admin.Creates(ctx, binding)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, binding)).To(Succeed()) })
		Eventually(func() error { return creator.Create(ctx, sized(""), client.DryRunAll) }).WithContext(ctx).Should(Succeed())
		Expect(creator.Create(ctx, sized("huge"), client.DryRunAll)).
			To(MatchError(ContainSubstring(`"small", "medium", "large"`)))

		small, large := sized(""), sized("large")
		createInitialized(ctx, small)
		createInitialized(ctx, large)
		for namespace, cpu := range map[*corev1.Namespace]string{small: "2", large: "32"} {
			quota := get(ctx, namespace, "size", &corev1.ResourceQuota{})
			Expect(quota.Spec.Hard.Name(corev1.ResourceRequestsCPU, "").String()).To(Equal(cpu))
		}
		get(ctx, large, "storage", &corev1.ResourceQuota{})
		err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: small.Name, Name: "storage"}, &corev1.ResourceQuota{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	})
})

var _ = Describe("The ServiceAccount of config/provisioner", func() {
	It("can bind the ClusterRoles view, edit and admin, and no others", func(ctx context.Context) {
		applyProvisioner(ctx)
		template := &v1alpha1.NamespaceTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("bind")},
			Spec:       v1alpha1.NamespaceTemplateSpec{ServiceAccountName: provisioner},
		}
		bind := func(role string) {
			template.Spec.Objects = append(template.Spec.Objects, objectNamed(role, `{"apiVersion":"rbac.authorization.k8s.io/v1",
				"kind":"RoleBinding","metadata":{"name":"`+role+`"},
				"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"`+role+`"},
				"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"`+alice+`"}]}`))
		}
		for _, role := range []string{"view", "edit", "admin"} {
			bind(role)
		}
		cluster.Admin.Creates(ctx, template)
		DeferCleanup(waitUntilUnselected, template.Name)
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionTrue)

		bind("cluster-admin")
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Objects = template.Spec.Objects })
		expectCondition(ctx, template.Name, v1alpha1.ConditionAuthorized, metav1.ConditionFalse,
			`lacks permissions, for example: bind clusterroles.rbac.authorization.k8s.io "cluster-admin".`,
			"run: kubectl nslifecycle template permissions "+template.Name+" | kubectl apply")
	})

	It("lets only users write its templates who may impersonate it", func(ctx context.Context) {
		applyProvisioner(ctx)
		name := framework.Unique("author")
		author := cluster.AddUserWithRules(ctx, name, rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"namespacetemplates"}, Verbs: []string{"create"},
		})
		create := func() error {
			return author.Create(ctx, &v1alpha1.NamespaceTemplate{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1alpha1.NamespaceTemplateSpec{
					ServiceAccountName: provisioner,
					Objects:            []v1alpha1.TemplateObject{objectNamed("limits", `{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"a"}}`)},
				},
			}, client.DryRunAll)
		}
		Eventually(create).WithContext(ctx).Should(MatchError(ContainSubstring("not allowed to impersonate ServiceAccount")))
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "--namespace="+controlplane.SystemNamespace, "create", "rolebinding", name,
			"--role=impersonate-provisioner", "--user="+name)
		Expect(err).NotTo(HaveOccurred())
		Eventually(create).WithContext(ctx).Should(Succeed())
	})

	It("makes users who may impersonate it administrators only of namespaces that a template selected", func(ctx context.Context) {
		applyProvisioner(ctx)
		const other = "other-controller"
		existing := createInitialized(ctx, wrappers.MakeNamespace(framework.Unique("existing")).Obj())
		template := &v1alpha1.NamespaceTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("limits")},
			Spec: v1alpha1.NamespaceTemplateSpec{
				ServiceAccountName: provisioner,
				Objects:            []v1alpha1.TemplateObject{objectNamed("limits", `{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"a"}}`)},
			},
		}
		cluster.Admin.Creates(ctx, template)
		selected := func(name string) *corev1.Namespace {
			return wrappers.MakeNamespace(name).Label(v1alpha1.LabelTemplate, template.Name).Obj()
		}
		waitUntilSelected(ctx, template.Name, selected("probe"))
		templated := createInitialized(ctx, selected(framework.Unique("ns")))
		refused := []string{metav1.NamespaceSystem, metav1.NamespaceDefault, controlplane.SystemNamespace, existing.Name}
		for _, namespace := range refused {
			binding := &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: other},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			}
			cluster.Admin.Creates(ctx, binding)
			DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, binding)).To(Succeed()) })
		}

		name := framework.Unique("holder")
		holder, err := cluster.User(name)
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.Kubectl(ctx, cluster.Admin.Config, "--namespace="+controlplane.SystemNamespace, "create", "rolebinding", name,
			"--role=impersonate-provisioner", "--user="+name)
		Expect(err).NotTo(HaveOccurred())
		send := func(namespace string, arguments ...string) error {
			_, err := cluster.Kubectl(ctx, holder, append(arguments, "--namespace="+namespace,
				"--as=system:serviceaccount:"+controlplane.SystemNamespace+":"+provisioner)...)
			return err
		}
		bind := func(namespace string) error {
			return send(namespace, "create", "rolebinding", name, "--clusterrole=admin", "--user="+name, "--dry-run=server")
		}
		Eventually(bind).WithContext(ctx).WithArguments(templated.Name).Should(Succeed())
		for _, namespace := range refused {
			message := MatchError(ContainSubstring(fmt.Sprintf("none selected %q", namespace)))
			Eventually(bind).WithContext(ctx).WithArguments(namespace).Should(message)
			Expect(send(namespace, "delete", "rolebinding", other, "--wait=false")).To(message)
			Expect(send(namespace, "create", "quota", name)).To(message)
		}

		By("comparing the types of the ClusterRole with those of the policy")
		role, policy := &rbacv1.ClusterRole{}, &admissionv1.ValidatingAdmissionPolicy{}
		Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: "nslifecycle:provisioner"}, role)).To(Succeed())
		Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: provisioner}, policy)).To(Succeed())
		var writable, confined []string
		for _, rule := range role.Rules {
			if slices.Contains(rule.Verbs, "create") {
				writable = append(writable, rule.Resources...)
			}
		}
		for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
			confined = append(confined, rule.Resources...)
		}
		Expect(writable).To(ConsistOf(confined))
	})
})

// createPullSecret creates the source of the samples until the spec ends.
func createPullSecret(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SourceNamespace, Name: "regcred"},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
	}
	cluster.Admin.Creates(ctx, secret)
	DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, secret)).To(Succeed()) })
	return secret
}

// applyProvisioner applies config/provisioner until the spec ends.
func applyProvisioner(ctx context.Context) {
	GinkgoHelper()
	directory := filepath.Join(controlplane.Root(), "config", "provisioner")
	_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-k", directory)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", "-k", directory, "--ignore-not-found")
		Expect(err).NotTo(HaveOccurred())
	})
}

// grantPermissions creates what a template requires until the spec ends.
func grantPermissions(ctx context.Context, name string) {
	GinkgoHelper()
	for _, object := range cluster.TemplatePermissions(ctx, name) {
		cluster.Admin.Creates(ctx, object)
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(cluster.Admin.Delete(ctx, object))).To(Succeed())
		})
	}
}

// applySample applies a file in config/samples/templates until the spec ends.
func applySample(ctx context.Context, name string) {
	GinkgoHelper()
	applyFile(ctx, filepath.Join(controlplane.Root(), "config", "samples", "templates", name+".yaml"))
}

func applyFile(ctx context.Context, file string) {
	GinkgoHelper()
	_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-f", file)
	Expect(err).NotTo(HaveOccurred())
	again, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-f", file)
	Expect(err).NotTo(HaveOccurred())
	Expect(again).To(And(ContainSubstring("unchanged"), Not(ContainSubstring("configured"))))
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

// The objects are those that the other tools leave in existing namespaces.
var _ = DescribeTable("The template in config/samples/migration adopts existing objects, keeps them, and creates them in new namespaces",
	func(ctx context.Context, sample, key, value string, existing client.Object, labels map[string]string) {
		template := templateIn(sample)
		labeled := func(name string) *corev1.Namespace {
			namespace := wrappers.MakeNamespace(name)
			if key != "" {
				namespace.Label(key, value)
			}
			return namespace.Obj()
		}
		old := labeled(framework.Unique("existing"))
		createInitialized(ctx, old)
		existing.SetNamespace(old.Name)
		existing.SetLabels(map[string]string{"example.com/managed-by": "other-controller"})
		cluster.Admin.Creates(ctx, existing)

		cluster.Admin.Creates(ctx, template)
		grantPermissions(ctx, template.Name)
		waitUntilSelected(ctx, template.Name, labeled("probe"))
		cluster.Admin.Reads(ctx, template)
		added := labeled(framework.Unique("ns"))
		createInitialized(ctx, added)
		uid := existing.GetUID()
		for _, namespace := range []*corev1.Namespace{old, added} {
			Eventually(func(g Gomega) {
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: existing.GetName()}, existing)).
					To(Succeed())
				g.Expect(existing.GetLabels()).To(HaveKeyWithValue(v1alpha1.LabelManagedByTemplate, template.Name))
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
				for label, value := range labels {
					g.Expect(namespace.Labels).To(HaveKeyWithValue(label, value))
				}
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
	Entry("kyverno", "kyverno", "", "", &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "default-deny"},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
	}, map[string]string{"pod-security.kubernetes.io/warn": "restricted"}),
	Entry("capsule", "capsule", "capsule.clastix.io/tenant", "solar",
		quotaOf("capsule-solar-0", "requests.cpu", "8", "pods", "10"), map[string]string{podSecurity: "restricted"}),
	Entry("hnc", "hnc", "corp.example.com/team", "team-a", &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "team-admins"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "team-a"}},
	}, map[string]string{"env": "prod"}),
	Entry("namespace-configuration-operator", "namespace-configuration-operator", "size", "small",
		quotaOf("small-size", "requests.cpu", "4", "requests.memory", "2Gi"), nil),
	Entry("openshift", "openshift", teamLabel, "project", &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
		}}},
	}, nil),
	Entry("aks", "aks", teamLabel, "managed", quotaOf("managed",
		"requests.cpu", "1", "limits.cpu", "2", "requests.memory", "512Mi", "limits.memory", "1Gi"),
		map[string]string{"environment": "dev"}),
	Entry("vsphere", "vsphere", teamLabel, "self-service", quotaOf("self-service", "limits.cpu", "8", "limits.memory", "40Gi",
		"vsan-default.storageclass.storage.k8s.io/requests.storage", "250Gi"), nil),
)

// templateIn returns the template in a file of config/samples/migration, without access control, which the samples test.
func templateIn(sample string) *v1alpha1.NamespaceTemplate {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(controlplane.Root(), "config", "samples", "migration", sample+".yaml"))
	Expect(err).NotTo(HaveOccurred())
	documents := strings.Split(string(content), "\n---\n")
	template := &v1alpha1.NamespaceTemplate{}
	Expect(yaml.UnmarshalStrict([]byte(documents[len(documents)-1]), template)).To(Succeed())
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
