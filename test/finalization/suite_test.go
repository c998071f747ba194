// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalization tests the finalization controller against a real API server. No other
// controller finalizes namespaces, unless a spec starts one.
package finalization

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nslifecycle/nslifecycle/internal/graceperiod"
	nsmanager "github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var (
	// cluster is shared by the specs of a process. Its manager finalizes namespaces with the permissions of its own
	// ServiceAccount, except in specs that stop it.
	cluster *framework.Cluster
	// admin and metadataClient send requests as a member of system:masters.
	admin          *framework.User
	metadataClient metadata.Interface
)

func TestFinalization(t *testing.T) {
	framework.RunSuite(t, "Finalization")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.ExpectNoLeaks()
	SetDefaultConsistentlyDuration(2 * time.Second)
	useControlPlane(framework.StartControlPlane(ctx))
	cluster.StartObserver(ctx)
	Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
	cluster.StartManager(ctx)
})

func useControlPlane(c *framework.Cluster) {
	GinkgoHelper()
	var err error
	cluster, admin = c, c.Admin
	metadataClient, err = metadata.NewForConfig(controlplane.Unlimited(c.Admin.Config))
	Expect(err).NotTo(HaveOccurred())
}

// testFinalizer is a finalizer that only the specs remove.
const testFinalizer = "test.example.com/hold"

// unique returns a name that no other call in this process returns.
var unique = framework.Unique

// createNamespace creates a namespace with additional namespace finalizers. The spec must delete
// the namespace.
func createNamespace(ctx context.Context, prefix string, finalizers ...corev1.FinalizerName) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(unique(prefix)).Obj()
	namespace.Spec.Finalizers = finalizers
	admin.Creates(ctx, namespace)
	return namespace
}

// expectKept checks that objects exist without a deletionTimestamp.
func expectKept(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		for _, object := range objects {
			now := object.DeepCopyObject().(client.Object)
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), now)).To(Succeed())
			g.Expect(now.GetDeletionTimestamp()).To(BeNil(), "%T %s is being deleted", object, object.GetName())
		}
	}).WithContext(ctx).Should(Succeed())
}

// withFinalizer adds testFinalizer to an object before its creation.
func withFinalizer[T client.Object](object T) T {
	controllerutil.AddFinalizer(object, testFinalizer)
	return object
}

// countOf returns the number of objects of a type in a namespace.
func countOf(g Gomega, ctx context.Context, gvr schema.GroupVersionResource, namespace string) int {
	list, err := metadataClient.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	return len(list.Items)
}

var HaveCondition = matchers.HaveCondition

// HaveRemaining matches a namespace whose conditions report remaining objects.
func HaveRemaining(texts ...string) types.GomegaMatcher {
	return HaveCondition(corev1.NamespaceContentRemaining, corev1.ConditionTrue, "SomeResourcesRemain", texts...)
}

// HaveFinalizersRemaining matches a namespace whose conditions report remaining finalizers.
func HaveFinalizersRemaining(texts ...string) types.GomegaMatcher {
	return HaveCondition(corev1.NamespaceFinalizersRemaining, corev1.ConditionTrue, "SomeFinalizersRemain", texts...)
}

// HaveContentFailure matches a namespace whose conditions report failed deletions.
func HaveContentFailure(texts ...string) types.GomegaMatcher {
	return HaveCondition(corev1.NamespaceDeletionContentFailure, corev1.ConditionTrue, "ContentDeletionFailed", texts...)
}

// HaveDiscoveryFailure matches a namespace whose conditions report failed discovery.
func HaveDiscoveryFailure(texts ...string) types.GomegaMatcher {
	return HaveCondition(corev1.NamespaceDeletionDiscoveryFailure, corev1.ConditionTrue, "DiscoveryFailed", texts...)
}

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// conditionTypes are the types of the conditions that finalization sets.
var conditionTypes = []corev1.NamespaceConditionType{
	corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
	corev1.NamespaceDeletionContentFailure, corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining,
}

