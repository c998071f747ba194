// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// observer watches the namespaces of the benchmark, and the ConfigMap of the template in each.
type observer struct {
	stop func()

	lock sync.Mutex
	// initialized, removed and changed track namespaces. They can be nil.
	initialized, removed, changed *harness.Tracker
	// version is the version in the ConfigMap that changed waits for.
	version string
	// unfinished contains the initializing and the terminating namespaces.
	unfinished map[string]bool
}

func startObserver(ctx context.Context, client kubernetes.Interface) (*observer, error) {
	o := &observer{unfinished: map[string]bool{}}
	// Keep the memory of the benchmark small.
	transform := informers.WithTransform(func(object any) (any, error) {
		if accessor, ok := object.(metav1.Object); ok {
			accessor.SetManagedFields(nil)
		}
		return object, nil
	})
	namespaces := informers.NewSharedInformerFactoryWithOptions(client, 0, transform,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = scaleLabel }))
	configs := informers.NewSharedInformerFactoryWithOptions(client, 0, transform,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, objectName).String()
		}))
	_, err := namespaces.Core().V1().Namespaces().Informer().AddEventHandler(handle(o.observeNamespace))
	_, configErr := configs.Core().V1().ConfigMaps().Informer().AddEventHandler(handle(o.observeConfigMap))
	if err := errors.Join(err, configErr); err != nil {
		return nil, fmt.Errorf("failed to watch the namespaces: %w", err)
	}
	if o.stop, err = harness.StartInformers(ctx, namespaces, configs); err != nil {
		return nil, err
	}
	return o, nil
}

// handle calls the function do with each version of an object, and whether the object exists.
func handle[T any](do func(object T, exists bool)) cache.ResourceEventHandler {
	call := func(object any, exists bool) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		if object, ok := object.(T); ok {
			do(object, exists)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { call(object, true) },
		UpdateFunc: func(_, object any) { call(object, true) },
		DeleteFunc: func(object any) { call(object, false) },
	}
}

func (o *observer) observeNamespace(namespace *corev1.Namespace, exists bool) {
	now := time.Now()
	o.lock.Lock()
	defer o.lock.Unlock()
	isInitialized := namespace.Labels[v1alpha1.LabelInitializing] == "" && namespace.DeletionTimestamp.IsZero()
	delete(o.unfinished, namespace.Name)
	switch {
	case !exists && o.removed != nil:
		o.removed.Record(namespace.Name, now)
	case exists && !isInitialized:
		o.unfinished[namespace.Name] = true
	case exists && o.initialized != nil:
		o.initialized.Record(namespace.Name, now)
	}
}

func (o *observer) observeConfigMap(config *corev1.ConfigMap, exists bool) {
	now := time.Now()
	o.lock.Lock()
	defer o.lock.Unlock()
	if exists && o.changed != nil && config.Data[versionKey] == o.version {
		o.changed.Record(config.Namespace, now)
	}
}

// expectInitialized returns a tracker for the initialization of namespaces. Only the last trackers receive times.
func (o *observer) expectInitialized(names []string) *harness.Tracker {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.initialized = harness.NewTracker(names)
	return o.initialized
}

// expectRemoved returns a tracker for the removal of namespaces.
func (o *observer) expectRemoved(names []string) *harness.Tracker {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.removed = harness.NewTracker(names)
	return o.removed
}

// expectVersion returns a tracker for a version of the template in namespaces.
func (o *observer) expectVersion(names []string, version string) *harness.Tracker {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.changed, o.version = harness.NewTracker(names), version
	return o.changed
}

// countUnfinished returns the number of initializing and terminating namespaces.
func (o *observer) countUnfinished() int {
	o.lock.Lock()
	defer o.lock.Unlock()
	return len(o.unfinished)
}

const (
	// samples is the least number of samples with --churn. There is at least one per minute.
	samples = 10
	// churnCount is the number of namespaces that exist in addition with --churn.
	churnCount = 100
)

// point is a sample with --churn.
type point struct {
	after  time.Duration
	gauges gauges
	// watches contains all watches of the API server.
	watches int
	// unfinished is the number of initializing and terminating namespaces.
	unfinished int
	rate       rate
}

// measureChurn creates and deletes namespaces at a constant rate. It then waits until the operator has
// finished all of them.
func (c *cluster) measureChurn(ctx context.Context, opts options) ([]point, error) {
	harness.Say("Creating and deleting %g namespaces per second for %s", opts.churnRate, opts.churn)
	// The rate of deletions is constant from the first sample on.
	names := c.nextNames(churnCount)
	initialized := c.observer.expectInitialized(names)
	if err := harness.InParallel(ctx, len(names), func(ctx context.Context, i int) error {
		return c.createNamespace(ctx, names[i])
	}); err != nil {
		return nil, err
	}
	if err := errors.Join(c.wait(ctx, initialized), c.calm(ctx)); err != nil {
		return nil, err
	}
	churnContext, stop := context.WithTimeout(ctx, opts.churn)
	defer stop()
	churned := make(chan error, 1)
	go func() {
		err := c.churn(ctx, churnContext.Done(), opts.churnRate, names)
		stop()
		churned <- err
	}()
	points, err := c.sample(ctx, churnContext.Done(), min(time.Minute, opts.churn/samples))
	stop()
	if err := errors.Join(err, <-churned); err != nil {
		return points, err
	}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, c.stall, true, func(context.Context) (bool, error) {
		return c.observer.countUnfinished() == 0, nil
	})
	if err != nil {
		return points, fmt.Errorf("failed to wait for %d namespaces after the last change: %w",
			c.observer.countUnfinished(), err)
	}
	return points, c.calm(ctx)
}

// churn creates namespaces at a constant rate, and deletes the oldest ones at the same rate.
func (c *cluster) churn(ctx context.Context, done <-chan struct{}, perSecond float64, names []string) error {
	group, groupContext := errgroup.WithContext(ctx)
	group.SetLimit(harness.Parallel)
	ticker := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return group.Wait()
		case <-groupContext.Done():
			return group.Wait()
		case <-ticker.C:
		}
		name, oldest := c.nextNames(1)[0], names[0]
		names = append(names[1:], name)
		group.Go(func() error { return c.createNamespace(groupContext, name) })
		group.Go(func() error { return c.deleteNamespace(groupContext, oldest) })
	}
}

// sample samples the manager until it is done.
func (c *cluster) sample(ctx context.Context, done <-chan struct{}, interval time.Duration) ([]point, error) {
	var points []point
	began := time.Now()
	before, err := c.readUsage(ctx)
	for err == nil {
		select {
		case <-done:
			return points, nil
		case <-c.manager.Exited():
			return points, fmt.Errorf("the manager exited; last output: %s", c.manager.LastOutput())
		case <-time.After(interval):
		}
		one := point{after: time.Since(began), unfinished: c.observer.countUnfinished()}
		var after usage
		var valuesErr, watchesErr error
		after, err = c.readUsage(ctx)
		one.gauges, valuesErr = c.readManager(ctx)
		one.watches, watchesErr = harness.ScrapeWatches(ctx, c.scraper)
		err = errors.Join(err, valuesErr, watchesErr)
		seconds := after.at.Sub(before.at).Seconds()
		server, manager, requests := after.minus(before, rate{})
		one.rate = rate{server.Seconds() / seconds, manager.Seconds() / seconds, requests / seconds}
		before = after
		points = append(points, one)
	}
	return points, err
}
