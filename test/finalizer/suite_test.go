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

// agentUser holds what the documentation says that an agent needs, and no more.
const agentUser = "agent@corp.example.com"

var (
	cluster     *framework.Cluster
	plane       *controlplane.ControlPlane
	admin       client.Client
	agentConfig *rest.Config
)

func TestAgent(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Agent")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()

	cluster = framework.StartControlPlane(ctx)
	plane, admin = cluster.ControlPlane, cluster.Admin
	agentConfig = newUser(ctx, agentUser, requiredRules, statusRule)
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

// newUser makes a user with some rights at cluster scope.
func newUser(ctx context.Context, name string, rules ...[]rbacv1.PolicyRule) *rest.Config {
	GinkgoHelper()
	return cluster.AddUserWithRules(ctx, name, slices.Concat(rules...)...).Config
}

// newManager returns one that serves nothing yet.
func newManager(identity *rest.Config, changes ...func(*ctrl.Options)) ctrl.Manager {
	GinkgoHelper()
	options := ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		// The specs run several in one process.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	}
	for _, change := range changes {
		change(&options)
	}
	mgr, err := ctrl.NewManager(identity, options)
	Expect(err).NotTo(HaveOccurred())
	return mgr
}

// start runs a manager until the function that it returns is called, or the spec is over.
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

// serve runs an agent with the rights of agentUser.
func serve(token corev1.FinalizerName, fn finalizer.Func, opts ...finalizer.Option) func() {
	GinkgoHelper()
	mgr := newManager(agentConfig)
	Expect(finalizer.Add(mgr, token, fn, opts...)).To(Succeed())
	return start(mgr)
}

// create makes a Namespace with tokens, beside that of the API server, which comes last.
func create(ctx context.Context, name string, tokens ...corev1.FinalizerName) *corev1.Namespace {
	GinkgoHelper()
	namespace := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NamespaceSpec{Finalizers: tokens},
	}
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { end(ctx, name) })
	return namespace
}

// remove deletes a Namespace, of which the tokens stay.
func remove(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Expect(admin.Delete(ctx, namespace)).To(Succeed())
}

// setTokens changes the tokens of a Namespace, as somebody else would.
func setTokens(
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

// without is a change for setTokens.
func without(token corev1.FinalizerName) func([]corev1.FinalizerName) []corev1.FinalizerName {
	return func(tokens []corev1.FinalizerName) []corev1.FinalizerName {
		return slices.DeleteFunc(tokens, func(other corev1.FinalizerName) bool { return other == token })
	}
}

// end ends a Namespace, whoever holds it.
func end(ctx context.Context, name string) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_ = admin.Delete(ctx, namespace)
	_ = setTokens(ctx, name, func([]corev1.FinalizerName) []corev1.FinalizerName { return nil })
	_ = client.IgnoreNotFound(admin.Delete(ctx, namespace))
}

func get(g Gomega, ctx context.Context, name string) *corev1.Namespace {
	var namespace corev1.Namespace
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: name}, &namespace)).To(Succeed())
	return &namespace
}

func tokensOf(ctx context.Context, name string) func(g Gomega) []corev1.FinalizerName {
	return func(g Gomega) []corev1.FinalizerName { return get(g, ctx, name).Spec.Finalizers }
}

func isGone(ctx context.Context, name string) func() bool {
	return func() bool {
		return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))
	}
}

// calls counts the calls of a function.
type calls struct {
	mutex sync.Mutex
	byUID map[types.UID]int
}

func (c *calls) add(uid types.UID) int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.byUID == nil {
		c.byUID = map[types.UID]int{}
	}
	c.byUID[uid]++
	return c.byUID[uid]
}

func (c *calls) of(uid types.UID) int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.byUID[uid]
}
