// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package timeouts

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/initializers"
	"github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// Users of the control plane.
const (
	ordinaryUser    = "alice@corp.example.com"
	initializerUser = "initializer@corp.example.com"
)

var (
	cluster *framework.Cluster
	plane   *controlplane.ControlPlane

	// admin is a member of system:masters; ordinary has all verbs except "initialize".
	admin, ordinary client.Client
	// worker has the "initialize" verb and few other permissions.
	worker kubernetes.Interface
)

func TestTimeouts(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Timeouts and deregistration")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.ExpectNoLeaks()
	framework.SetDefaults()

	cluster = framework.StartControlPlane(ctx)
	plane, admin = cluster.ControlPlane, cluster.Admin
	Expect(plane.Install(ctx)).To(Succeed())
	Expect(plane.AggregateClusterRoles(ctx)).To(Succeed())

	ordinary = cluster.AddUser(ctx, ordinaryUser, []string{"get", "list", "watch", "create", "update", "patch", "delete"})
	config, err := plane.User(initializerUser)
	Expect(err).NotTo(HaveOccurred())
	worker, err = kubernetes.NewForConfig(controlplane.Unlimited(config))
	Expect(err).NotTo(HaveOccurred())
})

// bindWorker authorizes the worker to initialize namespaces during one spec.
func bindWorker(ctx context.Context) {
	GinkgoHelper()
	cluster.Bind(ctx, initializerUser, []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"namespaces"},
		Verbs: []string{"get", "list", "watch", "patch", v1alpha1.VerbInitialize},
	}}, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: initializerUser})
}

// runManager runs a manager with the permissions of its ServiceAccount until the end of the spec.
// It returns a function that stops the manager earlier.
func runManager(ctx context.Context, changes ...func(*manager.Options)) (stop func()) {
	GinkgoHelper()
	return stopAfterSpec(plane.StartManager(ctx, changes...))
}

// stopAfterSpec stops a manager at the end of the spec. It returns a function that stops the manager earlier.
func stopAfterSpec(running *controlplane.Manager, err error) (stop func()) {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	isStopped := false
	stop = func() {
		if !isStopped {
			isStopped = true
			Expect(running.Stop()).To(Succeed())
		}
	}
	DeferCleanup(stop)
	return stop
}

// unique returns a name that no other spec of this process uses.
var unique = framework.Unique

// initializer returns an entry of a configuration.
func initializer(name string) v1alpha1.NamespaceInitializer {
	return v1alpha1.NamespaceInitializer{Name: name}
}

// limited returns an entry with a timeout.
func limited(name string, seconds int32, policy v1alpha1.InitializerFailurePolicy) v1alpha1.NamespaceInitializer {
	entry := initializer(name)
	entry.TimeoutSeconds = ptr.To(seconds)
	if policy != "" {
		entry.FailurePolicy = &policy
	}
	return entry
}

// register creates a configuration for one spec and waits until it is enforced.
func register(ctx context.Context, entries ...v1alpha1.NamespaceInitializer) *v1alpha1.NamespaceInitializerConfiguration {
	GinkgoHelper()
	configuration := wrappers.MakeConfiguration(unique("c")).Obj()
	configuration.Initializers = entries
	Expect(admin.Create(ctx, configuration)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(admin.Delete(ctx, configuration))).To(Succeed())
	})
	expectActive(ctx, configuration)
	return configuration
}

func expectActive(ctx context.Context, configuration *v1alpha1.NamespaceInitializerConfiguration) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
		active := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionActive)
		g.Expect(active).NotTo(BeNil())
		g.Expect(active.Status).To(Equal(metav1.ConditionTrue), active.Message)
		g.Expect(active.ObservedGeneration).To(Equal(configuration.Generation))
	}).WithContext(ctx).Should(Succeed())
}

// create creates a namespace as the ordinary user.
func create(ctx context.Context, namespace *wrappers.NamespaceWrapper) *corev1.Namespace {
	GinkgoHelper()
	object := namespace.Obj()
	Expect(ordinary.Create(ctx, object)).To(Succeed())
	return object
}

func get(g Gomega, ctx context.Context, name string) *corev1.Namespace {
	namespace := &corev1.Namespace{}
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
	return namespace
}

func pendingOf(namespace *corev1.Namespace) string {
	return namespace.Annotations[v1alpha1.AnnotationPendingInitializers]
}

// finish removes the name of an initializer from the pending list, as the worker.
func finish(ctx context.Context, name, initializer string) error {
	namespace, err := worker.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return initializers.Finish(ctx, worker, namespace, initializer)
}

// expectWritable waits until a namespace is initialized and ordinary users can write to it.
func expectWritable(ctx context.Context, name string) *corev1.Namespace {
	GinkgoHelper()
	var now *corev1.Namespace
	Eventually(func(g Gomega) {
		now = get(g, ctx, name)
		g.Expect(now).To(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonCompleted))
	}).WithContext(ctx).Should(Succeed())
	Expect(now.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
	Expect(now.Annotations).NotTo(HaveKey(v1alpha1.AnnotationPendingInitializers))
	// For a few milliseconds, the API server can evaluate a stale Namespace.
	Eventually(func() error {
		return ordinary.Create(ctx, wrappers.MakeConfigMap(name, "late"), client.DryRunAll)
	}).WithContext(ctx).Should(Succeed())
	return now
}

func ownCondition(initializer string) corev1.NamespaceConditionType {
	return corev1.NamespaceConditionType(initializer + v1alpha1.ConditionInitializedSuffix)
}

// HaveCondition is matchers.HaveCondition.
var HaveCondition = matchers.HaveCondition
