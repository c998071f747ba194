// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/model"
)

const (
	// recordingVariable is the environment variable with the path to which the spec writes its recording.
	recordingVariable = "NSLIFECYCLE_TEST_RECORDING"
	// secondController is the user name of kube-controller-manager's namespace controller.
	secondController = "system:serviceaccount:kube-system:namespace-controller"
)

var _ = Describe("The models", Serial, func() {
	DescribeTable("contain everything that happens while the manager is killed and a second controller starts",
		containEverything,
		// Includes the build of the manager. The other entries take as long as several round trips.
		Entry("without latencies", SpecTimeout(5*specTimeout), path{}, noLatency),
		Entry(late(etcdPath), SpecTimeout(5*specTimeout), etcdPath, 200*time.Millisecond),
		Entry(late(namespacesPath), SpecTimeout(5*specTimeout), namespacesPath, 200*time.Millisecond),
		Entry(late(membersPath), SpecTimeout(5*specTimeout), membersPath, 200*time.Millisecond),
	)
})

func containEverything(ctx context.Context, delayed path, latency time.Duration) {
	GinkgoHelper()
	binary := filepath.Join(cluster.Dir, "manager")
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.ManagerProgram, binary)).To(Succeed())
	unlimited, oneSecond := v1alpha1.InitializerSettings{}, v1alpha1.InitializerSettings{TimeoutSeconds: ptr.To(int32(1))}
	ignored := oneSecond
	ignored.FailurePolicy = ptr.To(v1alpha1.InitializerIgnore)
	failed := newScenario(ctx, "failed", unlimited, "first")
	shared := newScenario(ctx, "shared", unlimited)
	scenarios := []func(context.Context){
		newScenario(ctx, "completed", unlimited, "first", "second").completeTwice,
		newScenario(ctx, "ignored", ignored, "first", "second").waitUntilOpen,
		newScenario(ctx, "timed-out", oneSecond, "first").waitUntilRemoved,
		newScenario(ctx, "deregistered", unlimited, "first").deregister,
		newScenario(ctx, "terminated", unlimited, "first").terminateEarly,
		newScenario(ctx, "finalizers", unlimited).addFinalizer,
	}

	delayed.start(latency)
	cluster.StopManager()
	DeferCleanup(func(ctx context.Context) { cluster.StartManager(ctx) })
	process := startManagerProcess(ctx, binary)
	var group sync.WaitGroup
	for _, run := range scenarios {
		group.Go(func() {
			defer GinkgoRecover()
			run(ctx)
		})
	}
	time.Sleep(upTo(3 * time.Second))
	Expect(process.Kill()).To(Succeed())
	process = startManagerProcess(ctx, binary)
	DeferCleanup(process.Stop)
	failed.fail(ctx) // The operator alone removes this namespace.
	startSecondController(ctx)
	shared.addFinalizer(ctx)
	group.Wait()
	checkModels(ctx)
}

// startManagerProcess runs the manager in its own process, which can be killed.
func startManagerProcess(ctx context.Context, binary string) *controlplane.Process {
	GinkgoHelper()
	config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	process, err := controlplane.StartProcess(GinkgoWriter, binary, "--kubeconfig="+framework.KubeconfigFile(config), controlplane.WithoutAdmission,
		"--health-probe-bind-address=0", "--metrics-bind-address=0")
	Expect(err).NotTo(HaveOccurred())
	return process
}

// startSecondController runs kube-controller-manager's namespace controller until the spec ends.
func startSecondController(ctx context.Context) {
	GinkgoHelper()
	second, err := cluster.StartControllerManager(ctx, "--controllers=namespace-controller",
		"--use-service-account-credentials")
	if errors.Is(err, controlplane.ErrNoControllerManager) {
		report("%v", err)
		return
	}
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(second.Stop)
	Eventually(second.Log).WithContext(ctx).Should(ContainSubstring("Starting namespace controller"))
}

// checkModels checks everything that the observer has recorded.
func checkModels(ctx context.Context) {
	GinkgoHelper()
	recording := model.Recording{
		Servers: uint8(len(all)), Operator: framework.ManagerUser, SecondController: secondController, Ordinary: framework.OrdinaryUser,
		Steps: cluster.Observation.CollectEvidence(ctx).Steps(),
	}
	if path := os.Getenv(recordingVariable); path != "" {
		Expect(recording.Write(path)).To(Succeed())
	}
	start := time.Now()
	checked, err := recording.Check()
	for _, action := range slices.Sorted(maps.Keys(checked)) {
		report("%3d times: %s", checked[action], action)
	}
	report("checked %d steps in %s", len(recording.Steps), time.Since(start))
	Expect(err).NotTo(HaveOccurred())
	Expect(checked).To(And(HaveKey("the operator writes its decision to skip first after deregistration"),
		HaveKey("the operator deletes the object"), HaveKey("the operator removes the namespace finalizer")))
}
