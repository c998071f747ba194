// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
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
		events []*corev1.Namespace
		want   time.Duration
	}{
		"initialized":       {events: []*corev1.Namespace{makeNamespace(initialized)}, want: time.Second},
		"failed":            {events: []*corev1.Namespace{makeNamespace(withFailure)}, want: time.Second},
		"deleted":           {events: []*corev1.Namespace{makeNamespace(deleted)}, want: time.Second},
		"removed":           {events: []*corev1.Namespace{nil}, want: time.Second},
		"recreated":         {events: []*corev1.Namespace{makeNamespace(recreated)}, want: time.Second},
		"another label":     {events: []*corev1.Namespace{makeNamespace(relabeled)}, want: time.Minute},
		"never initialized": {want: time.Minute},
		"later":             {events: []*corev1.Namespace{makeNamespace(relabeled), makeNamespace(initialized)}, want: 2 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				cache := &memory{namespace: initializing}
				holder := &Holder{config: Config{Namespaces: cache}}
				go func() {
					for _, namespace := range test.events {
						time.Sleep(time.Second)
						cache.set(namespace)
						holder.changes.notify(initializing.Name)
					}
				}()
				start := time.Now()
				_, err := holder.wait(t.Context(), initializing.Name, time.Minute,
					func(now *corev1.Namespace) bool { return hasEnded(initializing, now) })
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(time.Since(start)).To(Equal(test.want))
			})
		})
	}
}

// TestUnknown verifies that the response does not depend on whether a namespace exists, and takes no slot.
func TestUnknown(t *testing.T) {
	g := NewWithT(t)
	cache := &memory{}
	recorder := &recorder{}
	holder := &Holder{config: Config{Namespaces: cache, Duration: time.Minute, Metrics: recorder}}
	request := &webhooks.Request{Namespace: "shop", Operation: admissionv1.Create}
	unknown, err := holder.Handle(t.Context(), request)
	g.Expect(err).NotTo(HaveOccurred())
	for _, namespace := range []*corev1.Namespace{
		makeNamespace(initialized), makeNamespace(initialized, deleted), makeNamespace(initialized, withFailure),
	} {
		cache.set(namespace)
		response, err := holder.Handle(t.Context(), request)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response).To(Equal(unknown))
	}
	g.Expect(recorder.answered).To(HaveEach(OutcomeResend))

	cache.set(makeNamespace())
	over, err := holder.Handle(t.Context(), request)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(over.Result.Message).To(ContainSubstring("too many writes"))
}

// TestAuditMode verifies that no write waits or is rejected.
func TestAuditMode(t *testing.T) {
	g := NewWithT(t)
	cache, recorder := &memory{}, &recorder{}
	holder := &Holder{config: Config{Namespaces: cache, Duration: time.Minute, Metrics: recorder}}
	holder.isAudited.Store(true)
	request := &webhooks.Request{Namespace: "shop", Operation: admissionv1.Update, Username: "alice"}
	for _, namespace := range []*corev1.Namespace{
		nil, makeNamespace(), makeNamespace(withFailure), makeNamespace(initialized), makeNamespace(deleted),
	} {
		cache.set(namespace)
		response, err := holder.Handle(t.Context(), request)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Allowed).To(BeTrue())
	}
	g.Expect(recorder.answered).To(Equal(slices.Repeat([]Outcome{OutcomeAllowed}, 5)))
}

// recorder records the outcomes of writes that were not held.
type recorder struct{ answered []Outcome }

func (r *recorder) Held() func(Outcome)      { return func(Outcome) {} }
func (r *recorder) Answered(outcome Outcome) { r.answered = append(r.answered, outcome) }
