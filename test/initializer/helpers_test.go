// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// unique returns a name that no other spec in this process uses.
var unique = framework.Unique

func newScheme() *runtime.Scheme { return scheme.New() }

// serving is the RBAC rule that every initializer requires.
var serving = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"},
	Verbs: []string{"get", "list", "watch", "patch", "initialize"}}

// userOf returns the user name of a ServiceAccount.
func userOf(account string) string { return "system:serviceaccount:" + accounts + ":" + account }

// newAccount creates a ServiceAccount with cluster-wide permissions, which exists until the end of
// the spec. It returns a client configuration for the ServiceAccount.
func newAccount(ctx context.Context, account string, rules ...rbacv1.PolicyRule) *rest.Config {
	GinkgoHelper()
	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: accounts, Name: account}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: account},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: accounts, Name: account}},
		},
	} {
		Expect(admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(admin.Delete(ctx, object))).To(Succeed())
		})
	}
	config, err := plane.ServiceAccountConfig(ctx, accounts, account)
	Expect(err).NotTo(HaveOccurred())
	framework.ExpectAllowed(ctx, config, rules[0])
	return config
}

func newClientset(config *rest.Config) kubernetes.Interface {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(controlplane.Unlimited(config))
	Expect(err).NotTo(HaveOccurred())
	return clientset
}

// register replaces all configurations with one configuration that names these initializers. It is
// deleted at the end of the spec.
func register(ctx context.Context, names ...string) {
	GinkgoHelper()
	registered(ctx, wrappers.MakeConfiguration(unique("suite")).Initializers(names...).Obj())
}

func registered(ctx context.Context, configuration *v1alpha1.NamespaceInitializerConfiguration) {
	GinkgoHelper()
	Expect(admin.Create(ctx, configuration)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(admin.Delete(ctx, configuration))).To(Succeed())
		expectInjected(ctx)
	})
	var names []string
	for _, initializer := range configuration.Initializers {
		names = append(names, initializer.Name)
	}
	expectInjected(ctx, names...)
}

// expectInjected waits until new namespaces get a pending list with these names.
func expectInjected(ctx context.Context, names ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
		g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(pendingOf(probe)).To(Equal(strings.Join(names, ",")))
	}).WithContext(ctx).Should(Succeed())
}

// create creates a namespace, as an administrator.
func create(ctx context.Context, namespace *wrappers.NamespaceWrapper) *corev1.Namespace {
	GinkgoHelper()
	created := namespace.Obj()
	Expect(admin.Create(ctx, created)).To(Succeed())
	Expect(created.Labels).To(HaveKey(v1alpha1.LabelInitializing))
	return created
}

// get returns the current namespace.
func get(g Gomega, ctx context.Context, name string) *corev1.Namespace {
	namespace := &corev1.Namespace{}
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
	return namespace
}

func pendingOf(namespace *corev1.Namespace) string {
	return namespace.Annotations[v1alpha1.AnnotationPendingInitializers]
}

// isReady reports whether the initialization of a namespace is complete.
func isReady(namespace *corev1.Namespace) bool {
	condition := nscondition.Find(namespace, v1alpha1.ConditionInitializing)
	return condition != nil && condition.Reason == v1alpha1.ReasonCompleted
}

// expectReady waits until the initialization of the namespaces is complete.
func expectReady(ctx context.Context, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		Eventually(func(g Gomega) {
			namespace := get(g, ctx, name)
			g.Expect(isReady(namespace)).To(BeTrue(), "namespace %s is waiting for %q; its conditions are %v",
				name, pendingOf(namespace), namespace.Status.Conditions)
		}).WithContext(ctx).Should(Succeed())
	}
}

// expectDeleted waits until a namespace no longer exists.
func expectDeleted(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Eventually(func() bool {
		return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(namespace), &corev1.Namespace{}))
	}).WithContext(ctx).Should(BeTrue(), "namespace %s still exists", namespace.Name)
}
