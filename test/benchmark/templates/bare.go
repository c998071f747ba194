// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

const (
	// bareWorkers is the number of namespaces to which the bare client applies objects concurrently.
	bareWorkers = 32
	// bareKey is the key in the ConfigMap of the bare client with the limit of Pods.
	bareKey = "pods"
)

// bare is the floor: a client that applies the objects to each namespace, without any other request.
// It reads the limit of Pods from a ConfigMap, and repairs nothing. It runs in a separate process,
// so that its processor time can be measured.
type bare struct{}

func (*bare) install(ctx context.Context, c *cluster) error {
	return c.createServiceAccount(ctx, metav1.NamespaceDefault, bareClient, append(makeRules("create", "patch"),
		rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces", "configmaps"}, Verbs: []string{"list", "watch"},
		})...)
}

func (*bare) start(ctx context.Context, c *cluster) ([]*service, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("failed to find this program: %w", err)
	}
	kubeconfig, err := c.writeKubeconfig(ctx, metav1.NamespaceDefault, bareClient)
	if err != nil {
		return nil, err
	}
	s, err := startService(ctx, func(ctx context.Context) (*harness.Process, error) {
		return harness.StartProcess(ctx, "the bare client", filepath.Join(c.Dir, "bare.log"), binary, "--serve="+kubeconfig)
	})
	if err != nil {
		return nil, err
	}
	return []*service{s}, nil
}

func (*bare) apply(ctx context.Context, c *cluster, pods int, _ v1alpha1.ReadinessMode) error {
	config := &corev1.ConfigMap{}
	config.Namespace, config.Name = metav1.NamespaceDefault, objectName
	_, err := controllerutil.CreateOrUpdate(ctx, c.admin, config, func() error {
		config.Data = map[string]string{bareKey: strconv.Itoa(pods)}
		return nil
	})
	if err != nil {
		return fmt.Errorf("failed to write the ConfigMap of the bare client: %w", err)
	}
	return nil
}

// applier is the bare client in its own process.
type applier struct {
	client dynamic.Interface
	queue  workqueue.TypedRateLimitingInterface[string]
	pods   atomic.Int64
}

// serve runs the bare client until the context is canceled.
func serve(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("failed to read the kubeconfig: %w", err)
	}
	config = controlplane.Unlimited(config)
	clientset, clientErr := kubernetes.NewForConfig(config)
	applying, applyErr := dynamic.NewForConfig(config)
	if err := errors.Join(clientErr, applyErr); err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	a := &applier{client: applying, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.DefaultTypedControllerRateLimiter[string]())}
	if err := a.watch(ctx, clientset); err != nil {
		return err
	}
	var workers sync.WaitGroup
	for range bareWorkers {
		workers.Go(func() { a.work(ctx) })
	}
	<-ctx.Done()
	a.queue.ShutDown()
	workers.Wait()
	return nil
}

// watch adds namespaces to the queue: new ones, and all when the ConfigMap changes.
func (a *applier) watch(ctx context.Context, clientset kubernetes.Interface) error {
	namespaces := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithTweakListOptions(
		func(options *metav1.ListOptions) { options.LabelSelector = teamLabel }))
	lister := namespaces.Core().V1().Namespaces().Lister()
	_, err := namespaces.Core().V1().Namespaces().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if namespace, ok := object.(*corev1.Namespace); ok && a.pods.Load() > 0 {
				a.queue.Add(namespace.Name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("failed to watch namespaces: %w", err)
	}
	configs := informers.NewSharedInformerFactoryWithOptions(clientset, 0,
		informers.WithNamespace(metav1.NamespaceDefault), informers.WithTweakListOptions(
			func(options *metav1.ListOptions) {
				options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, objectName).String()
			}))
	update := func(object any) {
		config, ok := object.(*corev1.ConfigMap)
		if !ok {
			return
		}
		if pods, err := strconv.ParseInt(config.Data[bareKey], 10, 64); err == nil {
			a.pods.Store(pods)
		}
		all, err := lister.List(labels.Everything())
		for _, namespace := range all {
			a.queue.Add(namespace.Name)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "failed to list namespaces: %v\n", err)
		}
	}
	_, err = configs.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: update, UpdateFunc: func(_, object any) { update(object) },
	})
	if err != nil {
		return fmt.Errorf("failed to watch the ConfigMap: %w", err)
	}
	for _, factory := range []informers.SharedInformerFactory{namespaces, configs} {
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
	}
	return nil
}

func (a *applier) work(ctx context.Context) {
	for {
		namespace, isShutDown := a.queue.Get()
		if isShutDown {
			return
		}
		if err := a.applyTo(ctx, namespace); err != nil {
			fmt.Fprintln(os.Stderr, err)
			a.queue.AddRateLimited(namespace)
		} else {
			a.queue.Forget(namespace)
		}
		a.queue.Done(namespace)
	}
}

func (a *applier) applyTo(ctx context.Context, namespace string) error {
	objects, err := makeObjects(userName, int(a.pods.Load()))
	if err != nil {
		return err
	}
	for _, object := range objects {
		resource := resourceOf(object.GroupVersionKind())
		_, err := a.client.Resource(resource).Namespace(namespace).Apply(ctx, object.GetName(), object,
			metav1.ApplyOptions{FieldManager: bareClient, Force: true})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("failed to apply %s to namespace %q: %w", resource.Resource, namespace, err)
		}
	}
	return nil
}

// resourceOf returns the resource of one of the kinds of the benchmark, whose plurals are regular.
func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	if kind.Kind == "NetworkPolicy" {
		return kind.GroupVersion().WithResource("networkpolicies")
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource
}
