// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"fmt"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/initializers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	// scenarioLabel selects the initializers of a namespace.
	scenarioLabel = "test.example.com/scenario"
	// testFinalizer is a finalizer of objects and of namespaces.
	testFinalizer = "test.example.com/finalizer"
)

// scenario is a namespace with its own configuration. A user and an initializer write through random API servers.
type scenario struct {
	name          string
	configuration *v1alpha1.NamespaceInitializerConfiguration
	initializers  []string
	// first and second are the API servers in a random order.
	first, second *server
}

// newScenario registers initializers for the namespace until the spec ends.
func newScenario(
	ctx context.Context, name string, settings v1alpha1.InitializerSettings, initializerNames ...string,
) *scenario {
	GinkgoHelper()
	s := &scenario{name: framework.Unique(name)}
	s.first, s.second = inRandomOrder()
	if len(initializerNames) == 0 {
		return s
	}
	settings.NamespaceSelector = &v1alpha1.NamespaceSelector{
		MatchLabels: map[string]v1alpha1.LabelValue{scenarioLabel: v1alpha1.LabelValue(s.name)},
	}
	configuration := wrappers.MakeConfiguration(s.name)
	for _, initializer := range initializerNames {
		s.initializers = append(s.initializers, fmt.Sprintf("%s.%s.example.com", initializer, s.name))
		configuration.Initializer(s.initializers[len(s.initializers)-1], settings)
	}
	s.configuration = configuration.Obj()
	s.register(ctx)
	DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, s.configuration)).To(Succeed()) })
	return s
}

// register creates the configuration and waits until all API servers inject its initializers.
func (s *scenario) register(ctx context.Context) {
	GinkgoHelper()
	s.configuration.ResourceVersion = ""
	Expect(cluster.Admin.Create(ctx, s.configuration)).To(Succeed())
	for _, through := range all {
		Eventually(func(g Gomega) {
			probe := s.namespace()
			probe.Name = "probe"
			probe, err := through.ordinary.CoreV1().Namespaces().Create(ctx, probe,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(framework.PendingOf(probe)).NotTo(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
	}
}

func (s *scenario) namespace() *corev1.Namespace {
	return wrappers.MakeNamespace(s.name).Label(scenarioLabel, s.name).Obj()
}

// create creates the namespace. A user creates an object in it as soon as this is possible, unless the namespace
// is deleted before.
func (s *scenario) create(ctx context.Context) (waitForUser func()) {
	GinkgoHelper()
	s.first.create(ctx, s.namespace())
	var user sync.WaitGroup
	user.Go(func() {
		defer GinkgoRecover()
		Eventually(func() error {
			_, err := s.second.ordinary.CoreV1().ConfigMaps(s.name).Create(ctx, wrappers.MakeConfigMap(s.name, "user"),
				metav1.CreateOptions{})
			if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return nil
			}
			return err
		}).WithContext(ctx).Should(Succeed())
	})
	return user.Wait
}

// fill creates an object with a finalizer as an initializer.
func (s *scenario) fill(ctx context.Context) {
	GinkgoHelper()
	object := wrappers.MakeConfigMap(s.name, updatable)
	object.Finalizers = []string{testFinalizer}
	Eventually(func() error { // The API server can still observe the previous namespace.
		_, err := s.first.initializer.CoreV1().ConfigMaps(s.name).Create(ctx, object, metav1.CreateOptions{})
		return err
	}).WithContext(ctx).Should(Succeed())
}

// finish removes all initializers, one after the other.
func (s *scenario) finish(ctx context.Context) {
	GinkgoHelper()
	for _, name := range s.initializers {
		Eventually(func() error {
			namespace, err := s.second.initializer.CoreV1().Namespaces().Get(ctx, s.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return initializers.Finish(ctx, s.second.initializer, namespace, name)
		}).WithContext(ctx).Should(Succeed())
	}
}

// removeFilled deletes the namespace, removes the finalizer of its object, and waits for its removal.
func (s *scenario) removeFilled(ctx context.Context) {
	GinkgoHelper()
	wait := s.second.remove(ctx, s.name)
	objects := s.first.initializer.CoreV1().ConfigMaps(s.name)
	Eventually(func(g Gomega) {
		object, err := objects.Get(ctx, updatable, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(object.DeletionTimestamp).NotTo(BeNil())
	}).WithContext(ctx).Should(Succeed())
	_, err := objects.Patch(ctx, updatable, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
	wait()
}

// completeTwice completes the initialization, and deletes and recreates the namespace.
func (s *scenario) completeTwice(ctx context.Context) {
	for range 2 {
		waitForUser := s.create(ctx)
		s.fill(ctx)
		s.finish(ctx)
		waitForUser()
		Eventually(func() error {
			_, err := s.second.ordinary.CoreV1().ConfigMaps(s.name).Patch(ctx, updatable, types.MergePatchType,
				[]byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
			return err
		}).WithContext(ctx).Should(Succeed())
		s.removeFilled(ctx)
	}
}

// fail sets a failure result, so that the operator deletes the namespace.
func (s *scenario) fail(ctx context.Context) {
	wait := awaitRemoval(ctx, s.name)
	waitForUser := s.create(ctx)
	result := fmt.Sprintf(`{"metadata":{"annotations":{%q:"{\"status\":\"Failure\",\"message\":\"test\"}"}}}`,
		v1alpha1.AnnotationInitializationResult)
	_, err := s.first.initializer.CoreV1().Namespaces().Patch(ctx, s.name, types.MergePatchType, []byte(result),
		metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
	wait()
	waitForUser()
}

// waitUntilOpen waits until the operator skips the initializers, and deletes the namespace.
func (s *scenario) waitUntilOpen(ctx context.Context) {
	s.create(ctx)()
	s.first.remove(ctx, s.name)()
}

// waitUntilRemoved waits until the operator fails the initialization and removes the namespace.
func (s *scenario) waitUntilRemoved(ctx context.Context) {
	wait := awaitRemoval(ctx, s.name)
	waitForUser := s.create(ctx)
	wait()
	waitForUser()
}

// deregister deletes the configuration, deletes and recreates the namespace, and creates the configuration again.
func (s *scenario) deregister(ctx context.Context) {
	waitForUser := s.create(ctx)
	Expect(cluster.Admin.Delete(ctx, s.configuration)).To(Succeed())
	waitForUser()
	s.second.remove(ctx, s.name)()
	s.create(ctx)()
	s.register(ctx)
	s.second.remove(ctx, s.name)()
}

// terminateEarly deletes the namespace during its initialization, and recreates it.
func (s *scenario) terminateEarly(ctx context.Context) {
	waitForUser := s.create(ctx)
	s.fill(ctx)
	s.removeFilled(ctx)
	waitForUser()
	waitForUser = s.create(ctx)
	s.finish(ctx)
	waitForUser()
}

// addFinalizer adds the finalizer of another controller to spec.finalizers of the namespace, deletes the
// namespace, and removes the finalizer after the operator has removed its own.
func (s *scenario) addFinalizer(ctx context.Context) {
	s.create(ctx)()
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
	namespaces := s.first.initializer.CoreV1().Namespaces()
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
