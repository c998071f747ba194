// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const templateManager = client.FieldOwner("nslifecycle-template-team")

// locked adds the labels of a locked object.
func locked[T client.Object](object T) T {
	object.SetLabels(map[string]string{v1alpha1.LabelManagedByTemplate: "team", v1alpha1.LabelLocked: "true"})
	return object
}

var BeLocked = func(name string) OmegaMatcher {
	return BeForbiddenBy(internalv1alpha1.PolicyTemplateObjects, `object "`+name+`" of NamespaceTemplate "team" is locked`)
}

func templateWrites() {
	apply := func(ctx context.Context, namespace, uid string, owner client.FieldOwner) error {
		object := corev1ac.ConfigMap("config", namespace).WithLabels(map[string]string{v1alpha1.LabelManagedByTemplate: "team"}).
			WithData(map[string]string{"uid": uid})
		if uid != "" {
			object.WithAnnotations(map[string]string{v1alpha1.AnnotationNamespaceUID: uid})
		}
		return provisioner.Apply(ctx, object, owner, client.ForceOwnership)
	}

	It("is rejected if the object was rendered for another namespace", func(ctx context.Context) {
		namespace := makePlain(ctx, cluster.Ordinary, "objects")
		rejected := BeDeniedBy(internalv1alpha1.PolicyTemplateObjects, `object "config" of NamespaceTemplate "team" was not rendered`,
			string(namespace.UID))
		for _, uid := range []string{"", "00000000-0000-0000-0000-000000000000", string(namespace.UID) + "x", "\"\n'"} {
			Expect(apply(ctx, namespace.Name, uid, templateManager)).To(rejected, uid)
		}
		Expect(apply(ctx, namespace.Name, string(namespace.UID), templateManager)).To(Succeed())
		By("updating the object")
		Expect(apply(ctx, namespace.Name, "other", templateManager)).To(rejected)
		Expect(apply(ctx, namespace.Name, "other", "another-manager")).To(Succeed())
		Expect(apply(ctx, namespace.Name, string(namespace.UID), templateManager)).To(Succeed())
		By("deleting the object")
		provisioner.Deletes(ctx, wrappers.MakeConfigMap(namespace.Name, "config"))
	})
}

