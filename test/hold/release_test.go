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

	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("A held write", func() {
	It("is released", func(ctx context.Context) {
		cluster.Register(ctx, "slow", "slow.test.example.com")
		clientset := cluster.Ordinary.Clientset()
		var lock sync.Mutex
		var latencies []time.Duration
		errs := map[string]int{}
		for round := range 40 {
			name := framework.Unique("held")
			framework.CreateNamespace(ctx, cluster.Ordinary, name)
			var group sync.WaitGroup
			opened := make(chan time.Time, 1)
			for i := range 5 {
				group.Go(func() {
					_, err := clientset.CoreV1().ConfigMaps(name).Create(ctx,
						&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}, metav1.CreateOptions{})
					at := time.Now()
					o := <-opened
					opened <- o
					lock.Lock()
					defer lock.Unlock()
					if err != nil {
						errs[err.Error()]++
					}
					latencies = append(latencies, at.Sub(o))
				})
			}
			time.Sleep(20 * time.Millisecond)
			cluster.Finish(ctx, name)
			opened <- time.Now()
			group.Wait()
			_ = round
		}
		slices.Sort(latencies)
		fmt.Println(errs, latencies[0], latencies[len(latencies)/2], latencies[len(latencies)*99/100], latencies[len(latencies)-1])
		Expect(errs).To(BeEmpty())
	})
})
