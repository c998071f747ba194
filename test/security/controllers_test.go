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
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

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
			}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
		}
	}, SpecTimeout(specTimeout))

	It("does not let forged owner references make the garbage collector delete objects", func(ctx context.Context) {
		owner := wrappers.MakeConfigMap(namespace.Name, "owner")
		Expect(cluster.Initializer.Create(ctx, owner)).To(Succeed())
		child := wrappers.MakeConfigMap(namespace.Name, "child")
		child.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
		Expect(cluster.Initializer.Create(ctx, child)).To(Succeed())

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
			Expect(cluster.Ordinary.Create(ctx, object)).To(Succeed())
		}
		DeferCleanup(func(ctx context.Context) {
			for _, object := range forged {
				Expect(client.IgnoreNotFound(cluster.Admin.Delete(ctx, object))).To(Succeed())
			}
		})
		By("waiting until the garbage collector has processed the objects and deleted the first one")
		Eventually(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKeyFromObject(forged[0]), &corev1.ConfigMap{})
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Satisfy(apierrors.IsNotFound))
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
		Expect(cluster.Admin.Create(ctx, role)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, role)).To(Succeed()) })
		var attacked []*corev1.Namespace
		for _, policy := range []metav1.DeletionPropagation{
			metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
		} {
			attacker := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("references"))
			first := wrappers.MakeConfigMap(attacker.Name, victim.Name)
			Expect(cluster.Initializer.Create(ctx, first)).To(Succeed())
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
				Expect(cluster.Initializer.Create(ctx, object)).To(Succeed())
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
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		Expect(cluster.Initializer.Create(ctx, claim)).To(Succeed())
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("volume")}}
		volume.Spec.AccessModes = claim.Spec.AccessModes
		volume.Spec.Capacity = claim.Spec.Resources.Requests
		volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace.Name, Name: "data"}
		volume.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/nonexistent"}
		Expect(cluster.Ordinary.Create(ctx, volume)).To(Succeed())
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
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("deletes the dependents of a cluster-scoped object that an ordinary user deletes (a known limit)", func(ctx context.Context) {
		owner := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("owner")}}
		Expect(cluster.Admin.Create(ctx, owner)).To(Succeed())
		child := wrappers.MakeConfigMap(namespace.Name, "depends")
		child.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: owner.Name, UID: owner.UID,
		}}
		Expect(cluster.Initializer.Create(ctx, child)).To(Succeed())
		Expect(cluster.Ordinary.Delete(ctx, owner)).To(Succeed())
		Eventually(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKeyFromObject(child), child)
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Satisfy(apierrors.IsNotFound))
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Labels).To(HaveKey(v1alpha1.LabelInitializing))
	}, SpecTimeout(specTimeout))
})
