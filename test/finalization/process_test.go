// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// builtManager is where the real binary is; it goes with the control plane in whose
// directory it was built.
var builtManager string

// managerBinary returns the path of the real binary.
func managerBinary(ctx context.Context) string {
	GinkgoHelper()
	if _, err := os.Stat(builtManager); err == nil {
		return builtManager
	}
	builtManager = filepath.Join(plane.Dir, "manager")
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.ManagerProgram, builtManager)).To(Succeed())
	return builtManager
}

// startProcess runs the real binary until the spec ends.
func startProcess(ctx context.Context, config *rest.Config, flags ...string) *gexec.Session {
	GinkgoHelper()
	command := exec.Command(managerBinary(ctx), append(flags, "--kubeconfig="+kubeconfigFile(config),
		"--health-probe-bind-address=0", "--metrics-bind-address=0")...)
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { session.Terminate().Wait(30 * time.Second) })
	return session
}

func kubeconfigFile(config *rest.Config) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(controlplane.WriteKubeconfig(path, config)).To(Succeed())
	return path
}

var _ = Describe("The manager's process", func() {
	It("finalizes where nothing of ours is installed but its rights", func(ctx context.Context) {
		managerBinary(ctx)
		useOwnPlane(ctx)
		// config/rbac by itself names everything without the prefix, in namespace "system".
		create(ctx, wrappers.MakeNamespace("system").Obj())
		_, err := plane.Kubectl(ctx, plane.Admin, "apply", "-k", filepath.Join(controlplane.Root(), "config", "rbac"))
		Expect(err).NotTo(HaveOccurred())
		config, err := plane.ServiceAccountConfig(ctx, "system", "controller-manager")
		Expect(err).NotTo(HaveOccurred())

		By("refusing to initialize there")
		refusing := startProcess(ctx, config, "--system-namespace=system")
		Eventually(refusing).WithContext(ctx).Should(gexec.Exit(1))
		Expect(refusing.Err).To(gbytes.Say("CustomResourceDefinitions are not installed"))

		session := startProcess(ctx, config, "--controllers=finalization", "--system-namespace=system", "--leader-elect")
		namespace := createNamespace(ctx, "bare")
		held := hold(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, append(settings(namespace.Name, "a", "b"), held)...)
		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 1 resource instances"))
		release(ctx, held)
		expectGone(ctx, namespace)
		Expect(session).NotTo(gexec.Exit(), "it was running until here")
		session.Terminate()
		Eventually(session).WithContext(ctx).Should(gexec.Exit(0))
		Expect(string(session.Err.Contents())).NotTo(Or(ContainSubstring(`"level":"error"`),
			ContainSubstring("forbidden")))
	}, SpecTimeout(2*time.Minute))

	It("leaves namespaces that are deleted alone where it only initializes", func(ctx context.Context) {
		stopManager()
		initializing := startProcess(ctx, managerConfig(ctx), "--controllers=initialization")
		living := createNamespace(ctx, "living")
		initialized := func(name string) func(Gomega) {
			return func(g Gomega) {
				g.Expect(get(g, ctx, name)).To(
					HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonNotRequired))
			}
		}
		Eventually(initialized(living.Name)).WithContext(ctx).Should(Succeed())

		namespace := createNamespace(ctx, "left-alone")
		Eventually(initialized(namespace.Name)).WithContext(ctx).Should(Succeed())
		objects := settings(namespace.Name, "a", "b")
		create(ctx, objects...)
		deleteObject(ctx, namespace)
		before := get(Default, ctx, namespace.Name)
		expectKept(ctx, objects...)
		Expect(get(Default, ctx, namespace.Name)).To(And(Equal(before), BeTerminating(), HaveNoVerdict()))
		Expect(initializing).NotTo(gexec.Exit())

		By("until another one finalizes, beside it")
		finalizing := startProcess(ctx, managerConfig(ctx), "--controllers=*,-initialization,-diagnosis")
		expectGone(ctx, namespace)
		Expect(finalizing.Err).To(gbytes.Say(`"controllers":"finalization"`))
		deleteObject(ctx, living)
		expectGone(ctx, living)
	}, SpecTimeout(time.Minute))

	It("honours its flags", func(ctx context.Context) {
		stopManager()
		namespace := createNamespace(ctx, "flags", origin)
		session := startProcess(ctx, managerConfig(ctx),
			"--controllers=finalization", "--finalizer-token="+string(origin), "--settling-time=0s")
		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveTokens(kubernetesToken))
		Eventually(session.Err).WithContext(ctx).Should(gbytes.Say(`"settlingTime":"0s","reason":"set by --settling-time"`))
		finalize(ctx, namespace.Name)
		expectGone(ctx, namespace)
	}, SpecTimeout(time.Minute))

	DescribeTable("reports an invalid flag in one sentence",
		func(ctx context.Context, flag, sentence string) {
			var stdout, stderr bytes.Buffer
			command := exec.CommandContext(ctx, managerBinary(ctx), flag, "--kubeconfig="+kubeconfigFile(plane.Admin))
			command.Stdout, command.Stderr = &stdout, &stderr
			var exit *exec.ExitError
			Expect(errors.As(command.Run(), &exit)).To(BeTrue())
			Expect(exit.ExitCode()).To(Equal(1))
			Expect(stdout.String()).To(BeEmpty())
			Expect(strings.TrimSuffix(stderr.String(), "\n")).To(And(ContainSubstring(sentence), Not(ContainSubstring("\n"))))
		},
		Entry("a controller that is not", "--controllers=namespaces",
			`unknown controller "namespaces": specify a comma-separated list of diagnosis, expiry, finalization, initialization`),
		Entry("a controller that is not, left out", "--controllers=*,-namespaces", `unknown controller "namespaces"`),
		Entry("no controller", "--controllers=", `unknown controller ""`),
		Entry("no controller left", "--controllers=*,-initialization,-finalization,-diagnosis", "selects no controller"),
		Entry("a namespace finalizer without a domain", "--finalizer-token=agent", "such as example.com/agent"),
		Entry("two namespace finalizers", "--finalizer-token=a.example.com/a,kubernetes",
			"is not a valid namespace finalizer"),
		Entry("no namespace finalizer", "--finalizer-token=", `"" is not a valid namespace finalizer`),
		Entry("a grace period without a unit", "--settling-time=5", `neither "auto" nor a duration such as "5s"`),
		Entry("a negative grace period", "--settling-time=-1s", `neither "auto" nor a duration`),
		Entry("no progress deadline", "--diagnosis-progress-deadline=0s", "--diagnosis-progress-deadline 0s is too short: use 1s or more"),
		Entry("no grace period", "--settling-time=", `neither "auto" nor a duration`),
	)

	It("reports an invalid flag without a cluster", func(ctx context.Context) {
		command := exec.CommandContext(ctx, managerBinary(ctx), "--settling-time=soon")
		command.Env = []string{"HOME=" + GinkgoT().TempDir(), "KUBECONFIG=" + filepath.Join(GinkgoT().TempDir(), "none")}
		output, err := command.CombinedOutput()
		var exit *exec.ExitError
		Expect(errors.As(err, &exit)).To(BeTrue())
		Expect(exit.ExitCode()).To(Equal(1))
		Expect(string(output)).To(HavePrefix(`grace period "soon" is neither`))
	}, SpecTimeout(30*time.Second))
})

// remainingOf returns how many objects of a type a namespace has, without reading them.
func remainingOf(g Gomega, ctx context.Context, namespace string) int {
	list, err := metadataClient.Resource(configMaps).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	g.Expect(err).NotTo(HaveOccurred())
	if list.RemainingItemCount == nil {
		return len(list.Items)
	}
	return len(list.Items) + int(*list.RemainingItemCount)
}
