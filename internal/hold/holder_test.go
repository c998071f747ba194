// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// memory is a reader with at most one Namespace.
type memory struct {
	client.Reader

	lock      sync.Mutex
	namespace *corev1.Namespace
}

func (m *memory) set(namespace *corev1.Namespace) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.namespace = namespace
}

// Get implements client.Reader.
func (m *memory) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.namespace == nil || m.namespace.Name != key.Name {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, key.Name)
	}
	m.namespace.DeepCopyInto(object.(*corev1.Namespace))
	return nil
}

func TestWait(t *testing.T) {
	initializing := makeNamespace()
	tests := map[string]struct {
		before *corev1.Namespace // in the cache
		events []*corev1.Namespace
		want   time.Duration
	}{
		"initialized":                {before: initializing, events: []*corev1.Namespace{makeNamespace(initialized)}, want: time.Second},
		"failed":                     {before: initializing, events: []*corev1.Namespace{makeNamespace(withFailure)}, want: time.Second},
		"deleted":                    {before: initializing, events: []*corev1.Namespace{nil}, want: time.Second},
		"recreated":                  {before: initializing, events: []*corev1.Namespace{makeNamespace(recreated)}, want: time.Second},
		"another label":              {before: initializing, events: []*corev1.Namespace{makeNamespace(relabeled)}, want: time.Minute},
		"never initialized":          {before: initializing, want: time.Minute},
		"not in the cache yet":       {events: []*corev1.Namespace{initializing, makeNamespace(initialized)}, want: 2 * time.Second},
		"an older one in the cache":  {before: makeNamespace(recreated), events: []*corev1.Namespace{nil, initializing}, want: time.Minute},
		"already changed in a cache": {before: makeNamespace(initialized), want: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				cache := &memory{namespace: test.before}
				holder := &Holder{config: Config{Namespaces: cache}}
				go func() {
					for _, namespace := range test.events {
						time.Sleep(time.Second)
						cache.set(namespace)
						holder.changes.notify(initializing.Name)
					}
				}()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				holder.wait(ctx, initializing)
				g.Expect(time.Since(start)).To(Equal(test.want))
			})
		})
	}
}
