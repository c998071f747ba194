// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// Names of the users of a Cluster.
const (
	OrdinaryUser    = "alice@corp.example.com"
	InitializerUser = "initializer@corp.example.com"
)

// Cluster is a control plane with this project installed.
type Cluster struct {
	*controlplane.ControlPlane
	// Admin is a member of system:masters.
	Admin *User
	// Ordinary has every verb except "initialize".
	Ordinary *User
	// Initializer has every verb.
	Initializer *User
	// Manager is nil until StartManager is called.
	Manager *controlplane.Manager
	// AuditLog contains all writes to the API servers that have no other audit log.
	AuditLog AuditLog
	// Observation is nil until StartObserver is called.
	Observation *Observation
	// hasAbsent reports whether the initializer Absent is registered.
	hasAbsent bool
}

// SetDefaults sets the logger and the Gomega timeouts. A suite can override them afterwards.
func SetDefaults() {
	ctrl.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	SetDefaultEventuallyTimeout(2 * time.Minute) // Test machines might be busy.
	// Polling competes with the tested code for CPU time.
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	SetDefaultConsistentlyPollingInterval(100 * time.Millisecond)
	SetDefaultConsistentlyDuration(time.Second)
	EnforceDefaultTimeoutsWhenUsingContexts()
}

// StartControlPlane starts a control plane without this project. Its only user is the
// administrator. The control plane stops when the spec, the container or the suite ends, after the
// functions that are passed to DeferCleanup later.
func StartControlPlane(ctx context.Context, options ...controlplane.Option) *Cluster {
	GinkgoHelper()
	log := NewAuditLog()
	plane, err := controlplane.Start(ctx, append(log.options(), options...)...)
	Expect(err).NotTo(HaveOccurred())
	cluster := &Cluster{ControlPlane: plane, AuditLog: log}
	DeferCleanup(cluster.stop)
	cluster.Admin = NewUser(plane.Admin)
	return cluster
}

// Start starts a control plane without this project, with an ordinary user and an initializer.
func Start(ctx context.Context, options ...controlplane.Option) *Cluster {
	GinkgoHelper()
	cluster := StartControlPlane(ctx, options...)
	cluster.Ordinary = cluster.AddUser(ctx, OrdinaryUser, VerbsButInitialize)
	cluster.Initializer = cluster.AddUser(ctx, InitializerUser, slices.Concat([]string{"initialize"}, VerbsButInitialize))
	return cluster
}

// Install applies a directory in config.
func (c *Cluster) Install(ctx context.Context, directory string) {
	GinkgoHelper()
	Expect(c.InstallFrom(ctx, directory)).To(Succeed())
	Expect(c.AggregateClusterRoles(ctx)).To(Succeed())
}

// StartManager runs the manager as its own ServiceAccount.
func (c *Cluster) StartManager(ctx context.Context, changes ...func(*manager.Options)) {
	GinkgoHelper()
	var err error
	c.Manager, err = c.ControlPlane.StartManager(ctx, changes...)
	Expect(err).NotTo(HaveOccurred())
}

// StopManager stops the manager if it is running.
func (c *Cluster) StopManager() {
	GinkgoHelper()
	if c.Manager != nil {
		Expect(c.Manager.Stop()).To(Succeed())
		c.Manager = nil
	}
}

// PauseManager stops the manager until the spec or the container ends, which starts it with the changes.
func (c *Cluster) PauseManager(changes ...func(*manager.Options)) {
	GinkgoHelper()
	c.StopManager()
	DeferCleanup(func(ctx context.Context) {
		c.StopManager()
		c.StartManager(ctx, changes...)
	})
}

func (c *Cluster) stop() {
	c.StopManager()
	Expect(c.ControlPlane.Stop()).To(Succeed())
}

// VerbsButInitialize lists the API and RBAC verbs except "initialize".
var VerbsButInitialize = []string{
	"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
	"bind", "escalate", "impersonate",
}

// AddUser adds a user who has the given verbs on every resource.
func (c *Cluster) AddUser(ctx context.Context, name string, verbs []string) *User {
	GinkgoHelper()
	return c.AddUserWithRules(ctx, name, rbacv1.PolicyRule{
		APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: verbs,
	})
}

