// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// The kinds of the objects.
type kind int

const (
	limitRange kind = iota
	resourceQuota
	networkPolicy
	roleBinding
	kinds
)

// observed is what the watches have delivered about one object.
type observed struct {
	uid types.UID
	// created is the resourceVersion at which the object was created, and version is the current one.
	created, version uint64
	exists           bool
}

// state is what the watches have delivered about a namespace.
type state struct {
	objects [kinds]observed
	// pods is the limit of Pods in the ResourceQuota, and enforced is the one in its status.
	pods, enforced int64
	// initialized is true if the Namespace exists and is not initializing.
	initialized bool
}

// isComplete reports whether all objects exist.
func (s *state) isComplete() bool {
	for _, object := range s.objects {
		if !object.exists {
			return false
		}
	}
	return true
}

// isInitialized reports whether all objects exist and the creator can write.
func (s *state) isInitialized() bool { return s.initialized && s.isComplete() }

// isEnforced reports whether the creator can write and the quota limits the number of Pods.
func (s *state) isEnforced() bool { return s.isInitialized() && s.enforced == s.pods }

// tracker waits until all its namespaces meet a condition.
type tracker struct {
	isMet   func(*state) bool
	pending map[string]bool
	// met contains the time at which each namespace met the condition.
	met  map[string]time.Time
	last time.Time
	done chan struct{}
}

func (t *tracker) record(name string, s *state, now time.Time) {
	if !t.pending[name] || !t.isMet(s) {
		return
	}
	delete(t.pending, name)
	t.met[name], t.last = now, now
	if len(t.pending) == 0 {
		close(t.done)
	}
}

// observer watches the namespaces and their objects.
type observer struct {
	stop func()

	lock     sync.Mutex
	states   map[string]*state
	trackers map[*tracker]bool
}

func startObserver(ctx context.Context, client kubernetes.Interface) (*observer, error) {
	o := &observer{states: map[string]*state{}, trackers: map[*tracker]bool{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTransform(func(object any) (any, error) {
			if accessor, ok := object.(metav1.Object); ok {
				accessor.SetManagedFields(nil)
			}
			return object, nil
		}))
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { o.observe(object, true) },
		UpdateFunc: func(_, object any) { o.observe(object, true) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			o.observe(object, false)
		},
	}
	var errs []error
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().Namespaces().Informer(), factory.Core().V1().LimitRanges().Informer(),
		factory.Core().V1().ResourceQuotas().Informer(), factory.Networking().V1().NetworkPolicies().Informer(),
		factory.Rbac().V1().RoleBindings().Informer(),
	} {
		_, err := informer.AddEventHandler(handler)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("failed to watch the namespaces: %w", err)
	}
	var err error
	if o.stop, err = harness.StartInformers(ctx, factory); err != nil {
		return nil, err
	}
	return o, nil
}

// observe records an object that a watch has delivered.
func (o *observer) observe(object any, exists bool) {
	now := time.Now()
	o.lock.Lock()
	defer o.lock.Unlock()
	switch object := object.(type) {
	case *corev1.Namespace:
		s := o.state(object.Name)
		s.initialized = exists && object.Labels[v1alpha1.LabelInitializing] == ""
		o.changed(object.Name, s, now)
	case *corev1.LimitRange:
		o.observeObject(object, limitRange, exists, now)
	case *corev1.ResourceQuota:
		if object.Name == objectName {
			s := o.state(object.Namespace)
			s.pods, s.enforced = podsIn(object.Spec.Hard), podsIn(object.Status.Hard)
		}
		o.observeObject(object, resourceQuota, exists, now)
	case *networkingv1.NetworkPolicy:
		o.observeObject(object, networkPolicy, exists, now)
	case *rbacv1.RoleBinding:
		o.observeObject(object, roleBinding, exists, now)
	}
}

func (o *observer) observeObject(object metav1.Object, k kind, exists bool, now time.Time) {
	if object.GetName() != objectName {
		return
	}
	s := o.state(object.GetNamespace())
	known := &s.objects[k]
	known.version = versionOf(object)
	if known.uid != object.GetUID() {
		known.uid, known.created = object.GetUID(), known.version
	}
	known.exists = exists
	o.changed(object.GetNamespace(), s, now)
}

func (o *observer) state(namespace string) *state {
	if o.states[namespace] == nil {
		o.states[namespace] = &state{}
	}
	return o.states[namespace]
}

func (o *observer) changed(namespace string, s *state, now time.Time) {
	for t := range o.trackers {
		t.record(namespace, s, now)
	}
}

// track returns a tracker for the namespaces. The caller must release it.
func (o *observer) track(isMet func(*state) bool, names ...string) *tracker {
	t := &tracker{isMet: isMet, pending: map[string]bool{}, met: map[string]time.Time{}, done: make(chan struct{})}
	for _, name := range names {
		t.pending[name] = true
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	o.trackers[t] = true
	now := time.Now()
	for _, name := range names {
		if s := o.states[name]; s != nil {
			t.record(name, s, now)
		}
	}
	return t
}

func (o *observer) release(t *tracker) {
	o.lock.Lock()
	defer o.lock.Unlock()
	delete(o.trackers, t)
}

// wait waits until all namespaces have met the condition, or until none has met it for the duration
// of the timeout. It releases the tracker.
func (o *observer) wait(ctx context.Context, t *tracker, timeout time.Duration) error {
	defer o.release(t)
	for {
		o.lock.Lock()
		before := len(t.met)
		o.lock.Unlock()
		timer := time.NewTimer(timeout)
		select {
		case <-t.done:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		o.lock.Lock()
		isStalled := len(t.met) == before
		o.lock.Unlock()
		if isStalled {
			return nil
		}
	}
}

// get returns a copy of the state of a namespace.
func (o *observer) get(namespace string) state {
	o.lock.Lock()
	defer o.lock.Unlock()
	return *o.state(namespace)
}

func podsIn(list corev1.ResourceList) int64 {
	pods := list[corev1.ResourcePods]
	return pods.Value()
}

// versionOf returns the resourceVersion as a number. All versions of a cluster are from one sequence.
func versionOf(object metav1.Object) uint64 {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return version
}
