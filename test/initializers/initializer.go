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

// Work prepares one namespace. It is called again after an error, and it may be called
// again after it has succeeded.
type Work func(ctx context.Context, client kubernetes.Interface, namespace *corev1.Namespace) error

// Initializer serves one name in the lists of pending initializers.
type Initializer struct {
	name   string
	work   Work
	client kubernetes.Interface
	lister cache.Indexer
	queue  workqueue.TypedRateLimitingInterface[string]
	done   sync.WaitGroup
	cancel context.CancelFunc
}

// Start serves a name until Stop, with the identity of a configuration.
func Start(ctx context.Context, config *rest.Config, name string, work Work) (*Initializer, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for initializer %q: %w", name, err)
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
		if namespace, isNamespace := object.(*corev1.Namespace); isNamespace {
			i.queue.Add(namespace.Name)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, object any) { add(object) },
	}); err != nil {
		cancel()
		return nil, fmt.Errorf("watching namespaces for initializer %q: %w", name, err)
	}
	factory.Start(runContext.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		cancel()
		return nil, fmt.Errorf("initializer %q could not list namespaces", name)
	}
	for range workers {
		i.done.Go(func() { i.serve(runContext) })
	}
	return i, nil
}

// Stop ends the initializer and waits for it.
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
			// A patch that somebody else's came before is nothing to tell.
			if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
				klog.ErrorS(err, "Initializer tries again", "initializer", i.name, "namespace", name)
			}
			i.queue.AddRateLimited(name)
		} else {
			i.queue.Forget(name)
		}
		i.queue.Done(name)
	}
}

// initialize does the work for one namespace if it is the initializer's turn.
func (i *Initializer) initialize(ctx context.Context, name string) error {
	object, found, err := i.lister.GetByKey(name)
	if err != nil || !found {
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

// Finish takes an initializer's name off a namespace's list. The patch is refused where
// the list is no longer as it was read, so no entry of anybody else's can get lost.
func Finish(ctx context.Context, client kubernetes.Interface, namespace *corev1.Namespace, name string) error {
	list := namespace.Annotations[v1alpha1.AnnotationPendingInitializers]
	left := slices.DeleteFunc(initialization.SplitNames(list), func(pending string) bool { return pending == name })
	path := "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AnnotationPendingInitializers, "/", "~1")
	patch, err := json.Marshal([]map[string]string{
		{"op": "test", "path": "/metadata/uid", "value": string(namespace.UID)},
		{"op": "test", "path": path, "value": list},
		{"op": "replace", "path": path, "value": strings.Join(left, ",")},
	})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	_, err = client.CoreV1().Namespaces().Patch(ctx, namespace.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("taking %q off the list of namespace %q: %w", name, namespace.Name, err)
	}
	return nil
}

// Nothing is work that is done at once.
func Nothing(context.Context, kubernetes.Interface, *corev1.Namespace) error { return nil }
