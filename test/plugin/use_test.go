// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
)

// startLimit is how long a command may take that contacts no server.
const startLimit = 100 * time.Millisecond

var _ = Describe("use", func() {
	It("sets the namespace of the context, and goes back", func(ctx context.Context) {
		somebody := newUser(bare.Admin)
		Expect(somebody.run(ctx, "use").stdout).To(Equal("default\n"))
		Expect(somebody.run(ctx, "use", "-").stderr).To(ContainSubstring("no namespace is known to have been used"))

		set := somebody.run(ctx, "use", "kube-public")
		Expect(set).To(Equal(result{stdout: `Context "nslifecycle" uses namespace "kube-public".` + "\n"}))
		Expect(somebody.run(ctx, "use").stdout).To(Equal("kube-public\n"))
		Expect(somebody.kubectl(ctx, nil, "config", "view", "--minify", "-o", "jsonpath={..namespace}").stdout).
			To(Equal("kube-public"))
		for _, back := range []string{"default", "kube-public"} {
			Expect(somebody.run(ctx, "use", "-").code).To(BeZero())
			Expect(somebody.run(ctx, "use").stdout).To(Equal(back + "\n"))
		}
	}, NodeTimeout(testTimeout))

	It("warns of a namespace that does not exist, or cannot be looked for", func(ctx context.Context) {
		set := newUser(bare.Admin).run(ctx, "use", "nowhere")
		Expect(set.code).To(BeZero())
		Expect(set.stderr).To(ContainSubstring(`Warning: There is no namespace "nowhere" yet`))

		config, err := bare.User("stranger")
		Expect(err).NotTo(HaveOccurred())
		stranger := newUser(config)
		set = stranger.run(ctx, "use", "nowhere")
		Expect(set.code).To(BeZero())
		Expect(set.stderr).To(ContainSubstring("could not be checked"))
		Expect(stranger.run(ctx, "use").stdout).To(Equal("nowhere\n"))

		refused := stranger.run(ctx, "use", "No-Name")
		Expect(refused.code).To(Equal(1))
		Expect(refused.stderr).To(ContainSubstring(`"No-Name" cannot be the name of a namespace`))
	}, NodeTimeout(testTimeout))

	It("changes the file that a context is in", func(ctx context.Context) {
		first, second := newUser(bare.Admin), newUser(bare.Admin)
		rename(second, "other")
		both := "KUBECONFIG=" + kubeconfigOf(first) + string(os.PathListSeparator) + kubeconfigOf(second)
		set := first.runWith(ctx, []string{both}, "use", "kube-public", "--context=other")
		Expect(set.code).To(BeZero())
		Expect(namespaceIn(first, "nslifecycle")).To(BeEmpty())
		Expect(namespaceIn(second, "other")).To(Equal("kube-public"))
		Expect(first.runWith(ctx, []string{both}, "use").stdout).To(Equal("default\n"))
		Expect(first.runWith(ctx, []string{both}, "use", "--context=other").stdout).To(Equal("kube-public\n"))

		By("keeping the ways back of contexts apart")
		Expect(first.runWith(ctx, []string{both}, "use", "-").code).To(Equal(1))
		Expect(first.runWith(ctx, []string{both}, "use", "-", "--context=other").code).To(BeZero())
		Expect(namespaceIn(second, "other")).To(Equal("default"))

		missing := first.run(ctx, "use", "--context=missing")
		Expect(missing.code).To(Equal(1))
		Expect(missing.stderr).To(ContainSubstring(`no context "missing"`))
	}, NodeTimeout(testTimeout))

	It("starts fast where no server is contacted, and contacts none to show", func(ctx context.Context) {
		config := *bare.Admin
		config.Host = "https://192.0.2.1" // reserved: nobody answers
		isolated := newUser(&config)
		for _, args := range [][]string{{"use"}, {"--help"}, {"version"}} {
			fastest := time.Hour
			for range 10 {
				command := exec.CommandContext(ctx, filepath.Join(bin, "kubectl-nslifecycle"), args...)
				command.Env = isolated.environment()
				began := time.Now()
				Expect(command.Run()).To(Succeed())
				fastest = min(fastest, time.Since(began))
			}
			AddReportEntry("kubectl-nslifecycle "+args[0], fastest.String())
			Expect(fastest).To(BeNumerically("<", startLimit), args[0])
		}
	}, NodeTimeout(testTimeout))
})

var _ = Describe("completion", func() {
	It("completes the names of namespaces through kubectl", func(ctx context.Context) {
		somebody := newUser(bare.Admin)
		for _, command := range []string{"delete", "backup", "explain", "use"} {
			completed := somebody.kubectl(ctx, nil, "__complete", "nslifecycle", command, "")
			Expect(completed.stdout).To(ContainSubstring("kube-public\nkube-system\n"), command)
			Expect(completed.stdout).To(HaveSuffix(":4\n"), "no files")
		}
		Expect(somebody.kubectl(ctx, nil, "__complete", "nslifecycle", "").stdout).To(ContainSubstring("orphans\t"))
		Expect(somebody.kubectl(ctx, nil, "__complete", "nslifecycle", "list", "--stage", "").stdout).
			To(HavePrefix("Initializing\nActive\nTerminating\n"))
		Expect(somebody.kubectl(ctx, nil, "__complete", "nslifecycle", "list", "--context", "").stdout).
			To(HavePrefix("nslifecycle\n"))
	}, NodeTimeout(testTimeout))
})

func kubeconfigOf(u *user) string { return filepath.Join(u.home, "kubeconfig") }

// rename gives the context of a user's kubeconfig another name.
func rename(u *user, name string) {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(kubeconfigOf(u))
	Expect(err).NotTo(HaveOccurred())
	config.Contexts[name] = config.Contexts[config.CurrentContext]
	delete(config.Contexts, config.CurrentContext)
	config.CurrentContext = name
	Expect(clientcmd.WriteToFile(*config, kubeconfigOf(u))).To(Succeed())
}

// namespaceIn returns the namespace of a context in a user's kubeconfig.
func namespaceIn(u *user, name string) string {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(kubeconfigOf(u))
	Expect(err).NotTo(HaveOccurred())
	Expect(config.Contexts).To(HaveKey(name))
	return config.Contexts[name].Namespace
}
