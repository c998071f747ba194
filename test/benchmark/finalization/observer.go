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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// observer watches the deletion of namespaces.
type observer struct {
	lock     sync.Mutex
	expected []*harness.Tracker
	stop     func()
}

func startObserver(ctx context.Context, client kubernetes.Interface) (*observer, error) {
	o := &observer{}
	informer := informers.NewSharedInformerFactory(client, 0)
	err := error(nil)
	o.stop, err = startInformer(ctx, informer, informer.Core().V1().Namespaces().Informer(),
		cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
			now := time.Now()
			o.lock.Lock()
			defer o.lock.Unlock()
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
				for _, expected := range o.expected {
					expected.Record(key, now)
				}
			}
		}})
	if err != nil {
		return nil, fmt.Errorf("failed to watch namespaces: %w", err)
	}
	return o, nil
}

// expect tracks the deletion of namespaces.
func (o *observer) expect(names []string) *harness.Tracker {
	o.lock.Lock()
	defer o.lock.Unlock()
	expected := harness.NewTracker(names)
	o.expected = append(o.expected, expected)
	return expected
}

// kubelet deletes terminating Pods after their grace period.
type kubelet struct {
	*harness.Tracker
	client kubernetes.Interface
	stop   func()

	lock   sync.Mutex
	ending map[types.UID]bool
	errs   error
}

// startKubelet starts a kubelet for the node of the harness's Pods, and tracks the deletion of the
// given Pods.
func startKubelet(ctx context.Context, client kubernetes.Interface, pods []string) (*kubelet, error) {
	k := &kubelet{Tracker: harness.NewTracker(pods), client: client, ending: map[types.UID]bool{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", nodeName).String()
		}))
	err := error(nil)
	k.stop, err = startInformer(ctx, factory, factory.Core().V1().Pods().Informer(), cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.sync(ctx, object) },
		UpdateFunc: func(_, object any) { k.sync(ctx, object) },
		DeleteFunc: func(object any) {
			now := time.Now()
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
				k.Record(key, now)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("failed to watch Pods: %w", err)
	}
	return k, nil
}

// sync schedules the deletion of a terminating Pod.
func (k *kubelet) sync(ctx context.Context, object any) {
	pod, isPod := object.(*corev1.Pod)
	if !isPod || pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return
	}
	k.lock.Lock()
	defer k.lock.Unlock()
	if k.ending[pod.UID] {
		return
	}
	k.ending[pod.UID] = true
	grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	time.AfterFunc(grace, func() {
		options := metav1.NewDeleteOptions(0)
		options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
		if err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *options); err != nil {
			k.lock.Lock()
			defer k.lock.Unlock()
			k.errs = errors.Join(k.errs, fmt.Errorf("failed to delete Pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	})
}

// err returns the errors that have occurred so far.
func (k *kubelet) err() error {
	k.lock.Lock()
	defer k.lock.Unlock()
	return k.errs
}

// startInformer starts an informer with a handler, and waits until it has synced.
func startInformer(
	ctx context.Context, factory informers.SharedInformerFactory, informer cache.SharedIndexInformer,
	handler cache.ResourceEventHandler,
) (func(), error) {
	if _, err := informer.AddEventHandler(handler); err != nil {
		return nil, err
	}
	return harness.StartInformers(ctx, factory)
}