func lockedObjects() {
	var namespace *corev1.Namespace
	var config *corev1.ConfigMap

	BeforeEach(func(ctx context.Context) {
		namespace = makePlain(ctx, cluster.Ordinary, "objects")
		config = locked(wrappers.MakeConfigMap(namespace.Name, "config"))
		provisioner.Creates(ctx, config)
	})

	It("cannot be created, changed or deleted without the verbs", func(ctx context.Context) {
		Expect(cluster.Ordinary.Create(ctx, locked(wrappers.MakeConfigMap(namespace.Name, "mine")))).To(BeLocked("mine"))
		generated := locked(wrappers.MakeConfigMap(namespace.Name, ""))
		generated.GenerateName = "mine-"
		Expect(cluster.Ordinary.Create(ctx, generated)).To(BeForbiddenBy(internalv1alpha1.PolicyTemplateObjects, "is locked"))
		for name, patch := range map[string]string{
			"data": `{"data":{"a":"b"}}`, "the lock": `{"metadata":{"labels":{"nslifecycle.dev/locked":null}}}`,
			"the template":  `{"metadata":{"labels":{"nslifecycle.dev/managed-by-template":null}}}`,
			"both labels":   `{"metadata":{"labels":null}}`,
			"an annotation": `{"metadata":{"annotations":{"a":"b"}}}`, "a finalizer": `{"metadata":{"finalizers":["a.b/c"]}}`,
		} {
			By("patching " + name)
			for _, options := range [][]client.PatchOption{nil, {client.DryRunAll}, {templateManager}} {
				merge := framework.MergePatch(patch)
				Expect(cluster.Ordinary.Patch(ctx, config.DeepCopy(), merge, options...)).
					To(BeDeniedBy(internalv1alpha1.PolicyTemplateObjects))
			}
		}
		Expect(cluster.Ordinary.Update(ctx, wrappers.MakeConfigMap(namespace.Name, "config"))).To(BeLocked("config"))
		Expect(cluster.Ordinary.Delete(ctx, config.DeepCopy())).To(BeLocked("config"))
		Expect(cluster.Ordinary.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace.Name))).
			To(BeLocked("config"))
		for _, user := range []*framework.User{provisioner, cluster.Initializer} {
			config.Data = map[string]string{"user": framework.Unique("x")}
			user.Updates(ctx, config)
		}
		provisioner.Deletes(ctx, config)
	})

	It("must be unlocked by an administrator if the template no longer applies", func(ctx context.Context) {
		remove := func() error { return cluster.Ordinary.Delete(ctx, config.DeepCopy(), client.DryRunAll) }
		Expect(remove()).To(And(BeLocked("config"), MatchError(ContainSubstring("the template does not exist or no longer applies"))))
		By("recording the template, and an object with its name")
		for applied, isApplied := range map[string]bool{
			`{"other":{"objects":{"ConfigMap":{"team":"x"}}}}`: false, `{"other":{"revision":"a","team":{"ConfigMap":{}}}}`: false,
			`{"other":{},"team":{"revision":"a"}}`: true, `{"team":{"target":"a"}}`: true,
		} {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationAppliedTemplates, applied)
			cluster.Admin.Patches(ctx, namespace.DeepCopy(), patch)
			remedy := map[bool]string{true: "to change the object, change the template", false: "must remove the label"}[isApplied]
			// The API server reads the Namespace from a cache.
			Eventually(remove).WithContext(ctx).Should(MatchError(ContainSubstring(remedy)), applied)
		}
	})

	It("cannot be made from the object of a user, which can be changed", func(ctx context.Context) {
		object := wrappers.MakeConfigMap(namespace.Name, "mine")
		object.Labels = map[string]string{v1alpha1.LabelManagedByTemplate: "team"}
		cluster.Ordinary.Creates(ctx, object)
		object.Data = map[string]string{"a": "b"}
		cluster.Ordinary.Updates(ctx, object)
		Expect(cluster.Ordinary.Update(ctx, locked(object.DeepCopy()))).To(BeLocked("mine"))
		cluster.Ordinary.Deletes(ctx, object)
	})

	It("can get a status, but not through it other metadata", func(ctx context.Context) {
		deployment := locked(&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "app"},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}},
				},
			},
		})
		provisioner.Creates(ctx, deployment)
		deployment.Status.ObservedGeneration = 1
		Expect(cluster.Ordinary.Status().Update(ctx, deployment)).To(Succeed())
		By("making the garbage collector delete the object, or preventing its deletion")
		for _, metadata := range []string{
			`{"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"absent","uid":"absent"}]}`,
			`{"finalizers":["example.com/a"]}`, `{"annotations":{"a":"b"}}`,
		} {
			patch := framework.MergePatch(`{"metadata":` + metadata + `,"status":{"replicas":1}}`)
			Expect(cluster.Ordinary.Status().Patch(ctx, deployment.DeepCopy(), patch)).To(BeLocked("app"), metadata)
		}
		By("replacing the quota that the API server enforces")
		quota := locked(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "quota"}})
		quota.Spec.Hard = corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("1")}
		provisioner.Creates(ctx, quota)
		quota.Status.Hard = corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("100")}
		Expect(cluster.Ordinary.Status().Update(ctx, quota.DeepCopy())).To(BeLocked("quota"))
		counter := cluster.Impersonate("system:serviceaccount:kube-system:resourcequota-controller",
			"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
		cluster.Bind(ctx, framework.Unique("counter"), []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"resourcequotas/status"}, Verbs: []string{"update"},
		}}, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:kube-system"})
		quota.Status.Hard = quota.Spec.Hard
		quota.Status.Used = corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("0")}
		Eventually(func() error { return counter.Status().Update(ctx, quota.DeepCopy()) }).WithContext(ctx).Should(Succeed())
		By("being counted by the API server")
		Eventually(func(g Gomega) {
			g.Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, framework.Unique("counted")))).
				To(MatchError(ContainSubstring("exceeded quota: quota, requested: configmaps=1, used: configmaps=1")))
		}).WithContext(ctx).Should(Succeed())
		pod := locked(wrappers.MakePod(namespace.Name, "pod"))
		provisioner.Creates(ctx, pod)
		for _, subresource := range []string{"ephemeralcontainers", "resize"} {
			Expect(cluster.Ordinary.SubResource(subresource).Update(ctx, pod.DeepCopy())).To(BeLocked("pod"))
		}
		pod.Labels = nil
		Expect(cluster.Ordinary.Status().Update(ctx, pod)).To(BeLocked("pod"))
	})

	It("can lose its finalizers while it is being deleted", func(ctx context.Context) {
		config.Finalizers = []string{"example.com/a", "example.com/b"}
		provisioner.Updates(ctx, config)
		remove := func() error {
			return cluster.Ordinary.Patch(ctx, wrappers.MakeConfigMap(namespace.Name, "config"),
				client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers/0"}]`)))
		}
		Expect(remove()).To(BeLocked("config"))
		provisioner.Deletes(ctx, config)
		cluster.Ordinary.Reads(ctx, config)
		config.Data = map[string]string{"a": "b"}
		Expect(cluster.Ordinary.Update(ctx, config.DeepCopy())).To(BeLocked("config"))
		Expect(remove()).To(Succeed())
		Expect(remove()).To(Succeed())
		framework.ExpectDeleted(ctx, cluster.Admin, config)
	})

	// The garbage collector deletes an object whose owner does not exist, and a finalizer then keeps it: the
	// API server would enforce a quota that is being deleted, with a status that users can write.
	It("cannot be made from an object with finalizers or owner references, whichever labels it has", func(ctx context.Context) {
		for _, metadata := range []metav1.ObjectMeta{
			{Finalizers: []string{"example.com/a"}},
			{OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "absent", UID: "absent"}}},
		} {
			for _, labels := range []map[string]string{
				nil, {v1alpha1.LabelManagedByTemplate: "team"}, {v1alpha1.LabelLocked: "true"},
			} {
				metadata.Namespace, metadata.Name, metadata.Labels = namespace.Name, framework.Unique("adopted"), labels
				quota := &corev1.ResourceQuota{ObjectMeta: metadata}
				cluster.Ordinary.Creates(ctx, quota)
				object := corev1ac.ResourceQuota(quota.Name, namespace.Name).
					WithLabels(map[string]string{v1alpha1.LabelManagedByTemplate: "team", v1alpha1.LabelLocked: "true"}).
					WithAnnotations(map[string]string{v1alpha1.AnnotationNamespaceUID: string(namespace.UID)})
				adopt := func(options ...client.ApplyOption) error {
					return provisioner.Apply(ctx, object, append(options, templateManager, client.ForceOwnership)...)
				}
				Expect(adopt()).To(BeDeniedBy(internalv1alpha1.PolicyTemplateObjects, `object "`+quota.Name+`"`, "cannot be locked"))
				Expect(adopt(client.DryRunAll)).To(BeDeniedBy(internalv1alpha1.PolicyTemplateObjects, "cannot be locked"))
				clear := framework.MergePatch(`{"metadata":{"finalizers":null,"ownerReferences":null}}`)
				Expect(cluster.Ordinary.Patch(ctx, quota, clear)).To(Succeed())
				Expect(adopt()).To(Succeed())
				Expect(cluster.Ordinary.Delete(ctx, quota)).To(BeLocked(quota.Name))
			}
		}
	})

	It("keeps the status that the API server enforces while it is being deleted", func(ctx context.Context) {
		quota := locked(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace.Name, Name: "quota", Finalizers: []string{"example.com/a"},
		}})
		budget := locked(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace.Name, Name: "budget", Finalizers: []string{"example.com/a"},
		}})
		for _, object := range []client.Object{quota, budget} {
			provisioner.Creates(ctx, object)
			provisioner.Deletes(ctx, object)
			cluster.Ordinary.Reads(ctx, object)
		}
		quota.Status.Hard = corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("100")}
		budget.Status.DisruptionsAllowed = 5
		for _, object := range []client.Object{quota, budget} {
			Expect(cluster.Ordinary.Status().Update(ctx, object)).To(BeLocked(object.GetName()))
			clear := framework.MergePatch(`{"metadata":{"finalizers":null}}`)
			Expect(cluster.Ordinary.Patch(ctx, object, clear)).To(Succeed())
			framework.ExpectDeleted(ctx, cluster.Admin, object)
		}
	})

	It("can be deleted while the namespace is terminating only with the verbs, as its controllers have", func(ctx context.Context) {
		pod := wrappers.MakePod(namespace.Name, "running")
		pod.Finalizers = []string{"example.com/a"}
		cluster.Ordinary.Creates(ctx, pod)
		cluster.Ordinary.Deletes(ctx, namespace)
		Eventually(func(g Gomega) {
			g.Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "late"))).To(MatchError(
				ContainSubstring("is being terminated")))
		}).WithContext(ctx).Should(Succeed())
		Expect(cluster.Ordinary.Delete(ctx, config.DeepCopy())).To(BeLocked("config"))
		Expect(cluster.Ordinary.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace.Name))).
			To(BeLocked("config"))
		config.Data = map[string]string{"a": "b"}
		Expect(cluster.Ordinary.Update(ctx, config.DeepCopy())).To(BeLocked("config"))

		operator, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		account := func(name string) *framework.User {
			return cluster.Impersonate("system:serviceaccount:kube-system:"+name,
				"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
		}
		// The controllers, if they do not use their own ServiceAccounts.
		const controllers = "system:kube-controller-manager"
		allow(ctx, controllers, "delete", "", "configmaps")
		// The manager adds the type to its ClusterRole when it finalizes a namespace.
		allow(ctx, "system:serviceaccount:"+controlplane.SystemNamespace+":"+controlplane.ServiceAccount,
			"delete", "", "configmaps")
		for _, user := range []*framework.User{
			framework.NewUser(operator), account("namespace-controller"), account("generic-garbage-collector"),
			cluster.Impersonate(controllers, "system:authenticated"), provisioner,
		} {
			Expect(user.Delete(ctx, config.DeepCopy(), client.DryRunAll)).To(Succeed())
		}
		By("deleting it after the Pod, with kube-controller-manager")
		manager, err := cluster.StartControllerManager(ctx,
			"--controllers=namespace-controller,garbage-collector-controller", "--use-service-account-credentials")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(manager.Stop)
		Eventually(func(g Gomega) {
			g.Expect(cluster.Ordinary.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
			g.Expect(pod.DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
		cluster.Ordinary.Reads(ctx, config)
		cluster.Ordinary.Patches(ctx, pod, `{"metadata":{"finalizers":null}}`)
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	})
}

const account = "team-provisioner"

func makeTemplate(name string, copies ...v1alpha1.TemplateSourceReference) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metaOf("", name), Spec: v1alpha1.NamespaceTemplateSpec{
		ServiceAccountName: account,
		Objects: []v1alpha1.TemplateObject{{
			Name: "config", Template: &runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"}}`),
			},
		}},
	}}
	for i, source := range copies {
		template.Spec.Objects = append(template.Spec.Objects, v1alpha1.TemplateObject{
			Name: fmt.Sprintf("copy%d", i), SourceRef: &source,
		})
	}
	return template
}

