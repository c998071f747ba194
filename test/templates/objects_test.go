// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const templateManager = client.FieldOwner("nslifecycle-template-team")

// makeOpen returns an open namespace.
func makeOpen(ctx context.Context) *corev1.Namespace {
	GinkgoHelper()
	publishSet(ctx, func(set *v1alpha1.NamespaceInitializerSet) { set.Initializers = nil })
	return framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("objects"))
}

// locked adds the labels of a locked object.
func locked[T client.Object](object T) T {
	object.SetLabels(map[string]string{v1alpha1.LabelTemplate: "team", v1alpha1.LabelLocked: "true"})
	return object
}

var BeLocked = func(name string) OmegaMatcher {
	return BeForbiddenBy(v1alpha1.PolicyTemplateObjects, `object "`+name+`" of NamespaceTemplate "team" is locked`)
}

var _ = Describe("A write of a template", func() {
	apply := func(ctx context.Context, namespace, uid string, owner client.FieldOwner) error {
		object := corev1ac.ConfigMap("config", namespace).WithLabels(map[string]string{v1alpha1.LabelTemplate: "team"}).
			WithData(map[string]string{"uid": uid})
		if uid != "" {
			object.WithAnnotations(map[string]string{v1alpha1.AnnotationNamespaceUID: uid})
		}
		return furnisher.Apply(ctx, object, owner, client.ForceOwnership)
	}

	It("is rejected if the object was rendered for another namespace", func(ctx context.Context) {
		namespace := makeOpen(ctx)
		rejected := BeDeniedBy(v1alpha1.PolicyTemplateObjects, `object "config" of NamespaceTemplate "team" was not rendered`,
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
		Expect(furnisher.Delete(ctx, wrappers.MakeConfigMap(namespace.Name, "config"))).To(Succeed())
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("A locked object", func() {
	var namespace *corev1.Namespace
	var config *corev1.ConfigMap

	BeforeEach(func(ctx context.Context) {
		namespace = makeOpen(ctx)
		config = locked(wrappers.MakeConfigMap(namespace.Name, "config"))
		Expect(furnisher.Create(ctx, config)).To(Succeed())
	}, NodeTimeout(5*time.Minute))

	It("cannot be created, changed or deleted without the verbs", func(ctx context.Context) {
		Expect(cluster.Ordinary.Create(ctx, locked(wrappers.MakeConfigMap(namespace.Name, "mine")))).To(BeLocked("mine"))
		generated := locked(wrappers.MakeConfigMap(namespace.Name, ""))
		generated.GenerateName = "mine-"
		Expect(cluster.Ordinary.Create(ctx, generated)).To(BeForbiddenBy(v1alpha1.PolicyTemplateObjects, "is locked"))
		for name, patch := range map[string]string{
			"data": `{"data":{"a":"b"}}`, "the lock": `{"metadata":{"labels":{"nslifecycle.dev/locked":null}}}`,
			"the template":  `{"metadata":{"labels":{"nslifecycle.dev/template":null}}}`,
			"both labels":   `{"metadata":{"labels":null}}`,
			"an annotation": `{"metadata":{"annotations":{"a":"b"}}}`, "a finalizer": `{"metadata":{"finalizers":["a.b/c"]}}`,
		} {
			By("patching " + name)
			for _, options := range [][]client.PatchOption{nil, {client.DryRunAll}, {templateManager}} {
				merge := client.RawPatch(types.MergePatchType, []byte(patch))
				Expect(cluster.Ordinary.Patch(ctx, config.DeepCopy(), merge, options...)).
					To(BeDeniedBy(v1alpha1.PolicyTemplateObjects))
			}
		}
		Expect(cluster.Ordinary.Update(ctx, wrappers.MakeConfigMap(namespace.Name, "config"))).To(BeLocked("config"))
		Expect(cluster.Ordinary.Delete(ctx, config.DeepCopy())).To(BeLocked("config"))
		Expect(cluster.Ordinary.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace.Name))).
			To(BeLocked("config"))
		for _, user := range []*framework.User{furnisher, cluster.Initializer} {
			config.Data = map[string]string{"user": framework.Unique("x")}
			Expect(user.Update(ctx, config)).To(Succeed())
		}
		Expect(furnisher.Delete(ctx, config)).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("cannot be made from the object of a user, which can be changed", func(ctx context.Context) {
		object := wrappers.MakeConfigMap(namespace.Name, "mine")
		object.Labels = map[string]string{v1alpha1.LabelTemplate: "team"}
		Expect(cluster.Ordinary.Create(ctx, object)).To(Succeed())
		object.Data = map[string]string{"a": "b"}
		Expect(cluster.Ordinary.Update(ctx, object)).To(Succeed())
		Expect(cluster.Ordinary.Update(ctx, locked(object.DeepCopy()))).To(BeLocked("mine"))
		Expect(cluster.Ordinary.Delete(ctx, object)).To(Succeed())
	}, SpecTimeout(5*time.Minute))

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
		Expect(furnisher.Create(ctx, deployment)).To(Succeed())
		deployment.Status.ObservedGeneration = 1
		Expect(cluster.Ordinary.Status().Update(ctx, deployment)).To(Succeed())
		By("making the garbage collector delete the object, or preventing its deletion")
		for _, metadata := range []string{
			`{"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"absent","uid":"absent"}]}`,
			`{"finalizers":["example.com/a"]}`, `{"annotations":{"a":"b"}}`,
		} {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":`+metadata+`,"status":{"replicas":1}}`))
			Expect(cluster.Ordinary.Status().Patch(ctx, deployment.DeepCopy(), patch)).To(BeLocked("app"), metadata)
		}
		By("replacing the quota that the API server enforces")
		quota := locked(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "quota"}})
		quota.Spec.Hard = corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("1")}
		Expect(furnisher.Create(ctx, quota)).To(Succeed())
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
		Expect(furnisher.Create(ctx, pod)).To(Succeed())
		for _, subresource := range []string{"ephemeralcontainers", "resize"} {
			Expect(cluster.Ordinary.SubResource(subresource).Update(ctx, pod.DeepCopy())).To(BeLocked("pod"))
		}
		pod.Labels = nil
		Expect(cluster.Ordinary.Status().Update(ctx, pod)).To(BeLocked("pod"))
	}, SpecTimeout(5*time.Minute))

	It("can lose its finalizers while it is being deleted", func(ctx context.Context) {
		config.Finalizers = []string{"example.com/a", "example.com/b"}
		Expect(furnisher.Update(ctx, config)).To(Succeed())
		remove := func() error {
			return cluster.Ordinary.Patch(ctx, wrappers.MakeConfigMap(namespace.Name, "config"),
				client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers/0"}]`)))
		}
		Expect(remove()).To(BeLocked("config"))
		Expect(furnisher.Delete(ctx, config)).To(Succeed())
		Expect(cluster.Ordinary.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		config.Data = map[string]string{"a": "b"}
		Expect(cluster.Ordinary.Update(ctx, config.DeepCopy())).To(BeLocked("config"))
		Expect(remove()).To(Succeed())
		Expect(remove()).To(Succeed())
		framework.ExpectDeleted(ctx, cluster.Admin, config)
	}, SpecTimeout(5*time.Minute))

	// The garbage collector deletes an object whose owner does not exist, and a finalizer then keeps it: the
	// API server would enforce a quota that is being deleted, with a status that users can write.
	It("cannot be made from an object with finalizers or owner references, whichever labels it has", func(ctx context.Context) {
		for _, metadata := range []metav1.ObjectMeta{
			{Finalizers: []string{"example.com/a"}},
			{OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "absent", UID: "absent"}}},
		} {
			for _, labels := range []map[string]string{
				nil, {v1alpha1.LabelTemplate: "team"}, {v1alpha1.LabelLocked: "true"},
			} {
				metadata.Namespace, metadata.Name, metadata.Labels = namespace.Name, framework.Unique("adopted"), labels
				quota := &corev1.ResourceQuota{ObjectMeta: metadata}
				Expect(cluster.Ordinary.Create(ctx, quota)).To(Succeed())
				object := corev1ac.ResourceQuota(quota.Name, namespace.Name).
					WithLabels(map[string]string{v1alpha1.LabelTemplate: "team", v1alpha1.LabelLocked: "true"}).
					WithAnnotations(map[string]string{v1alpha1.AnnotationNamespaceUID: string(namespace.UID)})
				adopt := func(options ...client.ApplyOption) error {
					return furnisher.Apply(ctx, object, append(options, templateManager, client.ForceOwnership)...)
				}
				Expect(adopt()).To(BeDeniedBy(v1alpha1.PolicyTemplateObjects, `object "`+quota.Name+`"`, "cannot be locked"))
				Expect(adopt(client.DryRunAll)).To(BeDeniedBy(v1alpha1.PolicyTemplateObjects, "cannot be locked"))
				clear := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null,"ownerReferences":null}}`))
				Expect(cluster.Ordinary.Patch(ctx, quota, clear)).To(Succeed())
				Expect(adopt()).To(Succeed())
				Expect(cluster.Ordinary.Delete(ctx, quota)).To(BeLocked(quota.Name))
			}
		}
	}, SpecTimeout(5*time.Minute))

	It("keeps the status that the API server enforces while it is being deleted", func(ctx context.Context) {
		quota := locked(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace.Name, Name: "quota", Finalizers: []string{"example.com/a"},
		}})
		budget := locked(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace.Name, Name: "budget", Finalizers: []string{"example.com/a"},
		}})
		for _, object := range []client.Object{quota, budget} {
			Expect(furnisher.Create(ctx, object)).To(Succeed())
			Expect(furnisher.Delete(ctx, object)).To(Succeed())
			Expect(cluster.Ordinary.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		}
		quota.Status.Hard = corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("100")}
		budget.Status.DisruptionsAllowed = 5
		for _, object := range []client.Object{quota, budget} {
			Expect(cluster.Ordinary.Status().Update(ctx, object)).To(BeLocked(object.GetName()))
			clear := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			Expect(cluster.Ordinary.Patch(ctx, object, clear)).To(Succeed())
			framework.ExpectDeleted(ctx, cluster.Admin, object)
		}
	}, SpecTimeout(5*time.Minute))

	It("can be deleted while the namespace is terminating only with the verbs, as its controllers have", func(ctx context.Context) {
		pod := wrappers.MakePod(namespace.Name, "running")
		pod.Finalizers = []string{"example.com/a"}
		Expect(cluster.Ordinary.Create(ctx, pod)).To(Succeed())
		Expect(cluster.Ordinary.Delete(ctx, namespace)).To(Succeed())
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
			cluster.Impersonate(controllers, "system:authenticated"), furnisher,
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
		Expect(cluster.Ordinary.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		Expect(cluster.Ordinary.Patch(ctx, pod, client.RawPatch(
			types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, SpecTimeout(5*time.Minute))
})
