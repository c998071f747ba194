// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"slices"
	"sync"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/pkg/finalizer"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// controllerUser has only the documented permissions.
const controllerUser = "controller@corp.example.com"

var (
	cluster          *framework.Cluster
	plane            *controlplane.ControlPlane
	admin            client.Client
	controllerConfig *rest.Config
)

func TestFinalizer(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Finalizer")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()

	cluster = framework.StartControlPlane(ctx)
	plane, admin = cluster.ControlPlane, cluster.Admin
	controllerConfig = newUser(ctx, controllerUser, requiredRules, statusRule)
})

var (
	requiredRules = []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces/finalize"}, Verbs: []string{"update"}},
	}
	statusRule = []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces/status"}, Verbs: []string{"patch"}},
	}
)

// newUser adds a user with cluster-wide permissions.
func newUser(ctx context.Context, name string, rules ...[]rbacv1.PolicyRule) *rest.Config {
	GinkgoHelper()
	return cluster.AddUserWithRules(ctx, name, slices.Concat(rules...)...).Config
}

// newManager returns a manager without controllers.
func newManager(identity *rest.Config, changes ...func(*ctrl.Options)) ctrl.Manager {
	GinkgoHelper()
	options := ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		// Several managers run in this process.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	}
	for _, change := range changes {
		change(&options)
	}
	mgr, err := ctrl.NewManager(identity, options)
	Expect(err).NotTo(HaveOccurred())
	return mgr
}

// start runs a manager until the spec ends or the returned function is called.
func start(mgr ctrl.Manager) func() {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		Expect(<-done).To(Succeed())
	})
	DeferCleanup(stop)
	return stop
}

// serve runs a controller as controllerUser until the spec ends or the returned function is called.
func serve(own corev1.FinalizerName, fn finalizer.Func, opts ...finalizer.Option) func() {
	GinkgoHelper()
	mgr := newManager(controllerConfig)
	Expect(finalizer.Add(mgr, own, fn, opts...)).To(Succeed())
	return start(mgr)
}

// create creates a Namespace with the given namespace finalizers. The API server appends
// "kubernetes".
func create(ctx context.Context, name string, finalizers ...corev1.FinalizerName) *corev1.Namespace {
	GinkgoHelper()
	namespace := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NamespaceSpec{Finalizers: finalizers},
	}
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { forceDelete(ctx, name) })
	return namespace
}

// remove sends a DELETE request for a Namespace and keeps its namespace finalizers.
func remove(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Expect(admin.Delete(ctx, namespace)).To(Succeed())
}

// setFinalizers changes spec.finalizers of a Namespace as the administrator.
func setFinalizers(
	ctx context.Context, name string, change func([]corev1.FinalizerName) []corev1.FinalizerName,
) error {
	return retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		var namespace corev1.Namespace
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, &namespace); err != nil {
			return err
		}
		namespace.Spec.Finalizers = change(namespace.Spec.Finalizers)
		return admin.SubResource("finalize").Update(ctx, &namespace)
	})
}

// without returns a function for setFinalizers that removes a finalizer.
func without(own corev1.FinalizerName) func([]corev1.FinalizerName) []corev1.FinalizerName {
	return func(finalizers []corev1.FinalizerName) []corev1.FinalizerName {
		return slices.DeleteFunc(finalizers, func(other corev1.FinalizerName) bool { return other == own })
	}
}

// forceDelete deletes a Namespace and removes its namespace finalizers.
func forceDelete(ctx context.Context, name string) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_ = admin.Delete(ctx, namespace)
	_ = setFinalizers(ctx, name, func([]corev1.FinalizerName) []corev1.FinalizerName { return nil })
	_ = client.IgnoreNotFound(admin.Delete(ctx, namespace))
}

func get(g Gomega, ctx context.Context, name string) *corev1.Namespace {
	var namespace corev1.Namespace
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: name}, &namespace)).To(Succeed())
	return &namespace
}

func finalizersOf(ctx context.Context, name string) func(g Gomega) []corev1.FinalizerName {
	return func(g Gomega) []corev1.FinalizerName { return get(g, ctx, name).Spec.Finalizers }
}

// calls counts a function's calls for each Namespace UID.
type calls struct {
	mutex sync.Mutex
	byUID map[types.UID]int
}

func (c *calls) add(uid types.UID) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.byUID == nil {
		c.byUID = map[types.UID]int{}
	}
	c.byUID[uid]++
}

func (c *calls) of(uid types.UID) int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.byUID[uid]
}
