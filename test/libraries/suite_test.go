// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/pkg/initializer"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// accounts is the namespace with the ServiceAccounts of the initializers. It is created before any
// initializer is registered. Otherwise, it would wait for the initializers.
const accounts = "initializers"

var (
	cluster *framework.Cluster
	admin   *framework.User
)

func TestLibraries(t *testing.T) {
	framework.RunSuite(t, "Libraries")
}

var _ = BeforeSuite(func(ctx context.Context) {
	cluster = framework.StartControlPlane(ctx)
	admin = cluster.Admin
	cluster.Install(ctx, "default")
	admin.Creates(ctx, wrappers.MakeNamespace(accounts).Obj())
	cluster.StartManager(ctx)
}, NodeTimeout(15*time.Minute))

// serving is the RBAC rule that every initializer requires.
var serving = rbacv1.PolicyRule{
	APIGroups: []string{""}, Resources: []string{"namespaces"},
	Verbs: []string{"get", "list", "watch", "patch", "initialize"},
}

// userOf returns the user name of a ServiceAccount.
func userOf(account string) string { return "system:serviceaccount:" + accounts + ":" + account }

// publishing is the permission to publish progress in the conditions of a namespace.
var publishing = rbacv1.PolicyRule{
	APIGroups: []string{""}, Resources: []string{"namespaces/status"}, Verbs: []string{"patch"},
}

// newAccount creates a ServiceAccount with cluster-wide permissions, which exists until the end of
// the spec. It returns a client configuration for the ServiceAccount.
func newAccount(ctx context.Context, account string, rules ...rbacv1.PolicyRule) *rest.Config {
	GinkgoHelper()
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: accounts, Name: account}}
	admin.Creates(ctx, object)
	DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, object)).To(Succeed()) })
	cluster.Bind(ctx, account, rules, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: accounts, Name: account})
	restConfig, err := cluster.ServiceAccountConfig(ctx, accounts, account)
	Expect(err).NotTo(HaveOccurred())
	framework.ExpectAllowed(ctx, restConfig, rules[0])
	return restConfig
}

// newManager returns a manager that has not been started, and its log.
func newManager(restConfig *rest.Config, changes ...func(*ctrl.Options)) (ctrl.Manager, *gbytes.Buffer) {
	GinkgoHelper()
	logs := gbytes.NewBuffer()
	options := ctrl.Options{
		Logger:  zap.New(zap.WriteTo(io.MultiWriter(GinkgoWriter, logs)), zap.UseDevMode(true)),
		Metrics: metricsserver.Options{BindAddress: "0"},
		// Several managers run in this process.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	}
	for _, change := range changes {
		change(&options)
	}
	mgr, err := ctrl.NewManager(restConfig, options)
	Expect(err).NotTo(HaveOccurred())
	return mgr, logs
}

// run runs a manager until the spec ends or the returned function is called.
func run(mgr ctrl.Manager) func() {
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

// serve runs an initializer in its own manager until the end of the spec, and returns the log of
// the manager.
func serve(restConfig *rest.Config, name string, fn initializer.Func, options ...initializer.Option) *gbytes.Buffer {
	GinkgoHelper()
	mgr, logs := newManager(restConfig)
	Expect(initializer.Add(mgr, name, fn, options...)).To(Succeed())
	run(mgr)
	return logs
}

// nothing is a function that succeeds immediately.
func nothing(context.Context, *corev1.Namespace) (initializer.Result, error) {
	return initializer.Result{}, nil
}

// calls records the calls of a function by namespace.
type calls struct {
	lock sync.Mutex
	uids map[string][]types.UID
}

// record counts a call and returns the number of calls for the namespace.
func (c *calls) record(namespace *corev1.Namespace) int {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.uids == nil {
		c.uids = map[string][]types.UID{}
	}
	c.uids[namespace.Name] = append(c.uids[namespace.Name], namespace.UID)
	return len(c.uids[namespace.Name])
}

// of returns the UIDs of the namespaces with the given name for which the function was called.
func (c *calls) of(name string) []types.UID {
	c.lock.Lock()
	defer c.lock.Unlock()
	return slices.Clone(c.uids[name])
}

// createInitializing creates a namespace with pending initializers, as an administrator.
func createInitializing(ctx context.Context, namespace *wrappers.NamespaceWrapper) *corev1.Namespace {
	GinkgoHelper()
	created := namespace.Obj()
	admin.Creates(ctx, created)
	Expect(created.Labels).To(HaveKey(v1alpha1.LabelInitializing))
	return created
}

// expectReady waits until the initialization of the namespaces is complete.
func expectReady(ctx context.Context, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		Eventually(func(g Gomega) {
			namespace := cluster.GetNamespace(g, ctx, name)
			condition := nsobject.FindCondition(namespace, v1alpha1.ConditionInitializing)
			g.Expect(condition).To(HaveField("Reason", v1alpha1.ReasonInitialized), "namespace %s is waiting for %q; its conditions are %v",
				name, framework.PendingOf(namespace), namespace.Status.Conditions)
		}).WithContext(ctx).Should(Succeed())
	}
}
