// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

const workers = 4

// Work initializes a namespace. It is called again after an error, and might be called again after
// it succeeds.
type Work func(ctx context.Context, client kubernetes.Interface, namespace *corev1.Namespace) error

// Initializer is a running initializer.
type Initializer struct {
	name   string
	work   Work
	client kubernetes.Interface
	lister cache.Indexer
	queue  workqueue.TypedRateLimitingInterface[string]
	done   sync.WaitGroup
	cancel context.CancelFunc
}

// Start runs an initializer with the given client configuration until Stop is called.
func Start(ctx context.Context, config *rest.Config, name string, work Work) (*Initializer, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("failed to create client for initializer %q: %w", name, err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = v1alpha1.LabelInitializing
		}))
	informer := factory.Core().V1().Namespaces().Informer()
	runContext, cancel := context.WithCancel(context.WithoutCancel(ctx))
	i := &Initializer{
		name: name, work: work, client: client, lister: informer.GetIndexer(), cancel: cancel,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, time.Second)),
	}
	add := func(object any) {
		if namespace, ok := object.(*corev1.Namespace); ok {
			i.queue.Add(namespace.Name)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, object any) { add(object) },
	}); err != nil {
		cancel()
		return nil, fmt.Errorf("failed to watch namespaces for initializer %q: %w", name, err)
	}
	factory.Start(runContext.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		cancel()
		return nil, fmt.Errorf("failed to list namespaces for initializer %q", name)
	}
	for range workers {
		i.done.Go(func() { i.serve(runContext) })
	}
	return i, nil
}

// Stop stops the initializer and waits until its workers return.
func (i *Initializer) Stop() {
	i.cancel()
	i.queue.ShutDown()
	i.done.Wait()
}

func (i *Initializer) serve(ctx context.Context) {
	for {
		name, isShutDown := i.queue.Get()
		if isShutDown {
			return
		}
		if err := i.initialize(ctx, name); err != nil && ctx.Err() == nil {
			// Conflicts with other clients are expected. The API server reports a failed test
			// operation of a JSON patch as Invalid.
			if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
				klog.ErrorS(err, "Failed to initialize namespace, retrying", "initializer", i.name, "namespace", name)
			}
			i.queue.AddRateLimited(name)
		} else {
			i.queue.Forget(name)
		}
		i.queue.Done(name)
	}
}

// initialize initializes a namespace if the initializer is first in its pending list.
func (i *Initializer) initialize(ctx context.Context, name string) error {
	object, ok, err := i.lister.GetByKey(name)
	if err != nil || !ok {
		return err
	}
	namespace := object.(*corev1.Namespace)
	pending := initialization.SplitNames(namespace.Annotations[v1alpha1.AnnotationPendingInitializers])
	if namespace.DeletionTimestamp != nil || len(pending) == 0 || pending[0] != i.name {
		return nil
	}
	if err := i.work(ctx, i.client, namespace); err != nil {
		return err
	}
	return Finish(ctx, i.client, namespace, i.name)
}

// Finish removes the name of an initializer from the pending list of a namespace. The patch fails
// if the list has changed since the namespace was read, so Finish cannot remove or restore other
// names.
func Finish(ctx context.Context, client kubernetes.Interface, namespace *corev1.Namespace, name string) error {
	list := namespace.Annotations[v1alpha1.AnnotationPendingInitializers]
	remaining := slices.DeleteFunc(initialization.SplitNames(list), func(pending string) bool { return pending == name })
	path := "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AnnotationPendingInitializers, "/", "~1")
	patch, err := json.Marshal([]map[string]string{
		{"op": "test", "path": "/metadata/uid", "value": string(namespace.UID)},
		{"op": "test", "path": path, "value": list},
		{"op": "replace", "path": path, "value": strings.Join(remaining, ",")},
	})
	if err != nil {
		return fmt.Errorf("failed to encode patch: %w", err)
	}
	_, err = client.CoreV1().Namespaces().Patch(ctx, namespace.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("failed to remove %q from the pending list of namespace %q: %w", name, namespace.Name, err)
	}
	return nil
}

// Nothing is a Work function that does nothing.
func Nothing(context.Context, kubernetes.Interface, *corev1.Namespace) error { return nil }

// After returns a Work function that ends when a namespace has a certain age.
func After(age time.Duration) Work {
	return func(ctx context.Context, _ kubernetes.Interface, namespace *corev1.Namespace) error {
		select {
		case <-time.After(time.Until(namespace.CreationTimestamp.Add(age))):
		case <-ctx.Done():
		}
		return nil
	}
}
