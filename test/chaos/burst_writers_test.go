// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	// burstPrefix is the label with the prefix of the names of the namespaces of one burst.
	burstPrefix = "chaos.example.com/prefix"
	// burstWorkers is the number of concurrent writes of each user.
	burstWorkers = 4
	// writeRetry is the time until a user repeats a rejected write without an event of the namespace.
	writeRetry = 5 * time.Second
)

// writer is a user that writes to each namespace before it exists and with each of its events, until a write succeeds.
type writer struct {
	client  kubernetes.Interface
	queue   workqueue.TypedDelayingInterface[string]
	results *outcomes

	lock sync.Mutex
	// written are the namespaces that the user has written to.
	written map[string]bool
}

type writers []*writer

// startWriters watches the namespaces of a burst as each user until the spec ends.
func startWriters(ctx context.Context, users []*framework.User, prefix string, results *outcomes) writers {
	GinkgoHelper()
	running, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	var all writers
	for _, user := range users {
		w := &writer{
			client: user.Clientset(), queue: workqueue.NewTypedDelayingQueue[string](), results: results,
			written: map[string]bool{},
		}
		all = append(all, w)
		factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0,
			informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = burstPrefix + "=" + prefix }))
		informer := factory.Core().V1().Namespaces().Informer()
		add := func(object any) { w.queue.Add(object.(*corev1.Namespace).Name) }
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: add, UpdateFunc: func(_, object any) { add(object) },
		})
		Expect(err).NotTo(HaveOccurred())
		factory.Start(running.Done())
		Expect(cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)).To(BeTrue())
		for range burstWorkers {
			done.Go(func() { w.run(running) })
		}
	}
	DeferCleanup(func() {
		cancel()
		for _, w := range all {
			w.queue.ShutDown()
		}
		done.Wait()
	})
	return all
}

// add makes all users write to a namespace.
func (all writers) add(namespace string) {
	for _, w := range all {
		w.queue.Add(namespace)
	}
}

// expectAll waits until all users have written to all namespaces.
func (all writers) expectAll(ctx context.Context, namespaces []string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, w := range all {
			w.lock.Lock()
			count := len(w.written)
			w.lock.Unlock()
			g.Expect(count).To(Equal(len(namespaces)))
		}
	}).WithContext(ctx).WithTimeout(15 * time.Minute).WithPolling(time.Second).Should(Succeed())
}

func (w *writer) run(ctx context.Context) {
	for {
		namespace, isShutDown := w.queue.Get()
		if isShutDown {
			return
		}
		w.write(ctx, namespace)
		w.queue.Done(namespace)
	}
}

func (w *writer) write(ctx context.Context, namespace string) {
	w.lock.Lock()
	isWritten := w.written[namespace]
	w.lock.Unlock()
	if isWritten {
		return
	}
	object := wrappers.MakeConfigMap(namespace, fmt.Sprintf("%p", w))
	_, err := w.client.CoreV1().ConfigMaps(namespace).Create(ctx, object, metav1.CreateOptions{})
	if ctx.Err() != nil {
		return
	}
	w.results.add(err, namespace, object.Name)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		w.queue.AddAfter(namespace, writeRetry)
		return
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	w.written[namespace] = true
}
