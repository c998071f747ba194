// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// What is used where the user does not say otherwise.
const (
	DefaultWorkers      = 4
	DefaultFirstBackoff = 200 * time.Millisecond
	DefaultMaxBackoff   = time.Minute
	// DefaultSilence is much less than the minute after which the operator takes an initializer
	// that says nothing for dead.
	DefaultSilence = 10 * time.Second
)

// inheritance is the most by which clocks that are kept in time differ, and more than the
// second that creationTimestamp lacks.
const inheritance = 5 * time.Second

// Options are those of package initializer and agent alike.
type Options struct {
	Workers int
	Backoff Backoff
}

// DefaultOptions returns what holds where the user says nothing.
func DefaultOptions() Options {
	return Options{Workers: DefaultWorkers, Backoff: Backoff{First: DefaultFirstBackoff, Max: DefaultMaxBackoff}}
}

// Validate says what is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	if o.Workers < 1 {
		errs = append(errs, fmt.Errorf("WithWorkers(%d): at least one Namespace has to be worked on at a time", o.Workers))
	}
	if o.Backoff.First <= 0 || o.Backoff.Max < o.Backoff.First {
		errs = append(errs, fmt.Errorf("WithBackoff(%s, %s): the first time has to be more than nothing, and the longest "+
			"no shorter than it", o.Backoff.First, o.Backoff.Max))
	}
	return errors.Join(errs...)
}

// NewScheme returns a scheme with the types that are read and written here. The manager's
// own need not have them.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // Only a mistake in this program can be the reason.
		}
	}
	return scheme
}

// newMapper knows the kinds that are read and written here, so that no discovery comes
// before the first request.
func newMapper(scheme *runtime.Scheme) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("NamespaceInitializerSet"), meta.RESTScopeRoot)
	return mapper
}

// unlimited returns a copy of a configuration. Where it leaves the rate of requests to
// client-go, which allows five in a second, that of the copy has no limit on this side: the
// API server's own priority and fairness sees to it.
func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if config.QPS == 0 && config.RateLimiter == nil {
		config.QPS = -1
	}
	return config
}

// NewClient returns a client without a cache.
func NewClient(config *rest.Config, httpClient *http.Client) (client.Client, error) {
	scheme := NewScheme()
	c, err := client.New(unlimited(config), client.Options{
		HTTPClient: httpClient, Scheme: scheme, Mapper: newMapper(scheme),
	})
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return c, nil
}

// Connect returns such a client for a program that has no manager.
func Connect(config *rest.Config) (client.Client, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating an HTTP client: %w", err)
	}
	return NewClient(config, httpClient)
}

// names are those that this process serves. controller-runtime looks at the names of
// controllers as well, but its error does not tell what to do.
var names sync.Map

// Setup is what Add needs besides the Work.
type Setup struct {
	Work    Work
	Options Options
	// Watched are the Namespaces that are watched.
	Watched Selection
	// Check looks for what is wrong once the manager starts, and logs it; nil if nothing does.
	Check func(ctx context.Context)
}

// Selection selects Namespaces: all of them where both selectors are nil.
type Selection struct {
	Label labels.Selector
	Field fields.Selector
}

// Add creates a controller in a manager that does the work, with a cache of the Namespaces
// that it watches: the manager's own would watch all of them, with all that they have.
func Add(mgr manager.Manager, newSetup func(c client.Client) Setup) error {
	if mgr == nil {
		return errors.New("there is no manager to add it to: give Add one of controller-runtime, made by ctrl.NewManager")
	}
	c, err := NewClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	setup := newSetup(c)
	namespaces, err := caches.get(mgr, c, setup.Watched)
	if err != nil {
		return err
	}
	skipsNames := ptr.Deref(mgr.GetControllerOptions().SkipNameValidation, false)
	if _, isTaken := names.LoadOrStore(setup.Work.Name, true); isTaken && !skipsNames {
		return fmt.Errorf("%s is served in this process already: add it once, "+
			"or set SkipNameValidation in the manager's controller options where each manager is to have its own",
			setup.Work.Name)
	}
	reconciler := &Reconciler{
		Work: setup.Work, Cache: namespaces, Client: c, Clock: clock.RealClock{}, Backoff: setup.Options.Backoff,
		Inheritance: inheritance,
	}
	served, err := controller.New(setup.Work.Name, mgr, controller.Options{
		Reconciler:              reconciler,
		MaxConcurrentReconciles: setup.Options.Workers,
		RateLimiter:             limiter{reconciler: reconciler},
		// Where the rights to watch come late, the others of the manager go on meanwhile.
		CacheSyncTimeout: math.MaxInt64,
		RecoverPanic:     ptr.To(true),
	})
	if err != nil {
		return fmt.Errorf("creating a controller for %s: %w", setup.Work.Name, err)
	}
	if err := served.Watch(source.Kind(namespaces, client.Object(&corev1.Namespace{}), reconciler.handler())); err != nil {
		return fmt.Errorf("watching namespaces for %s: %w", setup.Work.Name, err)
	}
	if setup.Check == nil {
		return nil
	}
	return mgr.Add(checker(setup.Check))
}

// checker runs in every replica, the leader or not.
type checker func(ctx context.Context)

// Start looks for what is wrong and says so.
func (c checker) Start(ctx context.Context) error {
	c(ctx)
	return nil
}

// NeedLeaderElection says that it does not.
func (checker) NeedLeaderElection() bool { return false }

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// handler takes notice of every event, and brings to the queue what may have something to do.
func (r *Reconciler) handler() handler.EventHandler {
	enqueue := func(queue queue, namespace *corev1.Namespace) {
		if r.isDue(namespace) {
			queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(namespace)})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue queue) {
			if namespace, isNamespace := e.Object.(*corev1.Namespace); isNamespace {
				r.Observe(namespace)
				enqueue(queue, namespace)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue queue) {
			before, wasNamespace := e.ObjectOld.(*corev1.Namespace)
			namespace, isNamespace := e.ObjectNew.(*corev1.Namespace)
			if !wasNamespace || !isNamespace {
				return
			}
			if before.UID != namespace.UID {
				r.Forget(before)
			}
			// Whether it is owed the work may hang on its status: on what finalizer.AddFinalizer selects.
			if isNew := r.Observe(namespace); isNew || hasChanged(before, namespace) {
				enqueue(queue, namespace)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) {
			if namespace, isNamespace := e.Object.(*corev1.Namespace); isNamespace {
				r.Forget(namespace)
			}
		},
	}
}

// hasChanged tells whether a Namespace has changed in a way that may concern the work. Its
// status does not: that is where the work itself writes, and the operator.
func hasChanged(before, after *corev1.Namespace) bool {
	return before.UID != after.UID ||
		before.ResourceVersion == after.ResourceVersion || // a resync
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec)
}
