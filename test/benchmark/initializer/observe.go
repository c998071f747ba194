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
)

// birth is when a namespace was asked for, when its users were let in, and when that was said.
type birth struct {
	asked, open, ready time.Time
	done               chan struct{}
}

// observer sees namespaces by a watch.
type observer struct {
	cluster *cluster
	stop    func()

	lock   sync.Mutex
	births map[string]*birth
}

func (c *cluster) observe(ctx context.Context) (*observer, error) {
	factory := informers.NewSharedInformerFactory(c.user, 0)
	informer := factory.Core().V1().Namespaces().Informer()
	runContext, cancel := context.WithCancel(ctx)
	o := &observer{cluster: c, births: map[string]*birth{}, stop: func() { cancel(); factory.Shutdown() }}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: o.see, UpdateFunc: func(_, object any) { o.see(object) },
	})
	if err == nil {
		factory.Start(runContext.Done())
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return o, nil
		}
		err = errors.New("the client could not list namespaces")
	}
	o.stop()
	return nil, fmt.Errorf("watching namespaces: %w", err)
}

func (o *observer) see(object any) {
	now := time.Now()
	namespace, isNamespace := object.(*corev1.Namespace)
	if !isNamespace {
		return
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	birth := o.births[namespace.Name]
	if birth == nil || namespace.Labels[v1alpha1.LabelInitializing] != "" {
		return
	}
	if birth.open.IsZero() {
		birth.open = now
	}
	condition := nscondition.Find(namespace, v1alpha1.ConditionInitializing)
	if condition == nil || condition.Status != corev1.ConditionFalse {
		return
	}
	birth.ready = now
	delete(o.births, namespace.Name)
	close(birth.done)
}

// expect returns the birth of a namespace that is about to be created.
func (o *observer) expect() (string, *birth) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.cluster.created++
	name := fmt.Sprintf("bench-ns-%06d", o.cluster.created)
	o.births[name] = &birth{done: make(chan struct{})}
	return name, o.births[name]
}

func (o *observer) create(ctx context.Context, name string, birth *birth) error {
	birth.asked = time.Now()
	created, err := o.cluster.user.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating namespace %q: %w", name, err)
	}
	if created.Labels[v1alpha1.LabelInitializing] == "" {
		return fmt.Errorf("namespace %q waits for nothing", name)
	}
	return nil
}

func (b *birth) wait(ctx context.Context, name string) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timeout.C:
		return fmt.Errorf("namespace %q was not ready within %s", name, patience)
	}
}

// oneByOne creates namespaces, each when the one before is ready.
func (o *observer) oneByOne(ctx context.Context, count int) ([]*birth, error) {
	births := make([]*birth, count)
	for i := range births {
		name, birth := o.expect()
		if err := errors.Join(o.create(ctx, name, birth), birth.wait(ctx, name)); err != nil {
			return nil, err
		}
		births[i] = birth
	}
	return births, nil
}

// atOnce creates namespaces with some requests at a time, and returns how long it was until
// the last one was ready.
func (o *observer) atOnce(ctx context.Context, count, clients int) (time.Duration, error) {
	type expected struct {
		name string
		*birth
	}
	all, next := make([]expected, count), make(chan expected)
	for i := range all {
		all[i].name, all[i].birth = o.expect()
	}
	errs := make([]error, clients)
	var running sync.WaitGroup
	began := time.Now()
	for i := range errs {
		running.Go(func() {
			for one := range next {
				errs[i] = errors.Join(errs[i], o.create(ctx, one.name, one.birth))
			}
		})
	}
	for _, one := range all {
		next <- one
	}
	close(next)
	running.Wait()
	last := began
	for _, one := range all {
		if err := errors.Join(errors.Join(errs...), one.wait(ctx, one.name)); err != nil {
			return 0, err
		}
		if one.ready.After(last) {
			last = one.ready
		}
	}
	return last.Sub(began), nil
}
