// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guardrails tests deletion protection and expiry against a real API server. The users are
// unprivileged, and the manager has the permissions of its ServiceAccount.
package guardrails

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// Users of the shared control plane.
const (
	// editorUser has all permissions on namespaces except permission to delete them.
	editorUser = "editor@corp.example.com"
	// ownerUser has all permissions on namespaces.
	ownerUser = "owner@corp.example.com"
)

var (
	// cluster has a manager with all controllers, including expiry.
	cluster *framework.Cluster

	admin         client.Client
	editor, owner client.Client
	editorConfig  *rest.Config
	ownerConfig   *rest.Config
)

func TestGuardRails(t *testing.T) {
	framework.RunSuite(t, "Guard rails")
}

var _ = BeforeSuite(func(ctx context.Context) {
	cluster = framework.StartControlPlane(ctx)
	admin = cluster.Admin
	_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-k", enableGuardRails())
	Expect(err).NotTo(HaveOccurred())

	editorConfig = newUser(ctx, editorUser, "get", "list", "watch", "create", "update", "patch")
	editor = framework.NewClient(editorConfig)
	ownerConfig = newUser(ctx, ownerUser, "get", "list", "watch", "create", "update", "patch", "delete")
	owner = framework.NewClient(ownerConfig)

	By("waiting until the API server enforces both policies")
	sample := wrappers.MakeNamespace("sample").Label("nslifecycle.dev/deletion-protection", "enabled").Obj()
	Expect(admin.Create(ctx, sample)).To(Succeed())
	Eventually(func() error { return admin.Delete(ctx, sample.DeepCopy(), client.DryRunAll) }).WithContext(ctx).
		Should(BeForbiddenBy("protection"))
	expectExpiryPolicy(ctx)
	startManager(ctx)
	cluster.ExpectInjected(ctx)
})

// expectExpiryPolicy waits until the API server enforces the policy.
func expectExpiryPolicy(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		return admin.Create(ctx, wrappers.MakeNamespace("probe").Annotation("nslifecycle.dev/ttl", "x").Obj(), client.DryRunAll)
	}).WithContext(ctx).Should(BeDeniedBy("expiry"))
}

// enableGuardRails returns the directory of a copy of config/default in which the lines that enable
// the guard rails are uncommented, as documented.
func enableGuardRails() string {
	GinkgoHelper()
	dir := framework.CopyConfig(cluster.Dir)
	file := filepath.Join(dir, "default", "kustomization.yaml")
	text, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	for _, line := range []string{
		"- ../protection", "- ../expiry",
		"- path: manager_expiry_patch.yaml", "  target:\n#     kind: Deployment\n#     name: controller-manager",
	} {
		commented := []byte("# " + line + "\n")
		Expect(bytes.Count(text, commented)).To(Equal(1), line)
		enabled := strings.ReplaceAll(line, "\n# ", "\n")
		text = bytes.Replace(text, commented, []byte(enabled+"\n"), 1)
	}
	Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
	return filepath.Dir(file)
}

// unique returns a name that no other spec of this process uses.
var unique = framework.Unique

// newUser creates a user with the given verbs on all namespaces.
func newUser(ctx context.Context, name string, verbs ...string) *rest.Config {
	GinkgoHelper()
	return cluster.AddUserWithRules(ctx, name, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces", "namespaces/status", "namespaces/finalize"}, Verbs: verbs,
	}).Config
}

func startManager(ctx context.Context) {
	GinkgoHelper()
	cluster.StartManager(ctx, withControllers("*,expiry"))
}

// restartManager runs the manager with other options until the spec ends.
func restartManager(ctx context.Context, changes ...func(*manager.Options)) {
	GinkgoHelper()
	cluster.StopManager()
	cluster.StartManager(ctx, changes...)
	DeferCleanup(func(ctx context.Context) {
		cluster.StopManager()
		startManager(ctx)
	})
}

// withControllers is an option of a manager.
func withControllers(list string) func(*manager.Options) {
	GinkgoHelper()
	controllers, err := manager.ParseControllers(list)
	Expect(err).NotTo(HaveOccurred())
	return func(options *manager.Options) { options.Controllers = controllers }
}

// create creates a namespace with the given client.
func create(ctx context.Context, c client.Client, namespace *wrappers.NamespaceWrapper) *corev1.Namespace {
	GinkgoHelper()
	object := namespace.Obj()
	Expect(c.Create(ctx, object)).To(Succeed())
	return object
}

// get returns the current state of a namespace.
func get(g Gomega, ctx context.Context, name string) *corev1.Namespace {
	return cluster.GetNamespace(g, ctx, name)
}

func expectDeleted(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	framework.ExpectDeleted(ctx, admin, namespace)
}

// expectKept verifies that a namespace is not deleted during the default duration of Consistently.
func expectKept(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		now := get(g, ctx, namespace.Name)
		g.Expect(now.DeletionTimestamp).To(BeNil())
		g.Expect(now.UID).To(Equal(namespace.UID))
	}).WithContext(ctx).Should(Succeed())
}

// The shared matchers.
var (
	HaveCondition = matchers.HaveCondition
	BeDeniedBy    = matchers.BeDeniedBy
	BeForbiddenBy = matchers.BeForbiddenBy
)
