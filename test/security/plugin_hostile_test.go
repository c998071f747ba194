// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"net/http"
	osexec "os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// An administrator runs the plugin with all permissions.
var _ = Describe("The plugin with a hostile aggregated API server", Ordered, ContinueOnFailure, func() {
	const finalizer = "vendor.example.com/hold"
	var (
		server             *hostileServer
		plugin, kubeconfig string
	)

	run := func(ctx context.Context, args ...string) string {
		GinkgoHelper()
		output, err := osexec.CommandContext(ctx, plugin, append([]string{"--kubeconfig", kubeconfig}, args...)...).CombinedOutput()
		GinkgoWriter.Printf("$ nslifecycle %s\n%s\n", strings.Join(args, " "), output)
		Expect(err).To(Or(BeNil(), BeAssignableToTypeOf(&osexec.ExitError{})))
		return string(output)
	}

	BeforeAll(func(ctx context.Context) {
		dir := GinkgoT().TempDir()
		plugin, kubeconfig = filepath.Join(dir, "kubectl-nslifecycle"), framework.KubeconfigFile(cluster.Admin.Config)
		Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.PluginProgram, plugin)).To(Succeed())
		server = startHostileServer(ctx, framework.MakeType("configmaps", "list", "get", "create", "patch", "delete"))
	}, NodeTimeout(3*specTimeout))

	It("removes no finalizer from another object", func(ctx context.Context) {
		victim := createVictim(ctx)
		cluster.Admin.Patches(ctx, victim, `{"metadata":{"finalizers":["`+finalizer+`"]}}`)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Patch(ctx, victim, withoutFinalizers)).To(Succeed()) })
		namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("plugin"))
		before := listEverything(ctx)
		now := metav1.Now()
		for _, name := range []string{victim.Name, "../" + toConfigMaps(victim.Namespace) + "/" + victim.Name, "..%2f" + victim.Name} {
			for _, in := range []string{"", victim.Namespace, "absent"} {
				item := makeThing(in, name, victim.UID)
				item.Finalizers, item.DeletionTimestamp, item.ResourceVersion = []string{finalizer}, &now, victim.ResourceVersion
				server.serveItems(item)
				if namespace.DeletionTimestamp == nil {
					cluster.Admin.Deletes(ctx, namespace)
					cluster.Admin.Reads(ctx, namespace)
				}
				run(ctx, "finalize", namespace.Name, "--finalizer="+finalizer, "--dry-run=false", "--ignore-active-owner", "--allow-unread",
					"--confirm="+namespace.Name)
			}
		}
		before.expectKept(ctx, namespace.Name)
		cluster.Admin.Reads(ctx, victim)
		Expect(victim.Finalizers).To(ConsistOf(finalizer))
		Expect(server.received(http.MethodPatch)).NotTo(BeEmpty(), "the plugin must have tried")
		server.serveItems()
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, SpecTimeout(4*specTimeout))
})
