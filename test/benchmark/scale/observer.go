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
	"k8s.io/apimachinery/pkg/fields"
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
	// opened, removed and changed track namespaces. They can be nil.
	opened, removed, changed *harness.Tracker
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
	runContext, cancel := context.WithCancel(ctx)
	o.stop = func() { cancel(); namespaces.Shutdown(); configs.Shutdown() }
	errs := []error{err, configErr}
	for _, factory := range []informers.SharedInformerFactory{namespaces, configs} {
		factory.Start(runContext.Done())
		for _, hasSynced := range factory.WaitForCacheSync(ctx.Done()) {
			if !hasSynced {
				errs = append(errs, errors.New("failed to sync an informer"))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		o.stop()
		return nil, fmt.Errorf("failed to watch the namespaces: %w", err)
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
	isOpen := namespace.Labels[v1alpha1.LabelInitializing] == "" && namespace.DeletionTimestamp.IsZero()
	delete(o.unfinished, namespace.Name)
	switch {
	case !exists && o.removed != nil:
		o.removed.Record(namespace.Name, now)
	case exists && !isOpen:
		o.unfinished[namespace.Name] = true
	case exists && o.opened != nil:
		o.opened.Record(namespace.Name, now)
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

// expectOpen returns a tracker for the opening of namespaces. Only the last trackers receive times.
func (o *observer) expectOpen(names []string) *harness.Tracker {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.opened = harness.NewTracker(names)
	return o.opened
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