// startManager runs a manager with the finalization controller until the spec ends.
func startManager(
	ctx context.Context, config *rest.Config, changes ...func(*nsmanager.Options),
) *controlplane.Manager {
	GinkgoHelper()
	started, err := controlplane.RunManager(ctx, config, append([]func(*nsmanager.Options){finalizationOnly}, changes...)...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(started.Stop()).To(Succeed()) })
	return started
}

func finalizationOnly(options *nsmanager.Options) {
	options.Controllers = nsmanager.Controllers{nsmanager.Finalization: true}
}

func withNamespaceFinalizer(finalizer corev1.FinalizerName) func(*nsmanager.Options) {
	return func(options *nsmanager.Options) { options.NamespaceFinalizer = finalizer }
}

func withGracePeriod(duration time.Duration) func(*nsmanager.Options) {
	return func(options *nsmanager.Options) {
		options.GracePeriod = graceperiod.GracePeriod{Fixed: &duration}
	}
}

// managerConfig returns a client configuration for the manager's ServiceAccount.
func managerConfig(ctx context.Context) *rest.Config {
	GinkgoHelper()
	return configOf(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount, corev1.FinalizerKubernetes)
}

// serviceAccountConfig returns a client configuration for a new ServiceAccount with the manager's permissions for
// finalization, and with a ClusterRole content of its own.
func serviceAccountConfig(ctx context.Context, name string, finalizer corev1.FinalizerName) *rest.Config {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault, Name: name + "-controller-manager",
	}}
	content := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name + "-content"}}
	keeper := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name + "-keeper"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{content.Name},
		Verbs: []string{"get", "update", "escalate"},
	}}}
	objects := []client.Object{account, content, keeper}
	for _, role := range []string{content.Name, keeper.Name, "nslifecycle-finalization-role"} {
		objects = append(objects, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{
				Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name,
			}},
		})
	}
	admin.Creates(ctx, objects...)
	DeferCleanup(func(ctx context.Context) {
		for _, object := range objects {
			admin.Deletes(ctx, object)
		}
	})
	return configOf(ctx, account.Namespace, account.Name, finalizer)
}

// configOf returns a client configuration for a ServiceAccount of a manager, which removes a namespace finalizer.
func configOf(ctx context.Context, namespace, name string, finalizer corev1.FinalizerName) *rest.Config {
	GinkgoHelper()
	config, err := cluster.ServiceAccountConfig(ctx, namespace, name)
	Expect(err).NotTo(HaveOccurred())
	cluster.Observation.Rules.Managers["system:serviceaccount:"+namespace+":"+name] = []corev1.FinalizerName{finalizer}
	return config
}

// useDedicatedControlPlane makes the following specs use a new control plane without this project.
func useDedicatedControlPlane(ctx context.Context, options ...controlplane.Option) {
	GinkgoHelper()
	shared := cluster
	DeferCleanup(func() { useControlPlane(shared) })
	useControlPlane(framework.StartControlPlane(ctx, options...))
	cluster.StartObserver(ctx)
}

// HaveNamespaceFinalizers matches a namespace with exactly the given namespace finalizers, in the
// given order.
func HaveNamespaceFinalizers(finalizers ...corev1.FinalizerName) types.GomegaMatcher {
	return WithTransform(func(namespace *corev1.Namespace) []corev1.FinalizerName {
		return append([]corev1.FinalizerName{}, namespace.Spec.Finalizers...)
	}, Equal(append([]corev1.FinalizerName{}, finalizers...)))
}

// BeTerminating matches a namespace with a deletionTimestamp and the phase Terminating.
func BeTerminating() types.GomegaMatcher {
	return WithTransform(func(namespace *corev1.Namespace) string {
		return fmt.Sprintf("deleted=%t phase=%s", namespace.DeletionTimestamp != nil, namespace.Status.Phase)
	}, Equal("deleted=true phase=Terminating"))
}

// BeActive matches a namespace with the phase Active and no deletionTimestamp.
func BeActive() types.GomegaMatcher {
	return WithTransform(func(namespace *corev1.Namespace) string {
		return fmt.Sprintf("deleted=%t phase=%s", namespace.DeletionTimestamp != nil, namespace.Status.Phase)
	}, Equal("deleted=false phase=Active"))
}