// AddUserWithRules adds a user and grants the rules, if any, to the user cluster-wide.
func (c *Cluster) AddUserWithRules(ctx context.Context, name string, rules ...rbacv1.PolicyRule) *User {
	GinkgoHelper()
	config, err := c.User(name)
	Expect(err).NotTo(HaveOccurred())
	if len(rules) > 0 {
		c.Bind(ctx, name, rules, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name})
		ExpectAllowed(ctx, config, rules[0])
	}
	return NewUser(config)
}

// ExpectAllowed waits until the API server grants the first permission of a rule to a user in all namespaces.
func ExpectAllowed(ctx context.Context, config *rest.Config, rule rbacv1.PolicyRule) {
	GinkgoHelper()
	ExpectAllowedIn(ctx, config, metav1.NamespaceAll, rule)
}

// ExpectAllowedIn is ExpectAllowed for one namespace.
func ExpectAllowedIn(ctx context.Context, config *rest.Config, namespace string, rule rbacv1.PolicyRule) {
	GinkgoHelper()
	user := NewUser(config)
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	attributes := &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
	}
	if len(rule.ResourceNames) > 0 {
		attributes.Name = rule.ResourceNames[0]
	}
	Eventually(func(g Gomega) {
		review, err := user.Clientset().AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
			}, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(review.Status.Allowed).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
}

// Bind grants rules to subjects cluster-wide until the spec or the suite ends.
func (c *Cluster) Bind(ctx context.Context, name string, rules []rbacv1.PolicyRule, subjects ...rbacv1.Subject) {
	GinkgoHelper()
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		},
	} {
		c.Admin.Creates(ctx, object)
		DeferCleanup(func(ctx context.Context) { _ = c.Admin.Delete(ctx, object) })
	}
}

// Impersonate returns a user that the administrator impersonates.
func (c *Cluster) Impersonate(user string, groups ...string) *User {
	GinkgoHelper()
	config := rest.CopyConfig(c.Admin.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return NewUser(config)
}

// KubeconfigFile writes a client configuration to a kubeconfig file, which exists until the spec
// ends, and returns its path.
func KubeconfigFile(config *rest.Config) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(controlplane.WriteKubeconfig(path, config)).To(Succeed())
	return path
}

// FreeAddress returns an address of this machine that no process listens on.
func FreeAddress() string {
	GinkgoHelper()
	address, err := controlplane.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	return address
}

var counter atomic.Int32

// Unique returns a name that no other call returns. Names with the same prefix sort in the order in
// which they were returned.
func Unique(prefix string) string {
	return fmt.Sprintf("%s-%04d", prefix, counter.Add(1))
}

// SecondAPIServer is another kube-apiserver in a Cluster.
type SecondAPIServer struct{ *controlplane.SecondAPIServer }

// StartSecondAPIServer starts another kube-apiserver that uses the same etcd. It is stopped when the
// spec or the container ends.
func (c *Cluster) StartSecondAPIServer(ctx context.Context, flags ...string) *SecondAPIServer {
	GinkgoHelper()
	return stopLater(c.ControlPlane.StartSecondAPIServer(ctx, flags...))
}

// StartAPIServerFrom is like StartSecondAPIServer with the kube-apiserver in a directory. It can have another version.
func (c *Cluster) StartAPIServerFrom(ctx context.Context, directory string, flags ...string) *SecondAPIServer {
	GinkgoHelper()
	return stopLater(c.ControlPlane.StartAPIServerFrom(ctx, directory, flags...))
}

func stopLater(second *controlplane.SecondAPIServer, err error) *SecondAPIServer {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = second.Stop() }) // A spec can have stopped it.
	return &SecondAPIServer{second}
}

// As returns a copy of a user that sends requests to this API server.
func (s *SecondAPIServer) As(user *User) *User {
	GinkgoHelper()
	return NewUser(s.ConfigFor(user.Config))
}

// StartHoldingManager installs the hold webhooks, and continues as RestartHoldingManager.
func (c *Cluster) StartHoldingManager(ctx context.Context) *hold.Options {
	GinkgoHelper()
	Expect(c.InstallHold(ctx, "default")).To(Succeed())
	return c.RestartHoldingManager(ctx)
}

// RestartHoldingManager runs the manager with the installed hold webhooks at a free port of this
// machine, and waits until the API server knows their certificate. It returns the options of the webhooks.
func (c *Cluster) RestartHoldingManager(ctx context.Context) *hold.Options {
	GinkgoHelper()
	options, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	c.StartManager(ctx, func(o *manager.Options) { o.Hold = options })
	Expect(c.WaitForHold(ctx, options.URL)).To(Succeed())
	return options
}
