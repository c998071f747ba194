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
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// builtManager is the path of the manager binary. The binary is in the directory of the control
// plane and is removed together with it.
var builtManager string

// managerBinary returns the path of the manager binary, which the first call builds.
func managerBinary(ctx context.Context) string {
	GinkgoHelper()
	if _, err := os.Stat(builtManager); err == nil {
		return builtManager
	}
	builtManager = filepath.Join(plane.Dir, "manager")
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.ManagerProgram, builtManager)).To(Succeed())
	return builtManager
}

// startProcess runs the manager binary until the spec ends.
func startProcess(ctx context.Context, config *rest.Config, flags ...string) *gexec.Session {
	GinkgoHelper()
	command := exec.Command(managerBinary(ctx), append(flags, "--kubeconfig="+framework.KubeconfigFile(config),
		"--health-probe-bind-address=0", "--metrics-bind-address=0")...)
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { session.Terminate().Wait(30 * time.Second) })
	return session
}

// applyPart applies a kustomization in a directory of config.
func applyPart(ctx context.Context, kustomization string) {
	GinkgoHelper()
	directory := GinkgoT().TempDir()
	Expect(os.CopyFS(directory, os.DirFS(filepath.Join(controlplane.Root(), "config")))).To(Succeed())
	part := filepath.Join(directory, "part")
	Expect(os.Mkdir(part, 0o755)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(part, "kustomization.yaml"), []byte(kustomization), 0o644)).To(Succeed())
	_, err := plane.Kubectl(ctx, plane.Admin, "apply", "-k", part)
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("The manager process", func() {
	It("finalizes namespaces without CustomResourceDefinitions and admission policies", func(ctx context.Context) {
		managerBinary(ctx)
		useDedicatedControlPlane(ctx)
		applyPart(ctx, "namespace: nslifecycle-system\nnamePrefix: nslifecycle-\n"+
			"resources: [../manager/namespace, ../rbac, ../manager]\n")
		config := managerConfig(ctx)

		By("failing to start the initialization controller")
		initializing := startProcess(ctx, config)
		Eventually(initializing).WithContext(ctx).Should(gexec.Exit(1))
		Expect(initializing.Err).To(gbytes.Say("CustomResourceDefinitions are not installed"))

		session := startProcess(ctx, config, "--controllers=finalization", "--leader-elect")
		namespace := createNamespace(ctx, "bare")
		held := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, append(makeConfigMaps(namespace.Name, "a", "b"), held)...)
		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 1 resource instances"))
		removeFinalizers(ctx, held)
		expectDeleted(ctx, namespace)
		Expect(session).NotTo(gexec.Exit(), "the manager exited early")
		session.Terminate()
		Eventually(session).WithContext(ctx).Should(gexec.Exit(0))
		for line := range strings.Lines(string(session.Err.Contents())) {
			// controller-runtime logs this error if the manager releases its Lease before it has stopped.
			if !strings.Contains(line, "leader election lost") {
				Expect(line).NotTo(Or(ContainSubstring(`"level":"error"`), ContainSubstring("forbidden")))
			}
		}
	}, SpecTimeout(5*time.Minute))

	It("does not finalize namespaces if only the initialization controller is enabled", func(ctx context.Context) {
		stopManager()
		initializing := startProcess(ctx, managerConfig(ctx), "--controllers=initialization")
		active := createNamespace(ctx, "active")
		initialized := func(name string) func(Gomega) {
			return func(g Gomega) {
				g.Expect(get(g, ctx, name)).To(
					HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonNotRequired))
			}
		}
		Eventually(initialized(active.Name)).WithContext(ctx).Should(Succeed())

		namespace := createNamespace(ctx, "not-finalized")
		Eventually(initialized(namespace.Name)).WithContext(ctx).Should(Succeed())
		objects := makeConfigMaps(namespace.Name, "a", "b")
		create(ctx, objects...)
		deleteObject(ctx, namespace)
		before := get(Default, ctx, namespace.Name)
		expectKept(ctx, objects...)
		Expect(get(Default, ctx, namespace.Name)).To(And(Equal(before), BeTerminating(), HaveNoFinalizationConditions()))
		Expect(initializing).NotTo(gexec.Exit())

		By("starting another manager, which finalizes namespaces")
		finalizing := startProcess(ctx, managerConfig(ctx), "--controllers=*,-admission,-initialization,-diagnosis")
		expectDeleted(ctx, namespace)
		Expect(finalizing.Err).To(gbytes.Say(`"controllers":"finalization"`))
		deleteObject(ctx, active)
		expectDeleted(ctx, active)
	}, SpecTimeout(5*time.Minute))

	It("applies the values of its flags", func(ctx context.Context) {
		stopManager()
		namespace := createNamespace(ctx, "flags", origin)
		session := startProcess(ctx, serviceAccountConfig(ctx, "flags", origin),
			"--controllers=finalization", "--finalizer-token="+string(origin), "--settling-time=0s")
		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveNamespaceFinalizers(corev1.FinalizerKubernetes))
		Eventually(session.Err).WithContext(ctx).Should(gbytes.Say(`"settlingTime":"0s","reason":"set by --settling-time"`))
		finalize(ctx, namespace.Name)
		expectDeleted(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	DescribeTable("reports an invalid flag in a single line",
		func(ctx context.Context, flag, sentence string) {
			var stdout, stderr bytes.Buffer
			command := exec.CommandContext(ctx, managerBinary(ctx), flag, "--kubeconfig="+framework.KubeconfigFile(plane.Admin))
			command.Stdout, command.Stderr = &stdout, &stderr
			var exit *exec.ExitError
			Expect(errors.As(command.Run(), &exit)).To(BeTrue())
			Expect(exit.ExitCode()).To(Equal(1))
			Expect(stdout.String()).To(BeEmpty())
			Expect(strings.TrimSuffix(stderr.String(), "\n")).To(And(ContainSubstring(sentence), Not(ContainSubstring("\n"))))
		},
		Entry("an unknown controller", "--controllers=namespaces",
			`unknown controller "namespaces": specify a comma-separated list of admission, diagnosis, expiry, finalization, initialization`),
		Entry("an unknown excluded controller", "--controllers=*,-namespaces", `unknown controller "namespaces"`),
		Entry("an empty list of controllers", "--controllers=", `unknown controller ""`),
		Entry("all controllers excluded", "--controllers=*,-admission,-initialization,-finalization,-diagnosis", "enables no controller"),
		Entry("a namespace finalizer without a domain", "--finalizer-token=agent", "such as example.com/agent"),
		Entry("two namespace finalizers", "--finalizer-token=a.example.com/a,kubernetes",
			"is not a valid namespace finalizer"),
		Entry("an empty namespace finalizer", "--finalizer-token=", `"" is not a valid namespace finalizer`),
		Entry("a grace period without a unit", "--settling-time=5", `neither "auto" nor a duration such as "5s"`),
		Entry("a negative grace period", "--settling-time=-1s", `neither "auto" nor a duration`),
		Entry("a progress deadline of zero", "--diagnosis-progress-deadline=0s", "--diagnosis-progress-deadline 0s is too short: use 1s or more"),
		Entry("an empty grace period", "--settling-time=", `neither "auto" nor a duration`),
	)

	It("reports an invalid flag even if no cluster is configured", func(ctx context.Context) {
		command := exec.CommandContext(ctx, managerBinary(ctx), "--settling-time=soon")
		command.Env = []string{"HOME=" + GinkgoT().TempDir(), "KUBECONFIG=" + filepath.Join(GinkgoT().TempDir(), "none")}
		output, err := command.CombinedOutput()
		var exit *exec.ExitError
		Expect(errors.As(err, &exit)).To(BeTrue())
		Expect(exit.ExitCode()).To(Equal(1))
		Expect(string(output)).To(HavePrefix(`grace period "soon" is neither`))
	}, SpecTimeout(5*time.Minute))
})

// remainingOf returns the number of ConfigMaps in a namespace. It sends only one list request, with
// limit 1.
func remainingOf(g Gomega, ctx context.Context, namespace string) int {
	list, err := metadataClient.Resource(configMaps).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	g.Expect(err).NotTo(HaveOccurred())
	if list.RemainingItemCount == nil {
		return len(list.Items)
	}
	return len(list.Items) + int(*list.RemainingItemCount)
}
