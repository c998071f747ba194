// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
)

var _ = Describe("use", func() {
	It("sets the namespace of the context, and restores the previous one", func(ctx context.Context) {
		adminUser := newUser(bare.Admin.Config)
		Expect(adminUser.run(ctx, "use").stdout).To(Equal("default\n"))
		Expect(adminUser.run(ctx, "use", "-").stderr).To(MatchRegexp(`error: no previous namespace of context "nslifecycle"`))

		set := adminUser.run(ctx, "use", "kube-public")
		Expect(set).To(Equal(result{stdout: `Context "nslifecycle" uses namespace "kube-public".` + "\n"}))
		Expect(adminUser.run(ctx, "use").stdout).To(Equal("kube-public\n"))
		Expect(adminUser.kubectl(ctx, nil, "config", "view", "--minify", "-o", "jsonpath={..namespace}").stdout).
			To(Equal("kube-public"))
		for _, previous := range []string{"default", "kube-public"} {
			Expect(adminUser.run(ctx, "use", "-").code).To(BeZero())
			Expect(adminUser.run(ctx, "use").stdout).To(Equal(previous + "\n"))
		}
	}, NodeTimeout(testTimeout))

	It("lists the namespaces, and removes the namespace from the context", func(ctx context.Context) {
		adminUser := newUser(bare.Admin.Config)
		Expect(adminUser.run(ctx, "use", "kube-public").code).To(BeZero())
		listed := adminUser.run(ctx, "use", "--list")
		Expect(listed.stdout).To(And(MatchRegexp(`(?m)^\* +kube-public$`), MatchRegexp(`(?m)^ +kube-system$`)))
		Expect(adminUser.run(ctx, "use", "--unset").stdout).To(Equal(`Context "nslifecycle" uses namespace "default".` + "\n"))
		Expect(namespaceIn(adminUser, "nslifecycle")).To(BeEmpty())
		Expect(adminUser.run(ctx, "use", "-").stdout).To(ContainSubstring("kube-public"))
		Expect(adminUser.run(ctx, "use", "--unset", "kube-public").code).To(Equal(1))
	}, NodeTimeout(testTimeout))

	It("warns if the namespace does not exist or cannot be read", func(ctx context.Context) {
		set := newUser(bare.Admin.Config).run(ctx, "use", "missing-namespace")
		Expect(set.code).To(BeZero())
		Expect(set.stderr).To(And(HavePrefix("Warning: "), ContainSubstring("kubectl nslifecycle create missing-namespace")))

		config, err := bare.User("unprivileged")
		Expect(err).NotTo(HaveOccurred())
		unprivileged := newUser(config)
		set = unprivileged.run(ctx, "use", "missing-namespace")
		Expect(set.code).To(BeZero())
		Expect(set.stderr).To(And(HavePrefix("Warning: "), ContainSubstring("cannot get resource")))
		Expect(unprivileged.run(ctx, "use").stdout).To(Equal("missing-namespace\n"))

		refused := unprivileged.run(ctx, "use", "No-Name")
		Expect(refused.code).To(Equal(1))
		Expect(refused.stderr).To(And(HavePrefix("error: "), ContainSubstring(`"No-Name"`)))
	}, NodeTimeout(testTimeout))

	It("changes the kubeconfig file that contains the context", func(ctx context.Context) {
		first, second := newUser(bare.Admin.Config), newUser(bare.Admin.Config)
		rename(second, "other")
		both := "KUBECONFIG=" + kubeconfigOf(first) + string(os.PathListSeparator) + kubeconfigOf(second)
		set := first.runWith(ctx, []string{both}, "use", "kube-public", "--context=other")
		Expect(set.code).To(BeZero())
		Expect(namespaceIn(first, "nslifecycle")).To(BeEmpty())
		Expect(namespaceIn(second, "other")).To(Equal("kube-public"))
		Expect(first.runWith(ctx, []string{both}, "use").stdout).To(Equal("default\n"))
		Expect(first.runWith(ctx, []string{both}, "use", "--context=other").stdout).To(Equal("kube-public\n"))

		By("storing the previous namespace for each context")
		Expect(first.runWith(ctx, []string{both}, "use", "-").code).To(Equal(1))
		Expect(first.runWith(ctx, []string{both}, "use", "-", "--context=other").code).To(BeZero())
		Expect(namespaceIn(second, "other")).To(Equal("default"))

		missing := first.run(ctx, "use", "--context=missing")
		Expect(missing.code).To(Equal(1))
		Expect(missing.stderr).To(ContainSubstring(`no context "missing"`))
	}, NodeTimeout(testTimeout))

	It("shows the namespace without sending a request", func(ctx context.Context) {
		config := *bare.Admin.Config
		var requests atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
		DeferCleanup(server.Close)
		config.Host = server.URL
		isolated := newUser(&config)
		for _, args := range [][]string{{"use"}, {"--help"}, {"version"}} {
			shown := isolated.run(ctx, args...)
			Expect(shown.code).To(BeZero(), args[0])
			Expect(shown.stderr).To(BeEmpty(), args[0])
		}
		Expect(requests.Load()).To(BeZero())
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("completion", func() {
	It("completes the names of namespaces through kubectl", func(ctx context.Context) {
		adminUser := newUser(bare.Admin.Config)
		for _, command := range []string{"delete", "backup", "explain", "use"} {
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

func kubeconfigOf(u *user) string { return filepath.Join(u.home, "kubeconfig") }

// rename renames the context of a user's kubeconfig.
func rename(u *user, name string) {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(kubeconfigOf(u))
	Expect(err).NotTo(HaveOccurred())
	config.Contexts[name] = config.Contexts[config.CurrentContext]
	delete(config.Contexts, config.CurrentContext)
	config.CurrentContext = name
	Expect(clientcmd.WriteToFile(*config, kubeconfigOf(u))).To(Succeed())
}

// namespaceIn returns the namespace of the given context in a user's kubeconfig.
func namespaceIn(u *user, name string) string {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(kubeconfigOf(u))
	Expect(err).NotTo(HaveOccurred())
	Expect(config.Contexts).To(HaveKey(name))
	return config.Contexts[name].Namespace
}
