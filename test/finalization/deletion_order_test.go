// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("Objects that other controllers require to finish", func() {
	It("are kept until a controller in the namespace removes its finalizers", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "in-namespace-controller")
		all := makeContent(namespace.Name)
		create(ctx, all...)
		role := &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "widgets"},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{custom.group}, Resources: []string{custom.plural}, Verbs: []string{"list", "patch"}},
				{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: []string{"get"}},
			},
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "widgets"}}
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "widgets"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace.Name, Name: account.Name}},
		}
		settings := wrappers.MakeConfigMap(namespace.Name, "widgets")
		settings.Data = map[string]string{"finalizer": testFinalizer}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "widgets"}}
		secret.StringData = map[string]string{"patch": `{"metadata":{"finalizers":null}}`}
		create(ctx, role, account, binding, settings, secret)
		// Request the token before the deletion, because the API server issues no tokens for
		// ServiceAccounts in a terminating namespace.
		config, err := plane.ServiceAccountConfig(ctx, namespace.Name, account.Name)
		Expect(err).NotTo(HaveOccurred())
		held := withFinalizer(custom.object(namespace.Name, "held"))
		createCustom(ctx, custom, held)

		deleteObject(ctx, namespace)
		removeClaimFinalizersWhenTerminating(ctx, all)
		By("waiting for the deletion of objects that the controller does not require")
		needed := all[:0:0]
		for _, object := range all {
			switch object.GetObjectKind().GroupVersionKind().Kind {
			case "Deployment", "Service", "PersistentVolumeClaim":
				expectDeleted(ctx, object)
			default:
				needed = append(needed, object)
			}
		}
		Expect(needed).To(HaveLen(7), "one object of each type in the last stage")
		needed = append(needed, role, account, binding, settings, secret)
		eventuallyNamespace(ctx, namespace.Name, And(
			HaveRemaining(custom.remaining(1), "configmaps. has 2", "secrets. has 2", "serviceaccounts. has 2",
				"roles.rbac.authorization.k8s.io has 2", "rolebindings.rbac.authorization.k8s.io has 2",
				"networkpolicies.networking.k8s.io has 1", "leases.coordination.k8s.io has 1"),
			HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"),
			HaveDeletionOrdered(custom.plural, "ServiceAccounts"),
		))
		expectKept(ctx, needed...)

		By("removing the finalizer as a ServiceAccount in the namespace")
		clientset, err := kubernetes.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		dynamicClient, err := dynamic.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		read, err := clientset.CoreV1().ConfigMaps(namespace.Name).Get(ctx, settings.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(read.Data["finalizer"]).To(Equal(testFinalizer))
		readSecret, err := clientset.CoreV1().Secrets(namespace.Name).Get(ctx, secret.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		widgets := dynamicClient.Resource(custom.resource()).Namespace(namespace.Name)
		list, err := widgets.List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Items).To(HaveLen(1))
		_, err = widgets.Patch(ctx, list.Items[0].GetName(), types.MergePatchType, readSecret.Data["patch"], metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())

		expectDeleted(ctx, namespace)
		expectNoObjects(ctx, namespace.Name)
	})
})
