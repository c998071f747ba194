// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	. "github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// These names are from the manifests in examples/shell.
const (
	shellInitializer = "limits.corp.example.com"
	shellUser        = "system:serviceaccount:limits-initializer:limits"
	sizeLabel        = "corp.example.com/size"
	limitRangeName   = "defaults"
)

// firstInitializer precedes the shell initializer.
const firstInitializer = "first.shell.example.com"

// shim replaces kubectl in PATH. If the file <command>-before or <command>-after exists in the
// directory of the script, it removes the file and kills the process group of the script, like the
// kubelet when it kills a container.
const shim = `#!/bin/sh
command=$1
case "$*" in *--watch*) command=watch ;; esac
stop() { if rm "$STOPS/$command-$1" 2>/dev/null; then kill -KILL 0; fi; }
stop before
"$REAL_KUBECTL" "$@"
code=$?
stop after
exit "$code"
`

// script runs examples/shell/initializer.sh as a process.
type script struct {
	dir, path, kubeconfig string
}

func newScript(ctx context.Context) *script {
	GinkgoHelper()
	s := &script{dir: GinkgoT().TempDir(), path: filepath.Join(controlplane.Root(), "examples", "shell")}
	_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-f", filepath.Join(s.path, "rbac.yaml"))
	Expect(err).NotTo(HaveOccurred())
	config, err := cluster.ServiceAccountConfig(ctx, "limits-initializer", "limits")
	Expect(err).NotTo(HaveOccurred())
	s.kubeconfig = filepath.Join(s.dir, "kubeconfig")
	Expect(controlplane.WriteKubeconfig(s.kubeconfig, config)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(s.dir, "kubectl"), []byte(shim), 0o700)).To(Succeed())
	Expect(controlplane.Build(ctx, filepath.Join(controlplane.Root(), "hack", "gojq"),
		"github.com/itchyny/gojq/cmd/gojq", filepath.Join(s.dir, "jq"))).To(Succeed())
	return s
}

// start runs the script until it is killed or the spec ends.
func (s *script) start() *gexec.Session {
	GinkgoHelper()
	command := exec.Command(filepath.Join(s.path, "initializer.sh"))
	command.Dir = s.dir
	command.Env = []string{
		"PATH=" + s.dir + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + s.dir, "STOPS=" + s.dir,
		"KUBECONFIG=" + s.kubeconfig, "REAL_KUBECTL=" + cluster.KubectlPath(),
	}
	// The script has its own process group, so that all its processes can be killed at once.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { kill(session) })
	return session
}

// kill kills a process group with SIGKILL.
func kill(session *gexec.Session) {
	GinkgoHelper()
	// The process group may already have exited.
	_ = syscall.Kill(-session.Command.Process.Pid, syscall.SIGKILL)
	Eventually(session).WithTimeout(time.Minute).Should(gexec.Exit())
}

// touch creates a file that the shim checks for.
func (s *script) touch(name string) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(s.dir, name), nil, 0o600)).To(Succeed())
}

var _ = Describe("The shell initializer", Ordered, func() {
	var s *script

	BeforeAll(func(ctx context.Context) {
		s = newScript(ctx)
	}, NodeTimeout(5*time.Minute))

	// alone registers only the shell initializer, with its own manifest.
	alone := func(ctx context.Context) {
		GinkgoHelper()
		manifest := filepath.Join(s.path, "configuration.yaml")
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-f", manifest)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", "-f", manifest)
			Expect(err).NotTo(HaveOccurred())
			cluster.ExpectDeregistered(ctx, "limits")
		})
		cluster.ExpectActive(ctx, "limits")
	}
	limits := func(ctx context.Context, namespace string) string {
		GinkgoHelper()
		var limitRange corev1.LimitRange
		Expect(admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: limitRangeName}, &limitRange)).To(Succeed())
		return limitRange.Spec.Limits[0].Default.Cpu().String()
	}

	It("continues after being killed at any point", func(ctx context.Context) {
		alone(ctx)
		for _, stop := range []string{
			"watch-before", "get-before", "get-after", "apply-before", "apply-after", "patch-before", "patch-after",
		} {
			By(stop)
			namespace := createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("killed")).Label(sizeLabel, "large"))
			s.touch(stop)
			Eventually(s.start()).WithContext(ctx).Should(gexec.Exit())
			Expect(filepath.Join(s.dir, stop)).NotTo(BeAnExistingFile())
			session := s.start()
			expectReady(ctx, namespace.Name)
			Expect(limits(ctx, namespace.Name)).To(Equal("2"))
			kill(session)
		}
	}, SpecTimeout(5*time.Minute))

	It("reports a permanent failure, and continues with other namespaces", func(ctx context.Context) {
		alone(ctx)
		impossible := wrappers.MakeNamespace(framework.Unique("impossible")).Label(sizeLabel, "huge").Obj()
		// The finalizer ensures that the test can still read the namespace after the operator deletes it.
		impossible.Finalizers = []string{"example.com/kept"}
		admin.Creates(ctx, impossible)
		s.start()
		Eventually(func(g Gomega) {
			namespace := cluster.GetNamespace(g, ctx, impossible.Name)
			g.Expect(namespace).To(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse,
				v1alpha1.ReasonFailed, "UnknownSize: ", "huge", "small", "large"))
			g.Expect(namespace.DeletionTimestamp).NotTo(BeNil())
			g.Expect(framework.PendingOf(namespace)).To(Equal(shellInitializer))
		}).WithContext(ctx).Should(Succeed())
		healthy := createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("healthy")))
		expectReady(ctx, healthy.Name)

		framework.RemoveFinalizers(ctx, admin, impossible)
		framework.ExpectDeleted(ctx, admin, impossible)
	}, SpecTimeout(5*time.Minute))

	It("ignores terminating namespaces and namespaces that wait for another initializer", func(ctx context.Context) {
		cluster.Register(ctx, framework.Unique("suite"), firstInitializer, shellInitializer)
		first := framework.NewUser(newAccount(ctx, "first", serving)).Clientset()
		terminating := wrappers.MakeNamespace(framework.Unique("left")).Obj()
		terminating.Finalizers = []string{"example.com/kept"}
		admin.Creates(ctx, terminating)
		admin.Deletes(ctx, terminating)
		Expect(initializers.Finish(ctx, first, terminating, firstInitializer)).To(Succeed())
		waiting := createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("left")))
		served := createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("taken")))
		Expect(initializers.Finish(ctx, first, served, firstInitializer)).To(Succeed())

		s.start()
		expectReady(ctx, served.Name)
		// These namespaces precede the others in the list, so the script has already seen them.
		for _, name := range []string{terminating.Name, waiting.Name} {
			Expect(framework.PendingOf(cluster.GetNamespace(Default, ctx, name))).To(HaveSuffix(shellInitializer))
		}
		for _, write := range cluster.AuditLog.Read() {
			if write.User.Username == shellUser {
				Expect(write.ObjectRef.Name).NotTo(BeElementOf(terminating.Name, waiting.Name))
				Expect(write.ObjectRef.Namespace).NotTo(BeElementOf(terminating.Name, waiting.Name))
			}
		}

		Expect(initializers.Finish(ctx, first, waiting, firstInitializer)).To(Succeed())
		expectReady(ctx, waiting.Name)
		framework.RemoveFinalizers(ctx, admin, terminating)
	}, SpecTimeout(5*time.Minute))
})
