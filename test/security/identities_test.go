// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// almostInitializers are rules of ClusterRoles that look as if they granted the initialize verb, but do not.
var almostInitializers = map[string]rbacv1.PolicyRule{
	"on another namespace": {
		APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"default"},
		Verbs: []string{"initialize"},
	},
	"on subresources": {
		APIGroups: []string{""}, Resources: []string{"namespaces/status", "namespaces/finalize", "*/initialize"},
		Verbs: []string{"initialize"},
	},
	"in another group": {
		APIGroups: []string{v1alpha1.GroupVersion.Group, "apps"}, Resources: []string{"*"}, Verbs: []string{"*"},
	},
	"on other resources": {
		APIGroups: []string{""}, Resources: []string{"pods", "namespace"}, Verbs: []string{"initialize"},
	},
	"in upper case": {APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"Initialize"}},
	"on a path":     {NonResourceURLs: []string{"*"}, Verbs: []string{"*"}},
}

var _ = Describe("An identity without the initialize verb", Ordered, ContinueOnFailure, func() {
	var namespace *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		namespace = cluster.CreateInitializing(ctx, "identities")
	}, NodeTimeout(5*time.Minute))

	// expectRejected checks that a user who may write ConfigMaps and Namespaces can neither write to the
	// namespace nor complete its initialization.
	expectRejected := func(ctx context.Context, user *framework.User) {
		GinkgoHelper()
		Eventually(func() error {
			return user.Create(ctx, wrappers.MakeConfigMap(namespace.Name, framework.Unique("written")))
		}).WithContext(ctx).Should(BeForbiddenBy("gate"))
		Expect(user.Patch(ctx, namespace.DeepCopy(),
			framework.MergePatch(`{"metadata":{"annotations":{"nslifecycle.dev/pending-initializers":""}}}`))).To(BeForbiddenBy("guard"))
		expectUnchanged(ctx, namespace)
	}
	writer := rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: []string{"create", "get", "patch"},
	}

	for name, rule := range almostInitializers {
		It("cannot get it from a rule "+name, func(ctx context.Context) {
			expectRejected(ctx, cluster.AddUserWithRules(ctx, framework.Unique("almost"), writer, rule))
		}, SpecTimeout(5*time.Minute))
	}

	It("can be a ServiceAccount in the namespace with all permissions there", func(ctx context.Context) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "tenant"}}
		Eventually(cluster.Initializer.Create).WithContext(ctx).WithArguments(account).Should(Succeed())
		for _, role := range []string{"cluster-admin", "nslifecycle-namespace-initializer"} {
			cluster.Initializer.Creates(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: role},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects: []rbacv1.Subject{{
					Kind: rbacv1.ServiceAccountKind, Namespace: namespace.Name, Name: account.Name,
				}},
			})
		}
		request := &authenticationv1.TokenRequest{}
		Expect(cluster.Ordinary.SubResource("token").Create(ctx, account, request.DeepCopy())).To(BeForbiddenBy("gate"))
		Expect(cluster.Initializer.SubResource("token").Create(ctx, account, request)).To(Succeed())
		config := rest.AnonymousClientConfig(cluster.Admin.Config)
		config.BearerToken = request.Status.Token
		expectRejected(ctx, framework.NewUser(config))
	}, SpecTimeout(5*time.Minute))

	It("can impersonate only identities without the verb", func(ctx context.Context) {
		name := framework.Unique("impersonator")
		user := cluster.AddUserWithRules(ctx, name, writer,
			rbacv1.PolicyRule{
				APIGroups: []string{""}, Resources: []string{"users"}, ResourceNames: []string{name},
				Verbs: []string{"impersonate"},
			},
			rbacv1.PolicyRule{
				APIGroups: []string{authenticationv1.GroupName}, Resources: []string{"uids", "userextras/scopes"},
				Verbs: []string{"impersonate"},
			})
		as := func(impersonated rest.ImpersonationConfig) *framework.User {
			config := rest.CopyConfig(user.Config)
			config.Impersonate = impersonated
			return framework.NewUser(config)
		}
		expectRejected(ctx, as(rest.ImpersonationConfig{
			UserName: name, UID: "0", Extra: map[string][]string{"scopes": {framework.InitializerUser, "system:masters"}},
		}))
		for _, forbidden := range []rest.ImpersonationConfig{
			{UserName: framework.InitializerUser}, {UserName: framework.ManagerUser},
			{UserName: "system:serviceaccount:kube-system:generic-garbage-collector"},
			{UserName: name, Groups: []string{"system:masters"}},
			{UserName: name, Groups: []string{"system:serviceaccounts:kube-system"}},
		} {
			_, err := as(forbidden).Clientset().CoreV1().ConfigMaps(namespace.Name).Create(ctx,
				wrappers.MakeConfigMap(namespace.Name, framework.Unique("written")), metav1.CreateOptions{})
			Expect(err).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("cannot impersonate"))))
		}
		var written corev1.ConfigMapList
		Expect(cluster.Admin.List(ctx, &written, client.InNamespace(namespace.Name))).To(Succeed())
		for _, one := range written.Items {
			Expect(one.Name).NotTo(HavePrefix("written"))
		}
	}, SpecTimeout(5*time.Minute))
})

