// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// History contains the states of a Namespace in the order of the changes.
type History struct {
	lock      sync.Mutex
	states    []*corev1.Namespace
	removed   chan struct{}
	removedAt time.Time
}

// WatchNamespace records the states of a Namespace after a resource version until the spec ends. Without a resource
// version, the first state is the current one, if the Namespace exists.
func WatchNamespace(ctx context.Context, config *rest.Config, name, resourceVersion string) *History {
	GinkgoHelper()
	watcher, err := NewUser(config).Clientset().CoreV1().Namespaces().Watch(context.WithoutCancel(ctx),
		metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: resourceVersion})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(watcher.Stop)
	h := &History{removed: make(chan struct{})}
	go func() {
		for event := range watcher.ResultChan() {
			h.add(event)
		}
	}()
	return h
}

func (h *History) add(event watch.Event) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if namespace, ok := event.Object.(*corev1.Namespace); ok {
		h.states = append(h.states, namespace)
	}
	if event.Type == watch.Deleted && h.removedAt.IsZero() {
		h.removedAt = time.Now()
		close(h.removed)
	}
}

// States returns all states so far, including the final one.
func (h *History) States() []*corev1.Namespace {
	h.lock.Lock()
	defer h.lock.Unlock()
	return slices.Clone(h.states)
}

// WaitForRemoval waits until the Namespace no longer exists. It returns the final state and the time of the event.
func (h *History) WaitForRemoval(ctx context.Context) (*corev1.Namespace, time.Time) {
	GinkgoHelper()
	Eventually(h.removed).WithContext(ctx).Should(BeClosed())
	states := h.States()
	return states[len(states)-1], h.removedAt
}
