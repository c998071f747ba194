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
	"strings"
	"sync"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
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
	kubeconfig, err := c.Kubeconfig(ctx, metav1.NamespaceDefault, bareClient)
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

func (*bare) apply(ctx context.Context, c *cluster, pods int, _ v1alpha1.TemplateWaitPolicy) error {
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

const (
	kyvernoNamespace = "kyverno"
	// kyvernoManifest is the file in the directory of the binaries with Kyverno's installation.
	kyvernoManifest = "install.yaml"
)

// kyvernoControllers are the controllers that a GeneratingPolicy needs: the name of the binary by
// the name of its Deployment. The webhooks of the first create requests, which the second executes.
var kyvernoControllers = []struct{ deployment, binary string }{
	{"kyverno-admission-controller", "kyverno"},
	{"kyverno-background-controller", "background-controller"},
}

// kyverno runs Kyverno with the flags, the environment and the permissions of its installation.
type kyverno struct {
	// dir contains the binaries and the manifest.
	dir string
	// flags are added to the flags of each controller that has them.
	flags []string
	// containers contains the containers of the controllers, by the name of the Deployment.
	containers map[string]corev1.Container
}

func (k *kyverno) install(ctx context.Context, c *cluster) error {
	manifest, err := os.ReadFile(filepath.Join(k.dir, kyvernoManifest))
	if err != nil {
		return fmt.Errorf("failed to read the installation of Kyverno (make kyverno): %w", err)
	}
	k.containers = map[string]corev1.Container{}
	var objects []string
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		var deployment appsv1.Deployment
		if !strings.Contains(document, "\nkind: Deployment\n") {
			objects = append(objects, document)
			continue
		}
		if err := yaml.Unmarshal([]byte(document), &deployment); err != nil {
			return fmt.Errorf("failed to read a Deployment of Kyverno: %w", err)
		}
		k.containers[deployment.Name] = deployment.Spec.Template.Spec.Containers[0]
	}
	if _, err := c.KubectlWithInput(ctx, c.Admin, strings.Join(objects, "\n---\n"),
		"apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	if err := c.create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: objectName, Labels: map[string]string{
			"rbac.kyverno.io/aggregate-to-background-controller": "true",
		}},
		Rules: makeRules(verbs...),
	}); err != nil {
		return err
	}
	return c.AggregateClusterRoles(ctx)
}

// start starts the controllers. Their ports are changed because they run on one machine.
func (k *kyverno) start(ctx context.Context, c *cluster) ([]*service, error) {
	var services []*service
	for _, controller := range kyvernoControllers {
		s, err := k.startController(ctx, c, controller.deployment, controller.binary)
		if err != nil {
			for _, running := range services {
				err = errors.Join(err, running.stop())
			}
			return nil, err
		}
		services = append(services, s)
	}
	return services, nil
}

func (k *kyverno) startController(ctx context.Context, c *cluster, deployment, binary string) (*service, error) {
	container, ok := k.containers[deployment]
	if !ok {
		return nil, fmt.Errorf("the installation of Kyverno contains no Deployment %s", deployment)
	}
	kubeconfig, err := c.Kubeconfig(ctx, kyvernoNamespace, deployment)
	if err != nil {
		return nil, err
	}
	var ports [2]string
	for i := range ports {
		address, err := controlplane.FreeAddress()
		if err != nil {
			return nil, err
		}
		ports[i] = address[strings.LastIndexByte(address, ':')+1:]
	}
	args := append(container.Args, "--kubeconfig="+kubeconfig, "--metricsPort="+ports[0],
		"--controllerRuntimeMetricsAddress=0")
	if deployment == kyvernoControllers[0].deployment {
		// The API server calls the webhooks at this address instead of the Service.
		args = append(args, "--serverIP=127.0.0.1:"+ports[1], "--webhookServerPort="+ports[1])
	}
	for _, flag := range k.flags {
		if !strings.HasPrefix(flag, "--genWorkers=") || deployment != kyvernoControllers[0].deployment {
			args = append(args, flag)
		}
	}
	environment := []string{"KYVERNO_NAMESPACE=" + kyvernoNamespace, "KYVERNO_POD_NAME=" + deployment + "-0"}
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			environment = append(environment, variable.Name+"="+variable.Value)
		}
	}
	started := 0
	return startService(ctx, func(ctx context.Context) (*harness.Process, error) {
		started++
		log := filepath.Join(c.Dir, fmt.Sprintf("%s-%d.log", deployment, started))
		return harness.StartProcessWithEnvironment(ctx, environment, deployment, log, filepath.Join(k.dir, binary), args...)
	})
}

// apply waits for Kyverno's own webhooks, which validate policies, and for those of the policy.
func (k *kyverno) apply(ctx context.Context, c *cluster, pods int, _ v1alpha1.TemplateWaitPolicy) error {
	policy, err := makePolicy(pods)
	if err != nil {
		return err
	}
	if err := poll(ctx, "the policy", func(ctx context.Context) (bool, error) {
		err := c.admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(policy),
			client.FieldOwner("bench"), client.ForceOwnership)
		return err == nil, err
	}); err != nil {
		return err
	}
	return poll(ctx, "the webhook of the policy", func(ctx context.Context) (bool, error) {
		current := &unstructured.Unstructured{}
		current.SetGroupVersionKind(policy.GroupVersionKind())
		if err := c.admin.Get(ctx, client.ObjectKeyFromObject(policy), current); err != nil {
			return false, err
		}
		isReady, _, err := unstructured.NestedBool(current.Object, "status", "conditionStatus", "ready")
		return isReady, err
	})
}
