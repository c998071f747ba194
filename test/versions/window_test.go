// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// These specs report durations without checking them, because durations depend on the machine.
var _ = Describe("The time until the injection", func() {
	for _, burst := range []int{1, 20} {
		It(fmt.Sprintf("is measured with %d concurrent requests", burst), func(ctx context.Context) {
			switch {
			case !byOperator:
				Skip("the API server injects the list at creation")
			case *window == 0:
				Skip("measured only by make test-versions ARGS=-window=300")
			}
			register(ctx, "window", rbac)
			injected := watchInjections(ctx)
			var lock sync.Mutex
			var injections, rejections []time.Duration
			var workers sync.WaitGroup
			next := make(chan string)
			for range burst {
				workers.Go(func() {
					defer GinkgoRecover()
					for name := range next {
						Expect(ordinary.Create(ctx, wrappers.MakeNamespace(name).Obj())).To(Succeed())
						created := time.Now()
						until := injected(name)
						Eventually(func() error {
							return ordinary.Create(ctx, wrappers.MakeConfigMap(name, "x"), client.DryRunAll)
						}).WithContext(ctx).WithPolling(time.Millisecond).Should(BeDeniedBy("gate"))
						rejected := time.Since(created)
						lock.Lock()
						injections, rejections = append(injections, until.Sub(created)), append(rejections, rejected)
						lock.Unlock()
					}
				})
			}
			for range *window {
				next <- unique("window")
			}
			close(next)
			workers.Wait()
			AddReportEntry(fmt.Sprintf("%d concurrent requests: injected after %s; write rejected after %s",
				burst, summary(injections), summary(rejections)), ReportEntryVisibilityAlways)
		}, SpecTimeout(5*time.Minute))
	}
})

// watchInjections returns a function that waits until a watch returns a namespace with the pending
// list, and returns the time of that event.
func watchInjections(ctx context.Context) func(name string) time.Time {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(controlplane.Unlimited(plane.Admin))
	Expect(err).NotTo(HaveOccurred())
	var lock sync.Mutex
	seen := map[string]chan time.Time{}
	of := func(name string) chan time.Time {
		lock.Lock()
		defer lock.Unlock()
		if seen[name] == nil {
			seen[name] = make(chan time.Time, 1)
		}
		return seen[name]
	}
	note := func(object any) {
		namespace := object.(*corev1.Namespace)
		if _, found := namespace.Labels[v1alpha1.LabelInitializing]; found {
			select {
			case of(namespace.Name) <- time.Now():
			default:
			}
		}
	}
	informer := cache.NewSharedInformer(
		cache.NewListWatchFromClient(clientset.CoreV1().RESTClient(), "namespaces", "", fields.Everything()), &corev1.Namespace{}, 0)
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: note, UpdateFunc: func(_, object any) { note(object) },
	})
	Expect(err).NotTo(HaveOccurred())
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(cancel)
	go informer.RunWithContext(running)
	Expect(cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)).To(BeTrue())
	return func(name string) time.Time {
		select {
		case at := <-of(name):
			return at
		case <-ctx.Done():
			return time.Time{}
		}
	}
}

func summary(all []time.Duration) string {
	slices.Sort(all)
	at := func(share float64) time.Duration {
		return all[int(share*float64(len(all)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%s (median), %s (99th percentile), %s (maximum) of %d", at(0.5), at(0.99), at(1), len(all))
}
