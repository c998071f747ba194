// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// Users of the shared control plane.
const (
	ordinaryUser    = "alice@corp.example.com"
	initializerUser = "initializer@corp.example.com"
	preExistingName = "pre-existing"
)

var (
	plane   *controlplane.ControlPlane
	manager *controlplane.Manager

	// admin is a member of system:masters.
	admin client.Client
	// ordinary may do anything but the verb "initialize".
	ordinary       client.Client
	ordinaryConfig *rest.Config
	// initializer may do the same and holds "initialize".
	initializer       client.Client
	initializerConfig *rest.Config
)

func TestIntegration(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Integration")
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
	admin = newClient(plane.Admin)

	// Before anything of ours is there.
	Expect(admin.Create(ctx, wrappers.MakeNamespace(preExistingName).Obj())).To(Succeed())
	Expect(plane.Install(ctx)).To(Succeed())
	Expect(plane.AggregateClusterRoles(ctx)).To(Succeed())

	ordinaryConfig = newUser(ctx, plane, ordinaryUser, everyVerbBut)
	ordinary = newClient(ordinaryConfig)
	initializerConfig = newUser(ctx, plane, initializerUser, append([]string{"initialize"}, everyVerbBut...))
	initializer = newClient(initializerConfig)

	manager, err = plane.StartManager(ctx)
	Expect(err).NotTo(HaveOccurred())
})

var _ = AfterSuite(func() {
	if manager != nil {
		Expect(manager.Stop()).To(Succeed())
	}
	if plane != nil {
		Expect(plane.Stop()).To(Succeed())
	}
})

// everyVerbBut is every verb of the API but "initialize".
var everyVerbBut = []string{
	"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
	"bind", "escalate", "impersonate",
}

// newUser makes a user with the given verbs on everything in the cluster.
func newUser(ctx context.Context, plane *controlplane.ControlPlane, name string, verbs []string) *rest.Config {
	GinkgoHelper()
	config, err := plane.User(name)
	Expect(err).NotTo(HaveOccurred())
	bind(ctx, newClient(plane.Admin), name, []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: verbs},
	}, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name})
	return config
}

// bind grants rules to subjects at cluster scope until the spec or suite is over.
func bind(
	ctx context.Context, admin client.Client, name string, rules []rbacv1.PolicyRule, subjects ...rbacv1.Subject,
) {
	GinkgoHelper()
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		},
	} {
		Expect(admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { _ = admin.Delete(ctx, object) })
	}
}

func newClient(config *rest.Config) client.Client {
	GinkgoHelper()
	result, err := controlplane.NewClient(config)
	Expect(err).NotTo(HaveOccurred())
	return result
}

// impersonating returns a client that acts as somebody else, with the admin's leave.
func impersonating(user string, groups ...string) client.Client {
	return newClient(impersonatingConfig(user, groups...))
}

func impersonatingConfig(user string, groups ...string) *rest.Config {
	config := rest.CopyConfig(plane.Admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

// get returns a namespace as it is now.
func get(g Gomega, ctx context.Context, name string) *corev1.Namespace {
	namespace := &corev1.Namespace{}
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
	return namespace
}
