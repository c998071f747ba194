// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// namespaceFormat is the format of the names of namespaces.
const namespaceFormat = "bench-ns-%06d"

// timing holds the times at which a namespace was requested, became writable, and was reported as
// initialized.
type timing struct {
	requested, writable, ready time.Time
	done                       chan struct{}
}

// observer watches namespaces and records their timing.
type observer struct {
	cluster *cluster
	stop    func()

	lock    sync.Mutex
	timings map[string]*timing
}

func (c *cluster) observe(ctx context.Context) (*observer, error) {
	factory := informers.NewSharedInformerFactory(c.user, 0)
	informer := factory.Core().V1().Namespaces().Informer()
	runContext, cancel := context.WithCancel(ctx)
	o := &observer{cluster: c, timings: map[string]*timing{}, stop: func() { cancel(); factory.Shutdown() }}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: o.record, UpdateFunc: func(_, object any) { o.record(object) },
	})
	if err == nil {
		factory.Start(runContext.Done())
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return o, nil
		}
		err = errors.New("failed to list namespaces")
	}
	o.stop()
	return nil, fmt.Errorf("failed to watch namespaces: %w", err)
}

func (o *observer) record(object any) {
	now := time.Now()
	namespace, isNamespace := object.(*corev1.Namespace)
	if !isNamespace {
		return
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	timing := o.timings[namespace.Name]
	if timing == nil || namespace.Labels[v1alpha1.LabelInitializing] != "" {
		return
	}
	if timing.writable.IsZero() {
		timing.writable = now
	}
	condition := nscondition.Find(namespace, v1alpha1.ConditionInitializing)
	if condition == nil || condition.Status != corev1.ConditionFalse {
		return
	}
	timing.ready = now
	delete(o.timings, namespace.Name)
	close(timing.done)
}

// expect returns the name of a namespace that the caller must create, and its timing.
func (o *observer) expect() (string, *timing) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.cluster.created++
	name := fmt.Sprintf(namespaceFormat, o.cluster.created)
	o.timings[name] = &timing{done: make(chan struct{})}
	return name, o.timings[name]
}

func (o *observer) create(ctx context.Context, name string, timing *timing) error {
	timing.requested = time.Now()
	created, err := o.cluster.user.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create namespace %q: %w", name, err)
	}
	if created.Labels[v1alpha1.LabelInitializing] == "" {
		return fmt.Errorf("namespace %q has no pending initializers", name)
	}
	return nil
}

func (b *timing) wait(ctx context.Context, name string) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("namespace %q was not ready within %s", name, timeout)
	}
}

// oneByOne creates each namespace after the previous one is ready.
func (o *observer) oneByOne(ctx context.Context, count int) ([]*timing, error) {
	timings := make([]*timing, count)
	for i := range timings {
		name, timing := o.expect()
		if err := errors.Join(o.create(ctx, name, timing), timing.wait(ctx, name)); err != nil {
			return nil, err
		}
		timings[i] = timing
	}
	return timings, nil
}

// atOnce creates namespaces with concurrent requests, and returns the time until the last namespace
// is ready.
func (o *observer) atOnce(ctx context.Context, count, clients int) (time.Duration, error) {
	type expected struct {
		name string
		*timing
	}
	all := make([]expected, count)
	for i := range all {
		all[i].name, all[i].timing = o.expect()
	}
	began := time.Now()
	if err := harness.InParallelWithLimit(ctx, clients, count, func(ctx context.Context, i int) error {
		return o.create(ctx, all[i].name, all[i].timing)
	}); err != nil {
		return 0, err
	}
	last := began
	for _, one := range all {
		if err := one.wait(ctx, one.name); err != nil {
			return 0, err
		}
		if one.ready.After(last) {
			last = one.ready
		}
	}
	return last.Sub(began), nil
}
