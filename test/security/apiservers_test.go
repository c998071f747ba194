// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// A is the API server of the cluster. B is the second API server.
var _ = Describe("A cluster with two API servers", Ordered, func() {
	const rounds = 50
	var (
		second       *framework.SecondAPIServer
		throughB     kubernetes.Interface
		initializerB kubernetes.Interface
	)

	BeforeAll(func(ctx context.Context) {
		second = cluster.StartSecondAPIServer(ctx)
		throughB = second.As(cluster.Ordinary).Clientset()
		initializerB = second.As(cluster.Initializer).Clientset()
		// The selector keeps the namespaces of other specs from getting the initializer.
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("two").Initializer("absent.test.example.com",
			v1alpha1.InitializerSettings{NamespaceSelector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"two": "yes"}}}))
		// B watches the policies and the NamespaceInitializerSet independently of A.
		Eventually(func(g Gomega) {
			probe := makeTwo("probe")
			g.Expect(second.As(cluster.Ordinary).Create(ctx, probe, client.DryRunAll)).To(Succeed())
			g.Expect(probe.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
	}, NodeTimeout(5*time.Minute))

	// write concurrently sends a CREATE, an UPDATE and a DELETE request for ConfigMaps to B. It
	// returns the names of the requests that B accepts.
	write := func(ctx context.Context, namespace string) []string {
		configMaps := throughB.CoreV1().ConfigMaps(namespace)
		var accepted []string
		var group sync.WaitGroup
		var lock sync.Mutex
		for name, do := range map[string]func() error{
			"create": func() error {
				_, err := configMaps.Create(ctx, wrappers.MakeConfigMap(namespace, framework.Unique("new")), metav1.CreateOptions{})
				return err
			},
			"update": func() error {
				_, err := configMaps.Update(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: "existing"}, Data: map[string]string{"a": framework.Unique("b")},
				}, metav1.UpdateOptions{})
				return err
			},
			"delete": func() error { return configMaps.Delete(ctx, "deletable", metav1.DeleteOptions{}) },
		} {
			group.Go(func() {
				if err := do(); err == nil {
					lock.Lock()
					defer lock.Unlock()
					accepted = append(accepted, name)
				}
			})
		}
		group.Wait()
		return accepted
	}

	// recreate deletes a namespace through A, empties spec.finalizers, and recreates the namespace. As
	// the initializer, it creates two ConfigMaps in the new namespace. It calls afterDelete while the
	// namespace is terminating. recreate returns the resource version of the new namespace.
	recreate := func(ctx context.Context, name string, afterDelete func()) int {
		GinkgoHelper()
		clientset := cluster.Admin.Clientset()
		namespaces := clientset.CoreV1().Namespaces()
		Expect(namespaces.Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
		afterDelete()
		Eventually(func() error {
			now, err := namespaces.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			now.Spec.Finalizers = nil
			_, err = namespaces.Finalize(ctx, now, metav1.UpdateOptions{})
			return client.IgnoreNotFound(err)
		}).WithContext(ctx).WithPolling(time.Millisecond).Should(Succeed())
		var created *corev1.Namespace
		Eventually(func() error {
			var err error
			created, err = cluster.Ordinary.Clientset().CoreV1().Namespaces().Create(ctx, makeTwo(name), metav1.CreateOptions{})
			return err
		}).WithContext(ctx).WithPolling(time.Millisecond).Should(Succeed())
		for _, configMap := range []string{"existing", "deletable"} {
			_, err := cluster.Initializer.Clientset().CoreV1().ConfigMaps(name).
				Create(ctx, wrappers.MakeConfigMap(name, configMap), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		return revisionOf(created)
	}

	It("rejects writes to a new namespace through B immediately after its creation", func(ctx context.Context) {
		accepted := 0
		for range rounds {
			namespace := makeTwo(framework.Unique("two"))
			created := make(chan struct{})
			result := make(chan int)
			go func() {
				count := 0
				<-created
				for range 5 {
					count += len(write(ctx, namespace.Name))
				}
				result <- count
			}()
			Expect(cluster.Ordinary.Create(ctx, namespace)).To(Succeed())
			close(created)
			accepted += <-result
		}
		AddReportEntry("accepted", fmt.Sprintf("%d of %d", accepted, rounds*15))
		Expect(accepted).To(BeZero())
	}, SpecTimeout(specTimeout))

	It("rejects writes to a namespace through B while the request that creates it through A is in progress", func(ctx context.Context) {
		accepted, requests := 0, 0
		for range rounds {
			namespace := makeTwo(framework.Unique("two"))
			stop := make(chan struct{})
			var group sync.WaitGroup
			group.Go(func() {
				defer GinkgoRecover()
				repeatUntil(stop, func() {
					accepted += len(write(ctx, namespace.Name))
					requests += 3
				})
			})
			Expect(cluster.Ordinary.Create(ctx, namespace)).To(Succeed())
			_, err := initializerB.CoreV1().ConfigMaps(namespace.Name).Create(ctx,
				wrappers.MakeConfigMap(namespace.Name, "existing"), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			close(stop)
			group.Wait()
		}
		AddReportEntry("accepted", fmt.Sprintf("%d of %d", accepted, requests))
		Expect(accepted).To(BeZero())
	}, SpecTimeout(specTimeout))

	It("allows writes to an initialized namespace through B shortly after A", func(ctx context.Context) {
		var rejected int
		var longest time.Duration
		for range rounds / 2 {
			namespace := makeTwo(framework.Unique("two"))
			Expect(cluster.Ordinary.Create(ctx, namespace)).To(Succeed())
			cluster.Finish(ctx, namespace.Name)
			completed := time.Now()
			Eventually(func() error {
				_, err := throughB.CoreV1().ConfigMaps(namespace.Name).Create(ctx,
					wrappers.MakeConfigMap(namespace.Name, "a"), metav1.CreateOptions{})
				if err != nil {
					rejected++
					Expect(err).To(BeForbiddenBy("gate"))
				}
				return err
			}).WithContext(ctx).WithPolling(time.Millisecond).Should(Succeed())
			longest = max(longest, time.Since(completed))
		}
		AddReportEntry("writes through B after the initialization", fmt.Sprintf("rejected %d, longest %s", rejected, longest))
		Expect(longest).To(BeNumerically("<", 5*time.Second))
	}, SpecTimeout(specTimeout))

	It("rejects creations through B in a namespace that was recreated through A, and reports other accepted writes", func(ctx context.Context) {
		counts := map[string]int{}
		for range rounds / 2 {
			name := framework.Unique("again")
			framework.CreateNamespace(ctx, cluster.Ordinary, name)
			Eventually(func() error { // Wait until B has observed the namespace.
				_, err := throughB.CoreV1().ConfigMaps(name).Create(ctx, wrappers.MakeConfigMap(name, "old"), metav1.CreateOptions{})
				return err
			}).WithContext(ctx).Should(Succeed())
			// Start writing before the deletion, so that some requests reach B in the same
			// millisecond.
			stop := make(chan struct{})
			var group sync.WaitGroup
			for range 2 {
				group.Go(func() {
					defer GinkgoRecover()
					repeatUntil(stop, func() { write(ctx, name) })
				})
			}
			// The grace period of the finalization gives B much more time to observe the deletion.
			since := recreate(ctx, name, func() {
				Eventually(func() error {
					_, err := throughB.CoreV1().ConfigMaps(name).Create(ctx, wrappers.MakeConfigMap(name, "probe"),
						metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					return err
				}).WithContext(ctx).WithPolling(time.Millisecond).ShouldNot(Succeed())
			})
			write(ctx, name)
			close(stop)
			group.Wait()
			var found corev1.ConfigMapList
			Expect(cluster.Admin.List(ctx, &found, client.InNamespace(name))).To(Succeed())
			isDeleted := true
			for _, configMap := range found.Items {
				switch {
				case configMap.Name == "deletable":
					isDeleted = false
				case configMap.Name != "existing":
					// Objects of the old namespace can remain after its deletion.
					if revisionOf(&configMap) > since {
						counts["create"]++
					}
				case configMap.Data != nil:
					counts["update"]++
				}
			}
			if isDeleted {
				counts["delete"]++
			}
		}
		AddReportEntry("accepted after the namespace was recreated", fmt.Sprintf("%v in %d namespaces", counts, rounds/2))
		Expect(counts).NotTo(HaveKey("create"))
	}, SpecTimeout(specTimeout))

	It("rejects writes to a new namespace after B resumes from a pause, and reports accepted writes to a recreated one", func(ctx context.Context) {
		fresh, recreated := map[string]int{}, map[string]int{}
		const pauses = 5
		for range pauses {
			old, other := framework.Unique("paused"), framework.Unique("fresh")
			framework.CreateNamespace(ctx, cluster.Ordinary, old)
			Eventually(func() error {
				_, err := throughB.CoreV1().ConfigMaps(old).Create(ctx, wrappers.MakeConfigMap(old, "old"), metav1.CreateOptions{})
				return err
			}).WithContext(ctx).Should(Succeed())
			Expect(second.Pause()).To(Succeed())
			recreate(ctx, old, func() {})
			Expect(cluster.Ordinary.Create(ctx, makeTwo(other))).To(Succeed())
			// The requests wait in B's sockets. B reads them first when it resumes.
			var group sync.WaitGroup
			group.Go(func() {
				for _, accepted := range write(ctx, old) {
					recreated[accepted]++
				}
			})
			group.Go(func() {
				for _, accepted := range write(ctx, other) {
					fresh[accepted]++
				}
			})
			time.Sleep(50 * time.Millisecond) // Wait until the requests have been sent. The client does not report this.
			Expect(second.Resume()).To(Succeed())
			group.Wait()
		}
		AddReportEntry("after a pause", fmt.Sprintf("new name: %v, recreated: %v, of %d each", fresh, recreated, pauses))
		Expect(fresh).To(BeEmpty())
	}, SpecTimeout(specTimeout))
})

// makeTwo returns a namespace with the label that the configuration selects.
func makeTwo(name string) *corev1.Namespace {
	return wrappers.MakeNamespace(name).Label("two", "yes").Obj()
}

func revisionOf(object client.Object) int {
	GinkgoHelper()
	revision, err := strconv.Atoi(object.GetResourceVersion())
	Expect(err).NotTo(HaveOccurred())
	return revision
}
