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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
	"github.com/nslifecycle/nslifecycle/test/servers/model"
)

const (
	// recordingVariable is the environment variable with the path to which the spec writes its recording, for example
	// that of the recording in model/testdata, to replace it.
	recordingVariable = "NSLIFECYCLE_TEST_RECORDING"
	// secondController is the user name of kube-controller-manager's namespace controller.
	secondController = "system:serviceaccount:kube-system:namespace-controller"
)

var _ = Describe("The model of the finalization", Serial, func() {
	// Includes the build of the manager.
	It("contains everything that happens while the manager is killed and a second controller starts", func(ctx context.Context) {
		binary := filepath.Join(cluster.Dir, "manager")
		Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.ManagerProgram, binary)).To(Succeed())
		cluster.StopManager()
		DeferCleanup(func(ctx context.Context) { cluster.StartManager(ctx) })
		process := startManagerProcess(ctx, binary)
		single, recreated, finalizers, shared :=
			newScenario("single"), newScenario("recreated"), newScenario("finalizers"), newScenario("shared")
		var group sync.WaitGroup
		for _, run := range []func(context.Context){
			func(ctx context.Context) { recreated.run(ctx); recreated.run(ctx) }, finalizers.addFinalizer,
		} {
			group.Go(func() {
				defer GinkgoRecover()
				run(ctx)
			})
		}
		time.Sleep(upTo(3 * time.Second))
		Expect(process.Kill()).To(Succeed())
		process = startManagerProcess(ctx, binary)
		DeferCleanup(process.Stop)
		single.run(ctx) // The operator alone removes this namespace.
		startSecondController(ctx)
		shared.addFinalizer(ctx)
		group.Wait()
		checkModel(ctx)
	}, SpecTimeout(5*specTimeout))
})

// startManagerProcess starts a manager that uses a.
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

// checkModel expects that the model allows everything that the observer has recorded since the last spec.
func checkModel(ctx context.Context) {
	GinkgoHelper()
	recording := model.Recording{
		Servers: uint8(len(all)), Operator: framework.ManagerUser, SecondController: secondController, Ordinary: framework.OrdinaryUser,
		Steps: cluster.Observation.CollectEvidence(ctx).Steps(),
	}
	if path := os.Getenv(recordingVariable); path != "" {
		Expect(recording.Write(path)).To(Succeed())
	}
	checked, err := recording.Check()
	for _, action := range slices.Sorted(maps.Keys(checked)) {
		report("%3d times: %s", checked[action], action)
	}
	Expect(err).NotTo(HaveOccurred())
	Expect(checked).To(And(HaveKey("the operator deletes the object"), HaveKey("the operator removes the namespace finalizer")))
}

// testFinalizer is a finalizer of objects and of namespaces.
const testFinalizer = "test.example.com/finalizer"

// scenario creates and deletes namespaces of one name, with requests to two API servers.
type scenario struct {
	name string
	// first and second are the API servers in a random order.
	first, second *server
}

func newScenario(name string) *scenario {
	s := &scenario{name: framework.Unique(name)}
	s.first, s.second = inRandomOrder()
	return s
}

// run creates a namespace with an object with a finalizer, and deletes it while users create other objects.
func (s *scenario) run(ctx context.Context) {
	GinkgoHelper()
	s.first.create(ctx, wrappers.MakeNamespace(s.name).Obj())
	held := wrappers.MakeConfigMap(s.name, updatable)
	held.Finalizers = []string{testFinalizer}
	for through, object := range map[*server]*corev1.ConfigMap{s.first: held, s.second: wrappers.MakeConfigMap(s.name, "user")} {
		Eventually(func() error { // The API server can still observe the previous namespace.
			_, err := through.ordinary.CoreV1().ConfigMaps(s.name).Create(ctx, object, metav1.CreateOptions{})
			return err
		}).WithContext(ctx).Should(Succeed())
	}
	var users sync.WaitGroup
	for _, through := range all {
		users.Go(func() { // Succeeds, or fails because the namespace is terminating.
			_ = operations(through.ordinary, s.name)["create"](ctx)
		})
	}
	wait := s.second.remove(ctx, s.name)
	objects := s.first.ordinary.CoreV1().ConfigMaps(s.name)
	Eventually(func(g Gomega) {
		object, err := objects.Get(ctx, updatable, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(object.DeletionTimestamp).NotTo(BeNil())
	}).WithContext(ctx).Should(Succeed())
	users.Wait()
	_, err := objects.Patch(ctx, updatable, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
	wait()
}

// addFinalizer adds the finalizer of another controller to spec.finalizers of the namespace, deletes the
// namespace, and removes the finalizer after the operator has removed its own.
func (s *scenario) addFinalizer(ctx context.Context) {
	s.first.create(ctx, wrappers.MakeNamespace(s.name).Obj())
	s.finalize(ctx, func(finalizers []corev1.FinalizerName) []corev1.FinalizerName {
		return append(finalizers, testFinalizer)
	})
	wait := s.second.remove(ctx, s.name)
	Eventually(func(g Gomega) {
		namespace := cluster.GetNamespace(g, ctx, s.name)
		g.Expect(namespace.Spec.Finalizers).To(ConsistOf(corev1.FinalizerName(testFinalizer)))
	}).WithContext(ctx).Should(Succeed())
	s.finalize(ctx, func(finalizers []corev1.FinalizerName) []corev1.FinalizerName {
		return slices.DeleteFunc(finalizers, func(finalizer corev1.FinalizerName) bool { return finalizer == testFinalizer })
	})
	wait()
}

// finalize changes spec.finalizers of the namespace.
func (s *scenario) finalize(ctx context.Context, change func([]corev1.FinalizerName) []corev1.FinalizerName) {
	GinkgoHelper()
	namespaces := s.first.admin.CoreV1().Namespaces()
	Eventually(func() error {
		namespace, err := namespaces.Get(ctx, s.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		namespace.Spec.Finalizers = change(namespace.Spec.Finalizers)
		_, err = namespaces.Finalize(ctx, namespace, metav1.UpdateOptions{})
		return client.IgnoreNotFound(err)
	}).WithContext(ctx).Should(Succeed())
}
