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
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
)

const (
	// initializersNamespace holds the initializers' ServiceAccounts.
	initializersNamespace = "bench-initializers"
	// initializationTimeout is the maximum time for the initialization of a namespace, after which
	// the run is aborted.
	initializationTimeout = 2 * time.Minute
)

// initializerNames returns the names of the measured initializers, in order.
func initializerNames() []string {
	return []string{"first.bench.example.com", "second.bench.example.com", "third.bench.example.com"}
}

// prepareInitializers creates a ServiceAccount with permissions for each initializer.
func (s *server) prepareInitializers(ctx context.Context) error {
	_, err := s.admin.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: initializersNamespace}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create namespace %q: %w", initializersNamespace, err)
	}
	for _, name := range initializerNames() {
		_, err := s.admin.CoreV1().ServiceAccounts(initializersNamespace).Create(ctx,
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("failed to create a ServiceAccount for initializer %q: %w", name, err)
		}
		subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: initializersNamespace, Name: name}
		if err := s.grant(ctx, name, subject, rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"},
			Verbs: []string{"get", "list", "watch", "patch", v1alpha1.VerbInitialize},
		}); err != nil {
			return err
		}
	}
	return nil
}

// startInitializers runs no-op initializers until stop is called.
func (s *server) startInitializers(ctx context.Context) (stop func(), err error) {
	var running []*initializers.Initializer
	stop = func() {
		for _, initializer := range running {
			initializer.Stop()
		}
	}
	for _, name := range initializerNames() {
		config, err := s.ServiceAccountConfig(ctx, initializersNamespace, name)
		if err != nil {
			stop()
			return nil, err
		}
		initializer, err := initializers.Start(ctx, config, name, initializers.Nothing)
		if err != nil {
			stop()
			return nil, err
		}
		running = append(running, initializer)
	}
	return stop, nil
}

// observer watches namespaces and records when they are initialized.
type observer struct {
	lock    sync.Mutex
	waiting map[string]chan<- time.Time
	stop    func()
}

// startObserver watches all namespaces until stop is called.
func startObserver(ctx context.Context, client kubernetes.Interface) (*observer, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Namespaces().Informer()
	runContext, cancel := context.WithCancel(ctx)
	o := &observer{waiting: map[string]chan<- time.Time{}, stop: func() { cancel(); factory.Shutdown() }}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: o.record, UpdateFunc: func(_, object any) { o.record(object) },
	}); err != nil {
		o.stop()
		return nil, fmt.Errorf("failed to watch namespaces: %w", err)
	}
	factory.Start(runContext.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		o.stop()
		return nil, errors.New("failed to list namespaces")
	}
	return o, nil
}

// expect returns a channel that receives the time at which the watch delivers the namespace with
// the condition Initializing=False.
func (o *observer) expect(name string) <-chan time.Time {
	seen := make(chan time.Time, 1)
	o.lock.Lock()
	defer o.lock.Unlock()
	o.waiting[name] = seen
	return seen
}

func (o *observer) record(object any) {
	namespace, isNamespace := object.(*corev1.Namespace)
	if !isNamespace || !isInitialized(namespace) {
		return
	}
	now := time.Now()
	o.lock.Lock()
	defer o.lock.Unlock()
	if seen, isExpected := o.waiting[namespace.Name]; isExpected {
		seen <- now
		delete(o.waiting, namespace.Name)
	}
}

// isInitialized reports whether all initializers have finished. With any reason other than
// Completed, the namespace has no initializers, so the measurement would be invalid.
func isInitialized(namespace *corev1.Namespace) bool {
	for _, condition := range namespace.Status.Conditions {
		if condition.Type == v1alpha1.ConditionInitializing {
			return condition.Status == corev1.ConditionFalse && condition.Reason == v1alpha1.ReasonInitialized
		}
	}
	return false
}

// createOneByOne creates each namespace after the previous one is initialized, and returns the
// duration of each initialization.
func (s *server) createOneByOne(ctx context.Context, count int) ([]time.Duration, error) {
	observer, err := startObserver(ctx, s.user)
	if err != nil {
		return nil, err
	}
	defer observer.stop()

	times := make([]time.Duration, 0, count)
	for range count {
		name := s.nextName()
		seen := observer.expect(name)
		start := time.Now()
		if err := s.create(ctx, name); err != nil {
			return nil, err
		}
		if err := waitUntilSeen(ctx, name, seen, func(end time.Time) { times = append(times, end.Sub(start)) }); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// createAtOnce creates namespaces with concurrent requests. It returns the duration from the
// creation of each namespace until its initialization, and the duration from the first creation
// until the last namespace is initialized.
func (s *server) createAtOnce(ctx context.Context, count, clients int) ([]time.Duration, time.Duration, error) {
	observer, err := startObserver(ctx, s.user)
	if err != nil {
		return nil, 0, err
	}
	defer observer.stop()
	names := make(chan int)
	seen := make([]<-chan time.Time, count)
	allNames := make([]string, count)
	for i := range count {
		allNames[i] = s.nextName()
		seen[i] = observer.expect(allNames[i])
	}

	starts := make([]time.Time, count)
	errs := make([]error, clients)
	var running sync.WaitGroup
	start := time.Now()
	for client := range clients {
		running.Go(func() {
			for i := range names {
				starts[i] = time.Now()
				errs[client] = errors.Join(errs[client], s.create(ctx, allNames[i]))
			}
		})
	}
	for i := range count {
		names <- i
	}
	close(names)
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, 0, err
	}

	times := make([]time.Duration, 0, count)
	last := start
	for i := range count {
		if err := waitUntilSeen(ctx, allNames[i], seen[i], func(end time.Time) {
			times = append(times, end.Sub(starts[i]))
			if end.After(last) {
				last = end
			}
		}); err != nil {
			return nil, 0, err
		}
	}
	return times, last.Sub(start), nil
}

func (s *server) create(ctx context.Context, name string) error {
	_, err := s.user.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create namespace %q: %w", name, err)
	}
	return nil
}

func waitUntilSeen(ctx context.Context, name string, seen <-chan time.Time, record func(time.Time)) error {
	timeout := time.NewTimer(initializationTimeout)
	defer timeout.Stop()
	select {
	case end := <-seen:
		record(end)
		return nil
	case <-timeout.C:
		return fmt.Errorf("namespace %q was not initialized within %s", name, initializationTimeout)
	case <-ctx.Done():
		return fmt.Errorf("failed to wait for the initialization of namespace %q: %w", name, ctx.Err())
	}
}
