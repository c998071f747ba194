// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package confinement

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const system = controlplane.SystemNamespace

// accounts are the ServiceAccounts of the operator in all variants of the installation.
var accounts = []string{"nslifecycle-controller-manager", "nslifecycle-admission", "nslifecycle-finalization"}

var (
	cluster *framework.Cluster
	admin   *framework.User
	// operators are the users of the accounts, and operator is the first of them.
	operators map[string]*framework.User
	operator  *framework.User
	api       kubernetes.Interface
)

func TestConfinement(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Confinement")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()
	cluster = framework.Start(ctx)
	admin = cluster.Admin
	cluster.Install(ctx, "default")
	operators = map[string]*framework.User{}
	for _, name := range accounts {
		operators[name] = addAccount(ctx, system, name)
	}
	operator = operators[controlplane.ServiceAccount]
	api = operator.Clientset()
	Eventually(func() error {
		return operator.Create(ctx, wrappers.MakeConfigMap("default", "probe"), client.DryRunAll)
	}).
		WithContext(ctx).Should(BeRefused())
}, NodeTimeout(5*time.Minute))

// addAccount returns a ServiceAccount with all permissions.
func addAccount(ctx context.Context, namespace, name string) *framework.User {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := admin.Create(ctx, account); !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred())
	}
	cluster.Bind(ctx, framework.Unique("everything"), []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}},
	}, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name})
	config, err := cluster.ServiceAccountConfig(ctx, namespace, name)
	Expect(err).NotTo(HaveOccurred())
	user := framework.NewUser(config)
	Eventually(func() error { return user.List(ctx, &corev1.SecretList{}) }).WithContext(ctx).Should(Succeed())
	return user
}

// BeRefused matches the error of a request that only the policy confine denies.
func BeRefused(substrings ...string) OmegaMatcher {
	return matchers.BeForbiddenBy(v1alpha1.PolicyConfine, append([]string{"is not allowed to"}, substrings...)...)
}

// request is a request of the operator.
type request func(ctx context.Context) error

// makeNamespace creates a namespace, which is deleted after the spec without its content.
func makeNamespace(ctx context.Context, changes ...func(*wrappers.NamespaceWrapper)) *corev1.Namespace {
	GinkgoHelper()
	wrapper := wrappers.MakeNamespace(framework.Unique("shop"))
	for _, change := range changes {
		change(wrapper)
	}
	namespace := wrapper.Obj()
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	return namespace
}

// makeTerminating creates a terminating namespace with an object.
func makeTerminating(ctx context.Context, finalizers ...corev1.FinalizerName) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(framework.Unique("terminating")).Obj()
	namespace.Spec.Finalizers = finalizers
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	Expect(admin.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "content"))).To(Succeed())
	Expect(admin.Delete(ctx, namespace)).To(Succeed())
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
	return namespace
}

// patch patches a Namespace as the operator.
func patch(name string, kind types.PatchType, change map[string]any, subresources ...string) request {
	return func(ctx context.Context) error {
		body, err := json.Marshal(change)
		Expect(err).NotTo(HaveOccurred())
		options := metav1.PatchOptions{FieldManager: nswrite.FieldOwner}
		if kind == types.ApplyPatchType {
			options.Force = new(true)
		}
		_, err = api.CoreV1().Namespaces().Patch(ctx, name, kind, body, options, subresources...)
		return err
	}
}

// merge returns a merge patch of a Namespace.
func merge(name string, change map[string]any, subresources ...string) request {
	return patch(name, types.MergePatchType, change, subresources...)
}

func inMetadata(key string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{key: value}}
}

// condition returns a strategic merge patch that sets a condition.
func condition(name, conditionType string, changes ...func(map[string]any)) request {
	set := map[string]any{
		"type": conditionType, "status": "True", "reason": "Test", "lastTransitionTime": metav1.Now(), "message": "test",
	}
	for _, change := range changes {
		change(set)
	}
	return patch(name, types.StrategicMergePatchType,
		map[string]any{"status": map[string]any{"conditions": []any{set}}}, "status")
}
