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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

	It("are not interrupted when the certificate and its CA are replaced", func(ctx context.Context) {
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("rotated")).Name
		held := startCreate(ctx, cluster.Ordinary, namespace, "web")
		secret := &corev1.Secret{}
		key := client.ObjectKey{Namespace: controlplane.SystemNamespace, Name: options.Secret}
		Expect(cluster.Admin.Get(ctx, key, secret)).To(Succeed())
		before := secret.Data[corev1.TLSCertKey]
		Expect(cluster.Admin.Patch(ctx, secret, client.RawPatch(types.MergePatchType, []byte(`{"data":null}`)))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, key, secret)).To(Succeed())
			g.Expect(secret.Data[corev1.TLSCertKey]).NotTo(Or(BeEmpty(), Equal(before)))
		}).WithContext(ctx).Should(Succeed())
		Expect(held).NotTo(Receive())
		cluster.Finish(ctx, namespace)
		Expect(expectEnded(ctx, held)).To(Satisfy(apierrors.IsTooManyRequests))
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