// The gate allows writes by the controllers of kube-controller-manager. An ordinary user must not
// be able to use these controllers to change an initializing namespace.
var _ = Describe("A cluster with kube-controller-manager", Ordered, func() {
	var namespace, own *corev1.Namespace

	BeforeAll(func(ctx context.Context) {
		running, err := cluster.StartControllerManager(ctx, "--use-service-account-credentials=true",
			"--controllers=garbage-collector-controller,persistentvolume-binder-controller,serviceaccount-controller,"+
				"root-ca-certificate-publisher-controller,clusterrole-aggregation-controller,resourcequota-controller,"+
				"endpointslice-controller,ttl-after-finished-controller")
		if errors.Is(err, controlplane.ErrNoControllerManager) {
			Skip(err.Error())
		}
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })
		own = framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("own"))
		namespace = cluster.CreateInitializing(ctx, "controllers")
	}, NodeTimeout(5*time.Minute))

	It("allows its controllers to write to an initializing namespace", func(ctx context.Context) {
		for _, object := range []client.Object{
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
			wrappers.MakeConfigMap("", "kube-root-ca.crt"),
		} {
			object.SetNamespace(namespace.Name)
			Eventually(func() error {
				return cluster.Admin.Get(ctx, client.ObjectKeyFromObject(object), object)
			}).WithContext(ctx).Should(Succeed())
		}
	}, SpecTimeout(specTimeout))

	It("does not let forged owner references make the garbage collector delete objects", func(ctx context.Context) {
		owner := wrappers.MakeConfigMap(namespace.Name, "owner")
		cluster.Initializer.Creates(ctx, owner)
		child := wrappers.MakeConfigMap(namespace.Name, "child")
		child.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
		cluster.Initializer.Creates(ctx, child)

		// These references are invalid: the owner is in another namespace, or its kind or name does not
		// match the UID.
		var forged []client.Object
		for _, reference := range []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID},
			{APIVersion: "v1", Kind: "ConfigMap", Name: "another", UID: owner.UID},
			{APIVersion: "v1", Kind: "Secret", Name: "owner", UID: owner.UID},
			{APIVersion: "v1", Kind: "Node", Name: "owner", UID: owner.UID},
			{APIVersion: "v1", Kind: "Namespace", Name: "absent", UID: namespace.UID},
			{APIVersion: "v1", Kind: "ConfigMap", Name: "child", UID: child.UID, BlockOwnerDeletion: new(true)},
		} {
			object := wrappers.MakeConfigMap(own.Name, framework.Unique("forged"))
			object.OwnerReferences = []metav1.OwnerReference{reference}
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("forged")}}
			role.OwnerReferences = object.OwnerReferences
			forged = append(forged, object, role)
		}
		for _, object := range forged {
			cluster.Ordinary.Creates(ctx, object)
		}
		DeferCleanup(func(ctx context.Context) {
			for _, object := range forged {
				Expect(client.IgnoreNotFound(cluster.Admin.Delete(ctx, object))).To(Succeed())
			}
		})
		By("waiting until the garbage collector has processed the objects and deleted the first one")
		Eventually(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKeyFromObject(forged[0]), &corev1.ConfigMap{})
		}).WithContext(ctx).Should(Satisfy(apierrors.IsNotFound))
		Consistently(func(g Gomega) {
			for _, object := range []*corev1.ConfigMap{owner, child} {
				now := &corev1.ConfigMap{}
				g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(object), now)).To(Succeed())
				g.Expect(now.DeletionTimestamp).To(BeNil())
			}
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).DeletionTimestamp).To(BeNil())
		}).WithContext(ctx).WithTimeout(3 * time.Second).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("deletes nothing outside of a namespace whose content refers to other objects", func(ctx context.Context) {
		// The namespaces of this container are initializing, so the initializer creates their content.
		victim := createVictim(ctx)
		other := cluster.GetNamespace(Default, ctx, victim.Namespace)
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("victim")}}
		cluster.Admin.Creates(ctx, role)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, role)).To(Succeed()) })
		var attacked []*corev1.Namespace
		for _, policy := range []metav1.DeletionPropagation{
			metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
		} {
			attacker := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("references"))
			first := wrappers.MakeConfigMap(attacker.Name, victim.Name)
			cluster.Initializer.Creates(ctx, first)
			for i, reference := range []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: victim.Name, UID: victim.UID},
				{APIVersion: "v1", Kind: "ConfigMap", Name: first.Name, UID: first.UID},
				{APIVersion: "v1", Kind: "Namespace", Name: other.Name, UID: other.UID},
				{APIVersion: "v1", Kind: "Namespace", Name: attacker.Name, UID: attacker.UID},
				{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: role.Name, UID: role.UID},
			} {
				reference.BlockOwnerDeletion = new(true)
				object := wrappers.MakeConfigMap(attacker.Name, fmt.Sprint("reference-", i))
				object.OwnerReferences = []metav1.OwnerReference{reference}
				object.Finalizers = []string{metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents}[i%2 : i%2+1]
				cluster.Initializer.Creates(ctx, object)
			}
			Expect(cluster.Initializer.Delete(ctx, first.DeepCopy(), client.PropagationPolicy(policy))).To(Succeed())
			attacked = append(attacked, attacker)
		}
		before := listEverything(ctx)
		var names []string
		for i, policy := range []client.PropagationPolicy{
			client.PropagationPolicy(metav1.DeletePropagationForeground), client.PropagationPolicy(metav1.DeletePropagationOrphan),
			client.PropagationPolicy(metav1.DeletePropagationBackground),
		} {
			Expect(cluster.Ordinary.Delete(ctx, attacked[i], policy)).To(Succeed())
			names = append(names, attacked[i].Name)
		}
		for _, attacker := range attacked {
			framework.ExpectDeleted(ctx, cluster.Admin, attacker)
		}
		before.expectKept(ctx, names...)
	}, SpecTimeout(specTimeout))

	It("does not let a user who can write ClusterRoles get the initialize verb through aggregation", func(ctx context.Context) {
		user := cluster.AddUserWithRules(ctx, "aggregator@corp.example.com", rbacv1.PolicyRule{
			APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles", "clusterrolebindings"},
			Verbs: []string{"create", "get", "list", "update", "patch"},
		})
		for _, verb := range []string{"initialize", "*"} {
			Eventually(func() error {
				return user.Create(ctx, &rbacv1.ClusterRole{
					ObjectMeta: metav1.ObjectMeta{
						Name: framework.Unique("aggregated"), Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-admin": "true"},
					},
					Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{verb}}},
				})
			}).WithContext(ctx).Should(MatchError(ContainSubstring("is attempting to grant RBAC permissions not currently held")))
		}
		Expect(user.Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("aggregation")},
			AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{
				MatchLabels: map[string]string{"app.kubernetes.io/name": "nslifecycle"},
			}}},
		})).To(MatchError(ContainSubstring("must have cluster-admin privileges to use the aggregationRule")))
	}, SpecTimeout(specTimeout))

	It("binds a PersistentVolume of an ordinary user to the PersistentVolumeClaim of an initializer (a known limit)", func(ctx context.Context) {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "data"}}
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim.Spec.StorageClassName = new("")
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("1Gi")}
		cluster.Initializer.Creates(ctx, claim)
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("volume")}}
		volume.Spec.AccessModes = claim.Spec.AccessModes
		volume.Spec.Capacity = claim.Spec.Resources.Requests
		volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace.Name, Name: "data"}
		volume.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/nonexistent"}
		cluster.Ordinary.Creates(ctx, volume)
		DeferCleanup(func(ctx context.Context) {
			for _, object := range []client.Object{claim, volume} {
				Expect(cluster.Admin.Patch(ctx, object, withoutFinalizers)).To(Succeed())
				Expect(client.IgnoreNotFound(cluster.Admin.Delete(ctx, object))).To(Succeed())
			}
		})
		Eventually(func(g Gomega) {
			now := &corev1.PersistentVolumeClaim{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(claim), now)).To(Succeed())
			g.Expect(now.Spec.VolumeName).To(Equal(volume.Name))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("deletes the dependents of a cluster-scoped object that an ordinary user deletes (a known limit)", func(ctx context.Context) {
		owner := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("owner")}}
		cluster.Admin.Creates(ctx, owner)
		child := wrappers.MakeConfigMap(namespace.Name, "depends")
		child.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: owner.Name, UID: owner.UID,
		}}
		cluster.Initializer.Creates(ctx, child)
		cluster.Ordinary.Deletes(ctx, owner)
		Eventually(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKeyFromObject(child), child)
		}).WithContext(ctx).Should(Satisfy(apierrors.IsNotFound))
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Labels).To(HaveKey(v1alpha1.LabelInitializing))
	}, SpecTimeout(specTimeout))
})
