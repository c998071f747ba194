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
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// namespaceFormat is the format of the names of namespaces.
const namespaceFormat = "bench-ns-%06d"

// timing holds the times at which a namespace was requested, became initialized, and was reported as
// initialized.
type timing struct {
	requested, initialized, reported time.Time
	done                             chan struct{}
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
	o := &observer{cluster: c, timings: map[string]*timing{}}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: o.record, UpdateFunc: func(_, object any) { o.record(object) },
	})
	if err != nil {
		return nil, fmt.Errorf("failed to watch namespaces: %w", err)
	}
	if o.stop, err = harness.StartInformers(ctx, factory); err != nil {
		return nil, err
	}
	return o, nil
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
	if timing.initialized.IsZero() {
		timing.initialized = now
	}
	condition := nsobject.FindCondition(namespace, v1alpha1.ConditionInitializing)
	if condition == nil || condition.Status != corev1.ConditionFalse {
		return
	}
	timing.reported = now
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
		return fmt.Errorf("namespace %q was not reported within %s", name, timeout)
	}
}

// oneByOne creates each namespace after the previous one is reported.
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
// is reported.
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
		if one.reported.After(last) {
			last = one.reported
		}
	}
	return last.Sub(began), nil
}
