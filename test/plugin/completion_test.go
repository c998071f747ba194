// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("completion", func() {
	It("completes the names of namespaces through kubectl", func(ctx context.Context) {
		adminUser := newUser(bare.Admin.Config)
		for _, command := range []string{"delete", "explain"} {
			// It completes nothing if the API server does not respond in time.
			Eventually(func(g Gomega) {
				completed := adminUser.kubectl(ctx, nil, "__complete", "nslifecycle", command, "")
				Expect(completed.stdout).To(HaveSuffix(":4\n"), "file names must not be completed")
				g.Expect(completed.stdout).To(ContainSubstring("kube-public\nkube-system\n"), command)
			}).WithContext(ctx).Should(Succeed())
		}
		Expect(adminUser.kubectl(ctx, nil, "__complete", "nslifecycle", "").stdout).To(ContainSubstring("orphans\t"))
		Expect(adminUser.kubectl(ctx, nil, "__complete", "nslifecycle", "list", "--state", "").stdout).
			To(HavePrefix("Initializing\nInitialized\nFailed\nTerminating\n"))
		Expect(adminUser.kubectl(ctx, nil, "__complete", "nslifecycle", "list", "--context", "").stdout).
			To(HavePrefix("nslifecycle\n"))
	}, NodeTimeout(testTimeout))

	It("completes the terminating namespaces and the finalizers of the finalize command", func(ctx context.Context) {
		namespace, active := makeStuckNamespace(ctx), makeNamespace(ctx, bareAdmin, "active")
		makeConfigMap(ctx, bareAdmin, active.Name, "held", testFinalizer)
		adminUser := newUser(bare.Admin.Config)
		complete := func(args ...string) string {
			words := append([]string{"__complete", "nslifecycle", "finalize"}, args...)
			return adminUser.kubectl(ctx, nil, append(words, "")...).stdout
		}
		expectCompletion := func(want OmegaMatcher, args ...string) {
			GinkgoHelper()
			// It completes nothing if the API server does not respond in time.
			Eventually(func() string { return complete(args...) }).WithContext(ctx).Should(want)
		}
		expectCompletion(And(ContainSubstring(namespace.Name+"\n"), Not(ContainSubstring(active.Name))))
		another := "test.example.com/another\tremoves the finalizer from "
		expectCompletion(Equal(another+"configmaps/held\n"+testFinalizer+
			"\tremoves the finalizer from configmaps/held, configmaps/second\n:4\n"), namespace.Name, "--finalizer")
		expectCompletion(MatchRegexp(`^`+testFinalizer+`\t.*\n`+another+`.*\n:4\n$`), namespace.Name, "--metadata-finalizer")
		expectCompletion(MatchRegexp(`^`+testNamespaceFinalizer+`\t.*\nkubernetes\torphans .*\n:4\n$`),
			namespace.Name, "--namespace-finalizer")
		for _, args := range [][]string{{"--finalizer"}, {active.Name, "--finalizer"}, {"missing", "--finalizer"}} {
			Expect(complete(args...)).To(Equal(":4\n"))
		}
	}, NodeTimeout(testTimeout))
})
