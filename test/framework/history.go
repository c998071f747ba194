// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// History contains the states of a Namespace in the order of the changes.
type History struct {
	lock      sync.Mutex
	states    []*corev1.Namespace
	removed   chan struct{}
	removedAt time.Time
	err       error
}

// WatchNamespace records the states of a Namespace after its resourceVersion until the spec ends. A Namespace without
// a resourceVersion is watched from now on.
func WatchNamespace(ctx context.Context, config *rest.Config, namespace *corev1.Namespace) *History {
	GinkgoHelper()
	namespaces := (&User{Config: config}).Clientset().CoreV1().Namespaces()
	version := namespace.ResourceVersion
	if version == "" {
		list, err := namespaces.List(ctx, metav1.ListOptions{Limit: 1})
		Expect(err).NotTo(HaveOccurred())
		version = list.ResourceVersion
	}
	selector := "metadata.name=" + namespace.Name
	// The API server closes slow watches, so the watch resumes from the last resourceVersion.
	watcher, err := watchtools.NewRetryWatcherWithContext(context.WithoutCancel(ctx), version, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			return namespaces.Watch(ctx, options)
		},
	})
	Expect(err).NotTo(HaveOccurred())
	h := &History{removed: make(chan struct{})}
	var done sync.WaitGroup
	done.Go(func() {
		for event := range watcher.ResultChan() {
			h.add(event)
		}
	})
	DeferCleanup(func() {
		watcher.Stop()
		done.Wait()
	})
	return h
}

func (h *History) add(event watch.Event) {
	h.lock.Lock()
	defer h.lock.Unlock()
	namespace, isNamespace := event.Object.(*corev1.Namespace)
	switch {
	case !isNamespace:
		h.err = fmt.Errorf("failed to watch a namespace: %v", event.Object)
		return
	case event.Type == watch.Deleted && h.removedAt.IsZero():
		h.removedAt = time.Now()
		close(h.removed)
	}
	h.states = append(h.states, namespace)
}

// States returns all states so far, including the final one.
func (h *History) States() []*corev1.Namespace {
	GinkgoHelper()
	h.lock.Lock()
	defer h.lock.Unlock()
	Expect(h.err).NotTo(HaveOccurred())
	return slices.Clone(h.states)
}

// WaitForRemoval waits until the Namespace no longer exists. It returns the final state and the time of the event.
func (h *History) WaitForRemoval(ctx context.Context) (*corev1.Namespace, time.Time) {
	GinkgoHelper()
	Eventually(h.removed).WithContext(ctx).Should(BeClosed())
	states := h.States()
	return states[len(states)-1], h.removedAt
}
