// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guardrails tests the policies that restrict the deletion of namespaces against a real API server. The users
// are unprivileged, and the manager has the permissions of its ServiceAccount.
package guardrails

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	cluster *framework.Cluster

	admin         *framework.User
	editor, owner *framework.User
	ownerConfig   *rest.Config
)

func TestGuardRails(t *testing.T) {
	framework.RunSuite(t, "Guard rails")
}

var _ = BeforeSuite(func(ctx context.Context) {
	cluster = framework.StartControlPlane(ctx)
	admin = cluster.Admin
	_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-k", enableProtection())
	Expect(err).NotTo(HaveOccurred())

	editor = framework.NewUser(newUser(ctx, editorUser, "get", "list", "watch", "create", "update", "patch"))
	ownerConfig = newUser(ctx, ownerUser, "get", "list", "watch", "create", "update", "patch", "delete")
	owner = framework.NewUser(ownerConfig)

	By("waiting until the API server enforces the policy")
	sample := wrappers.MakeNamespace("sample").Label("nslifecycle.dev/deletion-protection", "enabled").Obj()
	admin.Creates(ctx, sample)
	Eventually(func() error { return admin.Delete(ctx, sample.DeepCopy(), client.DryRunAll) }).WithContext(ctx).
		Should(BeForbiddenBy("protection"))
	cluster.StartManager(ctx)
	cluster.ExpectInjected(ctx)
})

// enableProtection returns the directory of a copy of config/default in which the line that enables deletion protection
// is uncommented, as documented.
func enableProtection() string {
	GinkgoHelper()
	dir := framework.CopyConfig(cluster.Dir)
	file := filepath.Join(dir, "default", "kustomization.yaml")
	text, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	const line = "- ../protection\n"
	Expect(bytes.Count(text, []byte("# "+line))).To(Equal(1))
	text = bytes.Replace(text, []byte("# "+line), []byte(line), 1)
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

// expectKept verifies that a namespace is not deleted during the default duration of Consistently.
func expectKept(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		now := cluster.GetNamespace(g, ctx, namespace.Name)
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