// HaveContentRemoved matches a namespace whose conditions report that it is empty.
func HaveContentRemoved() types.GomegaMatcher {
	return And(
		HaveCondition(corev1.NamespaceDeletionDiscoveryFailure, corev1.ConditionFalse, "ResourcesDiscovered"),
		HaveCondition(corev1.NamespaceDeletionGVParsingFailure, corev1.ConditionFalse, "ParsedGroupVersions"),
		HaveCondition(corev1.NamespaceDeletionContentFailure, corev1.ConditionFalse, "ContentDeleted"),
		HaveCondition(corev1.NamespaceContentRemaining, corev1.ConditionFalse, "ContentRemoved"),
		HaveCondition(corev1.NamespaceFinalizersRemaining, corev1.ConditionFalse, "ContentHasNoFinalizers"),
	)
}

// HaveNoFinalizationConditions matches a namespace without finalization conditions.
func HaveNoFinalizationConditions() types.GomegaMatcher {
	return WithTransform(func(namespace *corev1.Namespace) []corev1.NamespaceConditionType {
		found := []corev1.NamespaceConditionType{}
		for _, condition := range namespace.Status.Conditions {
			if slices.Contains(conditionTypes, condition.Type) {
				found = append(found, condition.Type)
			}
		}
		return found
	}, BeEmpty())
}

// eventuallyNamespace waits until a namespace matches.
func eventuallyNamespace(ctx context.Context, name string, expected ...types.GomegaMatcher) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(cluster.GetNamespace(g, ctx, name)).To(And(expected...))
	}).WithContext(ctx).Should(Succeed())
}

// consistentlyNamespace checks that a namespace continues to match.
func consistentlyNamespace(ctx context.Context, name string, expected ...types.GomegaMatcher) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		g.Expect(cluster.GetNamespace(g, ctx, name)).To(And(expected...))
	}).WithContext(ctx).Should(Succeed())
}

// captureLog captures the log of this process until the spec ends.
func captureLog() *gbytes.Buffer {
	buffer := gbytes.NewBuffer()
	GinkgoWriter.TeeTo(buffer)
	DeferCleanup(GinkgoWriter.ClearTeeWriters)
	return buffer
}

// namespaceFinalizers returns the successive values of spec.finalizers.
func namespaceFinalizers(states []*corev1.Namespace) []string {
	lists := []string{}
	for _, state := range states {
		list := fmt.Sprint(state.Spec.Finalizers)
		if len(lists) == 0 || lists[len(lists)-1] != list {
			lists = append(lists, list)
		}
	}
	return lists
}

// makeConfigMaps returns ConfigMaps with the given names.
func makeConfigMaps(namespace string, names ...string) []client.Object {
	objects := make([]client.Object, 0, len(names))
	for _, name := range names {
		objects = append(objects, wrappers.MakeConfigMap(namespace, name))
	}
	return objects
}

// createAgain waits until a namespace is deleted, creates a namespace with the same name, and waits until the API
// server accepts objects in it.
func createAgain(ctx context.Context, name string) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(name).Obj()
	Eventually(func() error { return admin.Create(ctx, namespace) }).WithContext(ctx).Should(Succeed())
	Eventually(func() error {
		return admin.Create(ctx, wrappers.MakeConfigMap(name, "probe"), client.DryRunAll)
	}).WithContext(ctx).Should(Succeed())
	return namespace
}

// removeAll deletes the objects of a type regardless of their finalizers.
func removeAll(ctx context.Context, gvr schema.GroupVersionResource, namespace string) {
	GinkgoHelper()
	objects := metadataClient.Resource(gvr).Namespace(namespace)
	list, err := objects.List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, object := range list.Items {
		if len(object.Finalizers) > 0 {
			_, err := objects.Patch(ctx, object.Name, "application/merge-patch+json",
				[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			Expect(client.IgnoreNotFound(err)).To(Succeed())
		}
		err := objects.Delete(ctx, object.Name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			Expect(err).NotTo(HaveOccurred())
		}
	}
	Expect(countOf(Default, ctx, gvr, namespace)).To(BeZero())
}