func authorsOfTemplates() {
	// makeAuthor returns a user who can write templates, and grants the rules in a namespace.
	makeAuthor := func(ctx context.Context, namespace string, rules ...rbacv1.PolicyRule) (string, *framework.User) {
		GinkgoHelper()
		name := framework.Unique("author")
		author := cluster.AddUserWithRules(ctx, name, rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group},
			Resources: []string{"namespacetemplates", "namespacetemplates/status"}, Verbs: []string{"*"},
		})
		if len(rules) > 0 {
			meta := metaOf(namespace, name)
			cluster.Admin.Creates(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules})
			cluster.Admin.Creates(ctx, &rbacv1.RoleBinding{
				ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
			})
		}
		return name, author
	}
	impersonate := func(group, verb string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups: []string{group}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{account},
			Verbs: []string{verb},
		}
	}
	BeForbidden := func(texts ...string) OmegaMatcher {
		return BeForbiddenBy(internalv1alpha1.PolicyTemplateAuthors, texts...)
	}
	eventually := func(do func() error, matcher OmegaMatcher) {
		GinkgoHelper()
		Eventually(do).Should(matcher)
	}

	It("must be allowed to impersonate its ServiceAccount", func(ctx context.Context) {
		create := func(_ string, author *framework.User) func() error {
			return func() error { return author.Create(ctx, makeTemplate("authored"), client.DryRunAll) }
		}
		eventually(create(makeAuthor(ctx, "")),
			BeForbidden(`impersonate ServiceAccount "nslifecycle-system/team-provisioner"`, `NamespaceTemplate "authored"`))
		eventually(create(makeAuthor(ctx, controlplane.SystemNamespace, impersonate("", "impersonate"))), Succeed())

		By("having only the verb of constrained impersonation")
		name, author := makeAuthor(ctx, controlplane.SystemNamespace,
			impersonate("authentication.k8s.io", "impersonate:serviceaccount"))
		eventually(create(name, author), BeForbidden("impersonate"))
		Consistently(create(name, author)).Should(BeForbidden("impersonate"))

		By("having the permission in another namespace, or for another ServiceAccount")
		name, author = makeAuthor(ctx, "default", impersonate("", "impersonate"))
		eventually(create(name, author), BeForbidden("impersonate"))
		Consistently(create(name, author)).Should(BeForbidden("impersonate"))
		name, author = makeAuthor(ctx, controlplane.SystemNamespace, impersonate("", "impersonate"))
		eventually(create(name, author), Succeed())
		other := makeTemplate("authored")
		other.Spec.ServiceAccountName = "controller-manager"
		Expect(author.Create(ctx, other)).To(BeForbidden("nslifecycle-system/controller-manager"))
	})

	It("is checked in an update only if the spec changes", func(ctx context.Context) {
		template := makeTemplate(framework.Unique("updated"))
		cluster.Admin.Creates(ctx, template)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, template)).To(Succeed()) })
		_, author := makeAuthor(ctx, "")
		template.Labels = map[string]string{"note": "x"}
		eventually(func() error { return author.Update(ctx, template.DeepCopy()) }, Succeed())
		cluster.Admin.Reads(ctx, template)
		template.Status.UpdateRevision = "1"
		Expect(author.Status().Update(ctx, template)).To(Succeed())
		template.Spec.Scope = v1alpha1.ScopeAllNamespaces
		Expect(author.Update(ctx, template)).To(BeForbidden("impersonate"))
	})

	It("must be allowed to get the sources of the copies", func(ctx context.Context) {
		var copies []v1alpha1.TemplateSourceReference
		for i := range 16 {
			copies = append(copies, v1alpha1.TemplateSourceReference{
				Kind: []string{"Secret", "ConfigMap"}[i%2], Name: fmt.Sprintf("source%d", i),
			})
		}
		get := func(resource string, names ...string) rbacv1.PolicyRule {
			return rbacv1.PolicyRule{
				APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{"get"},
			}
		}
		rules := []rbacv1.PolicyRule{get("secrets"), get("configmaps")}
		for i := range 15 {
			rules[i%2].ResourceNames = append(rules[i%2].ResourceNames, fmt.Sprintf("source%d", i))
		}
		name, author := makeAuthor(ctx, controlplane.SourceNamespace, rules...)
		allow(ctx, name, "impersonate", "", "serviceaccounts", account)
		eventually(func() error {
			return author.Create(ctx, makeTemplate("copies", copies[:15]...), client.DryRunAll)
		}, Succeed())
		Expect(author.Create(ctx, makeTemplate("copies", copies...))).
			To(BeForbidden(`get ConfigMap "nslifecycle-sources/source15"`, `NamespaceTemplate "copies"`))
		By("having the permissions in another namespace")
		other, otherAuthor := makeAuthor(ctx, "default", rules...)
		allow(ctx, other, "impersonate", "", "serviceaccounts", account)
		eventually(func() error { return otherAuthor.Create(ctx, makeTemplate("copies", copies[:1]...)) },
			BeForbidden(`get Secret "nslifecycle-sources/source0"`))
		By("changing one of the sources")
		template := makeTemplate(framework.Unique("copies"), copies[:1]...)
		author.Creates(ctx, template)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, template)).To(Succeed()) })
		template.Spec.Objects[1].SourceRef.Kind = "ConfigMap"
		Expect(author.Update(ctx, template)).To(BeForbidden(`get ConfigMap "nslifecycle-sources/source0"`))
	})

	It("cannot write a template while no set exists", func(ctx context.Context) {
		publishLater()
		set := cluster.EffectiveSet(Default, ctx)
		cluster.Admin.Deletes(ctx, set)
		eventually(func() error { return cluster.Admin.Create(ctx, makeTemplate("early"), client.DryRunAll) },
			MatchError(ContainSubstring("nslifecycle-template-authors")))
		publishSet(ctx, func(set *internalv1alpha1.NamespaceInitializerSet) { set.SystemNamespace = "" })
		eventually(func() error { return cluster.Admin.Create(ctx, makeTemplate("early"), client.DryRunAll) },
			BeForbidden("wait until the operator is running"))
	})
}
