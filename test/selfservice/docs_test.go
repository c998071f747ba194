// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package selfservice

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("docs/self-service.md", func() {
	It("contains commands that succeed", func(ctx context.Context) {
		page, err := os.ReadFile(filepath.Join(controlplane.Root(), "docs", "self-service.md"))
		Expect(err).NotTo(HaveOccurred())
		kubeconfig := framework.KubeconfigFile(cluster.Admin.Config)
		blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1)
		Expect(blocks).To(HaveLen(3))
		for _, block := range blocks {
			// The namespace opens between two blocks.
			Eventually(func(g Gomega) {
				command := exec.CommandContext(ctx, "bash", "-ec", block[1])
				command.Dir = controlplane.Root()
				command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig,
					"PATH="+filepath.Dir(cluster.KubectlPath())+string(os.PathListSeparator)+os.Getenv("PATH"))
				output, err := command.CombinedOutput()
				g.Expect(err).NotTo(HaveOccurred(), "%s", output)
			}).WithContext(ctx).Should(Succeed())
		}
	}, SpecTimeout(5*time.Minute))
})
