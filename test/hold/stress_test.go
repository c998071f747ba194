// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("Held writes", func() {
	BeforeEach(func(ctx context.Context) { cluster.Register(ctx, "quick", "quick.test.example.com") })

	It("succeed through any API server", func(ctx context.Context) {
		second := cluster.StartSecondAPIServer(ctx)
		fill(ctx, 20, []kubernetes.Interface{cluster.Ordinary.Clientset(), second.As(cluster.Ordinary).Clientset()})
	})

	It("succeed while the certificate and its CA are replaced", func(ctx context.Context) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: controlplane.SystemNamespace, Name: options.Secret,
		}}
		rotations, stop := context.WithCancel(ctx)
		var background sync.WaitGroup
		background.Go(func() {
			defer GinkgoRecover()
			for rotations.Err() == nil {
				Expect(cluster.Admin.Patch(ctx, secret, client.RawPatch(types.MergePatchType, []byte(`{"data":null}`)))).To(Succeed())
				select {
				case <-time.After(500 * time.Millisecond):
				case <-rotations.Done():
				}
			}
		})
		fill(ctx, 20, []kubernetes.Interface{cluster.Ordinary.Clientset()})
		stop()
		background.Wait()
	})
})

// fill creates namespaces, and objects in them through each client, and initializes them. It reports the
// time from the response to the write that completes an initialization to each response to a held
// write.
func fill(ctx context.Context, number int, clients []kubernetes.Interface) {
	GinkgoHelper()
	var lock sync.Mutex
	var delays []time.Duration
	for range number {
		name := framework.Unique("filled")
		framework.CreateNamespace(ctx, cluster.Ordinary, name)
		var writes sync.WaitGroup
		var completed time.Time
		for i, clientset := range clients {
			for j := range 4 {
				writes.Go(func() {
					defer GinkgoRecover()
					_, err := clientset.CoreV1().ConfigMaps(name).Create(ctx,
						wrappers.MakeConfigMap(name, fmt.Sprintf("%d-%d", i, j)), metav1.CreateOptions{})
					Expect(err).NotTo(HaveOccurred())
					lock.Lock()
					defer lock.Unlock()
					delays = append(delays, time.Since(completed))
				})
			}
		}
		time.Sleep(20 * time.Millisecond)
		lock.Lock()
		cluster.Finish(ctx, name)
		completed = time.Now()
		lock.Unlock()
		writes.Wait()
	}
	AddReportEntry("release of held writes", summarize(delays))
}

// summarize returns the median, the 99th percentile and the maximum.
func summarize(durations []time.Duration) string {
	slices.Sort(durations)
	return fmt.Sprintf("median %s, p99 %s, maximum %s of %d", durations[len(durations)/2],
		durations[len(durations)*99/100], durations[len(durations)-1], len(durations))
}
