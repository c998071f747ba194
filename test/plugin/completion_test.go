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

	It("completes the terminating namespaces of the finalize command", func(ctx context.Context) {
		namespace, active := makeStuckNamespace(ctx), makeNamespace(ctx, bareAdmin, "active")
		adminUser := newUser(bare.Admin.Config)
		// It completes nothing if the API server does not respond in time.
		Eventually(func() string {
			return adminUser.kubectl(ctx, nil, "__complete", "nslifecycle", "finalize", "").stdout
		}).WithContext(ctx).Should(And(ContainSubstring(namespace.Name+"\n"), Not(ContainSubstring(active.Name))))
	}, NodeTimeout(testTimeout))
})
