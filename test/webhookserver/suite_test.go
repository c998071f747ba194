// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/initializers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var (
	cluster *framework.Cluster
	// The addresses of the servers of the manager.
	address, probeAddress, metricsAddress string
	process                               *gexec.Session
)

func TestWebhookServer(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Webhook server")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()
	cluster = framework.Start(ctx)
	Expect(cluster.InstallHold(ctx, "default")).To(Succeed())
	Expect(cluster.AggregateClusterRoles(ctx)).To(Succeed())
	startManager(ctx)
	const name = "quick.test.example.com"
	initializer, err := initializers.Start(ctx, cluster.Initializer.Config, name,
		func(ctx context.Context, _ kubernetes.Interface, namespace *corev1.Namespace) error {
			select {
			case <-time.After(time.Until(namespace.CreationTimestamp.Add(500 * time.Millisecond))):
			case <-ctx.Done():
			}
			return nil
		})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(initializer.Stop)
	Expect(cluster.Admin.Create(ctx, wrappers.MakeConfiguration("quick").Initializers(name).Obj())).To(Succeed())
	cluster.ExpectActive(ctx, "quick")
}, NodeTimeout(15*time.Minute))

// startManager runs the manager until the suite ends, with the limit of its Deployment.
func startManager(ctx context.Context) {
	GinkgoHelper()
	binary := filepath.Join(cluster.Dir, "manager")
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.ManagerProgram, binary)).To(Succeed())
	config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	options, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	address, probeAddress, metricsAddress = options.Address, framework.FreeAddress(), framework.FreeAddress()
	command := exec.Command(binary, "--kubeconfig="+framework.KubeconfigFile(config), "--leader-elect",
		"--health-probe-bind-address="+probeAddress, "--metrics-bind-address="+metricsAddress, "--webhook-bind-address="+address, controlplane.WithoutAdmission)
	command.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%dMiB", memoryLimit()))
	process, err = gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { process.Terminate().Wait(30 * time.Second) })
	_, err = cluster.StartAdmission(ctx, func(o *manager.Options) { o.Hold = options })
	Expect(err).NotTo(HaveOccurred())
	Expect(cluster.WaitForHold(ctx, options.URL)).To(Succeed())
}

// memoryLimit returns the limit of the manager in MiB.
func memoryLimit() int {
	GinkgoHelper()
	manifest, err := os.ReadFile(filepath.Join(controlplane.Root(), "config", "manager", "base", "deployment.yaml"))
	Expect(err).NotTo(HaveOccurred())
	match := regexp.MustCompile(`memory: (\d+)Mi\s+securityContext`).FindStringSubmatch(string(manifest))
	Expect(match).NotTo(BeNil())
	limit, err := strconv.Atoi(match[1])
	Expect(err).NotTo(HaveOccurred())
	return limit
}

// peakMemory returns the largest resident memory of the manager in MiB since resetPeakMemory.
func peakMemory() int {
	GinkgoHelper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.Command.Process.Pid))
	Expect(err).NotTo(HaveOccurred(), "the manager must be running")
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(text), " kB"))
			Expect(err).NotTo(HaveOccurred())
			return kilobytes >> 10
		}
	}
	Fail("no VmHWM in " + string(status))
	return 0
}

func resetPeakMemory() {
	GinkgoHelper()
	path := fmt.Sprintf("/proc/%d/clear_refs", process.Command.Process.Pid)
	Expect(os.WriteFile(path, []byte("5"), 0)).To(Succeed())
}
