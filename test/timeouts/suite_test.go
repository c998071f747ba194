// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package timeouts

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
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
	plane *controlplane.ControlPlane

	// admin is a member of system:masters, ordinary may do anything but "initialize".
	admin, ordinary client.Client
	// worker holds "initialize", and few other rights.
	worker kubernetes.Interface

	counter atomic.Int32
)

func TestTimeouts(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Time-outs and deregistration")
}

var _ = BeforeSuite(func(ctx context.Context) {
	ctrl.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	SetDefaultConsistentlyDuration(time.Second)
	EnforceDefaultTimeoutsWhenUsingContexts()

	var err error
	plane, err = controlplane.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })
	admin = newClient(plane.Admin)
	Expect(plane.Install(ctx)).To(Succeed())
	Expect(plane.AggregateClusterRoles(ctx)).To(Succeed())

	ordinary = newClient(newUser(ctx, ordinaryUser, rbacv1.PolicyRule{
		APIGroups: []string{"*"}, Resources: []string{"*"},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
	}))
	config, err := plane.User(initializerUser)
	Expect(err).NotTo(HaveOccurred())
	worker, err = kubernetes.NewForConfig(controlplane.Unlimited(config))
	Expect(err).NotTo(HaveOccurred())
})

// newUser makes a user with rights in the whole cluster.
func newUser(ctx context.Context, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	GinkgoHelper()
	config, err := plane.User(name)
	Expect(err).NotTo(HaveOccurred())
	bind(ctx, name, rules...)
	return config
}

// bind gives rights to a user until the spec or the suite is over.
func bind(ctx context.Context, name string, rules ...rbacv1.PolicyRule) {
	GinkgoHelper()
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		},
	} {
		Expect(admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { _ = admin.Delete(ctx, object) })
	}
}

// bindWorker lets the worker initialize namespaces for the time of one spec.
func bindWorker(ctx context.Context) {
	GinkgoHelper()
	bind(ctx, initializerUser, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"},
		Verbs: []string{"get", "list", "watch", "patch", v1alpha1.VerbInitialize},
	})
}

func newClient(config *rest.Config) client.Client {
	GinkgoHelper()
	result, err := controlplane.NewClient(config)
	Expect(err).NotTo(HaveOccurred())
	return result
}

// runManager runs a manager with its own rights, for the time of one spec at most. It returns
// a function that stops it before.
func runManager(ctx context.Context, changes ...func(*manager.Options)) (stop func()) {
	GinkgoHelper()
	running, err := plane.StartManager(ctx, changes...)
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

// unique returns a name that nothing else has.
func unique(prefix string) string { return fmt.Sprintf("%s-%04d", prefix, counter.Add(1)) }

// initializer is an entry of a configuration.
func initializer(name string) v1alpha1.NamespaceInitializer {
	return v1alpha1.NamespaceInitializer{Name: name}
}

// limited is one with a time-out.
func limited(name string, seconds int32, policy v1alpha1.InitializerFailurePolicy) v1alpha1.NamespaceInitializer {
	entry := initializer(name)
	entry.TimeoutSeconds = ptr.To(seconds)
	if policy != "" {
		entry.FailurePolicy = &policy
	}
	return entry
}

// register puts a configuration in force for the time of one spec.
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

// create creates a namespace as a user without special rights.
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

// finish takes an initializer's name off a list, as the initializer.
func finish(ctx context.Context, name, initializer string) error {
	namespace, err := worker.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return initializers.Finish(ctx, worker, namespace, initializer)
}

// expectDeleted waits until a namespace is being deleted, or not there any more.
func expectDeleted(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := &corev1.Namespace{}
		err := admin.Get(ctx, client.ObjectKeyFromObject(namespace), now)
		if !apierrors.IsNotFound(err) {
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(now.DeletionTimestamp).NotTo(BeNil())
		}
	}).WithContext(ctx).Should(Succeed())
}

// expectOpen waits until a namespace is initialized and open to ordinary users.
func expectOpen(ctx context.Context, name string) *corev1.Namespace {
	GinkgoHelper()
	var now *corev1.Namespace
	Eventually(func(g Gomega) {
		now = get(g, ctx, name)
		g.Expect(now).To(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonCompleted))
	}).WithContext(ctx).Should(Succeed())
	Expect(now.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
	Expect(now.Annotations).NotTo(HaveKey(v1alpha1.AnnotationPendingInitializers))
	// Its watch may be some milliseconds behind.
	Eventually(func() error {
		return ordinary.Create(ctx, wrappers.MakeConfigMap(name, "late"), client.DryRunAll)
	}).WithContext(ctx).Should(Succeed())
	return now
}

func ownCondition(initializer string) corev1.NamespaceConditionType {
	return corev1.NamespaceConditionType(initializer + v1alpha1.ConditionInitializedSuffix)
}

// HaveCondition is the matcher of all suites.
var HaveCondition = matchers.HaveCondition
