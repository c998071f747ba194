// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// DefaultHeartbeatInterval is well below the minute after which the operator reports an initializer as
// unresponsive.
const DefaultHeartbeatInterval = 10 * time.Second

// staleCacheWindow exceeds the sum of the skew between synchronized clocks and the precision of
// creationTimestamp, which is one second.
const staleCacheWindow = 5 * time.Second

// Options are the options that packages initializer and finalizer have in common.
type Options struct {
	Workers int
	Backoff Backoff
	// Watches are the watches for objects of other kinds.
	Watches []Watch
}

// DefaultOptions returns the default options.
func DefaultOptions() Options {
	return Options{Workers: 4, Backoff: Backoff{First: 200 * time.Millisecond, Max: time.Minute}}
}

// Validate returns an error for each invalid option.
func (o Options) Validate() error {
	var errs []error
	if o.Workers < 1 {
		errs = append(errs, fmt.Errorf("WithWorkers(%d): the number of workers must be at least 1", o.Workers))
	}
	if o.Backoff.First <= 0 || o.Backoff.Max < o.Backoff.First {
		errs = append(errs, fmt.Errorf("WithBackoff(%s, %s): the first delay must be positive and must not exceed the "+
			"maximum",
			o.Backoff.First, o.Backoff.Max))
	}
	for _, watch := range o.Watches {
		errs = append(errs, watch.validate())
	}
	return errors.Join(errs...)
}

// NewScheme returns a scheme with the types that this package and its callers read and write. The
// manager's scheme does not need these types.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // A programming error.
		}
	}
	return scheme
}

// newMapper returns a static mapping for these types, which avoids discovery requests.
func newMapper(scheme *runtime.Scheme) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("NamespaceInitializerConfiguration"), meta.RESTScopeRoot)
	return mapper
}

// withoutRateLimit returns a copy of the configuration without a client-side rate limit, unless the
// configuration sets one. client-go's default is five requests per second, and API Priority and
// Fairness already limits requests in the API server.
func withoutRateLimit(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if config.QPS == 0 && config.RateLimiter == nil {
		config.QPS = -1
	}
	return config
}

// NewClient returns a client without a cache. If httpClient is nil, it creates one.
func NewClient(config *rest.Config, httpClient *http.Client) (client.Client, error) {
	scheme := NewScheme()
	c, err := client.New(withoutRateLimit(config), client.Options{
		HTTPClient: httpClient, Scheme: scheme, Mapper: newMapper(scheme),
	})
	if err != nil {
		return nil, fmt.Errorf("failed to create a client: %w", err)
	}
	return c, nil
}

// handlerNames contains the names of all handlers in this process. controller-runtime also rejects
// duplicate names of controllers, but its error does not explain that a handler must be added only
// once.
var handlerNames sync.Map

// Setup is the configuration of a controller.
type Setup struct {
	Handler Handler
	Options Options
	// Selection limits the Namespaces that are watched.
	Selection Selection
	// Check is called when the manager starts, and logs errors; optional.
	Check func(ctx context.Context)
}

// Selection selects Namespaces. If both selectors are nil, it selects all Namespaces.
type Selection struct {
	Label labels.Selector
	Field fields.Selector
}

// Add adds a controller for a Handler to the manager. The controller uses a cache that is limited
// to its selection, because the manager's cache would contain all Namespaces.
func Add(mgr manager.Manager, newSetup func(c client.Client) Setup) error {
	if mgr == nil {
		return errors.New(messageNoManager)
	}
	c, err := NewClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	setup := newSetup(c)
	// Errors are returned before the name is stored, so that the caller can correct them and try again.
	for _, watch := range setup.Options.Watches {
		if _, err := apiutil.GVKForObject(watch.Object, mgr.GetScheme()); err != nil {
			return fmt.Errorf("failed to watch %T for %s: %w", watch.Object, setup.Handler.Name, err)
		}
	}
	namespaces, err := caches.get(mgr, c, setup.Selection)
	if err != nil {
		return err
	}
	skipsNames := ptr.Deref(mgr.GetControllerOptions().SkipNameValidation, false)
	if _, isTaken := handlerNames.LoadOrStore(setup.Handler.Name, true); isTaken && !skipsNames {
		return fmt.Errorf(messageDuplicateName, setup.Handler.Name)
	}
	initializeMetrics(setup.Handler.Name, setup.Handler.Fail != nil)
	reconciler := &Reconciler{
		Handler: setup.Handler, Cache: namespaces, Client: c, Clock: clock.RealClock{}, Backoff: setup.Options.Backoff,
		StaleCacheWindow: staleCacheWindow,
	}
	ctrl, err := controller.New(setup.Handler.Name, mgr, controller.Options{
		Reconciler:              reconciler,
		MaxConcurrentReconciles: setup.Options.Workers,
		RateLimiter:             backoffLimiter{reconciler: reconciler},
		// A missing permission to watch must not stop the manager's other controllers. The permission can
		// be granted later.
		CacheSyncTimeout: math.MaxInt64,
		RecoverPanic:     ptr.To(true),
		// Watch events must not be handled before the process is elected, because Track sets startedAt.
		EnableWarmup: ptr.To(false),
	})
	if err != nil {
		return fmt.Errorf("failed to create a controller for %s: %w", setup.Handler.Name, err)
	}
	kind := source.Kind(namespaces, &corev1.Namespace{}, reconciler.eventHandler())
	if err := ctrl.Watch(kind); err != nil {
		return fmt.Errorf("failed to watch namespaces for %s: %w", setup.Handler.Name, err)
	}
	for _, watch := range setup.Options.Watches {
		if err := ctrl.Watch(reconciler.newSource(mgr, watch)); err != nil {
			return fmt.Errorf("failed to watch %T for %s: %w", watch.Object, setup.Handler.Name, err)
		}
	}
	if setup.Check == nil {
		return nil
	}
	return mgr.Add(startupCheck(setup.Check))
}

// startupCheck runs once in every replica.
type startupCheck func(ctx context.Context)

// Start runs the check.
func (c startupCheck) Start(ctx context.Context) error {
	c(ctx)
	return nil
}

// NeedLeaderElection returns false.
func (startupCheck) NeedLeaderElection() bool { return false }

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// eventHandler tracks the Namespaces in all watch events, and enqueues Namespaces that are ready.
func (r *Reconciler) eventHandler() handler.TypedEventHandler[*corev1.Namespace, reconcile.Request] {
	enqueue := func(queue queue, namespace *corev1.Namespace) {
		if r.isReady(namespace) {
			queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(namespace)})
		}
	}
	return handler.TypedFuncs[*corev1.Namespace, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Namespace], queue queue) {
			r.Track(e.Object)
			enqueue(queue, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Namespace], queue queue) {
			before, namespace := e.ObjectOld, e.ObjectNew
			if before.UID != namespace.UID {
				r.Untrack(before)
			}
			// A Namespace might match after a status change, because the function passed to
			// finalizer.AddFinalizer can depend on the status.
			if isNew := r.Track(namespace); isNew || hasChanged(before, namespace) {
				enqueue(queue, namespace)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Namespace], _ queue) {
			r.Untrack(e.Object)
		},
	}
}

// hasChanged reports whether a change can be relevant to the function. It ignores status changes,
// because most of them are made by this package and the operator.
func hasChanged(before, after *corev1.Namespace) bool {
	return before.UID != after.UID ||
		before.ResourceVersion == after.ResourceVersion || // a resync
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

// caches contains the caches of Namespaces for all managers in this process. Controllers with the
// same manager and the same selection share a cache. Otherwise, each Namespace would be sent,
// decoded and stored once per controller.
var caches = sharedCaches{byKey: map[cacheKey]cache.Cache{}}

type sharedCaches struct {
	lock  sync.Mutex
	byKey map[cacheKey]cache.Cache
}

type cacheKey struct {
	manager   manager.Manager
	selection string
}

// get returns the manager's cache for a selection, and creates the cache if it does not exist. The
// cache is empty until a controller that uses it starts. It is removed from sharedCaches when the
// manager stops.
func (c *sharedCaches) get(mgr manager.Manager, reads client.Client, selection Selection) (cache.Cache, error) {
	// A manager whose type is not comparable, such as a wrapper, cannot be a map key.
	isShared := reflect.ValueOf(mgr).Comparable()
	key := cacheKey{selection: fmt.Sprintf("%v;%v", selection.Label, selection.Field)}
	c.lock.Lock()
	defer c.lock.Unlock()
	if isShared {
		key.manager = mgr
		if shared, ok := c.byKey[key]; ok {
			return shared, nil
		}
	}
	namespaces, err := cache.New(withoutRateLimit(mgr.GetConfig()), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: reads.Scheme(), Mapper: reads.RESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Namespace{}: {
			Label: selection.Label, Field: selection.Field, Transform: cache.TransformStripManagedFields(),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("failed to create a cache of namespaces: %w", err)
	}
	if err := mgr.Add(&sharedCache{Cache: namespaces, forget: func() { c.forget(key) }}); err != nil {
		return nil, fmt.Errorf("failed to add a cache of namespaces to the manager: %w", err)
	}
	if isShared {
		c.byKey[key] = namespaces
	}
	return namespaces, nil
}

func (c *sharedCaches) forget(key cacheKey) {
	c.lock.Lock()
	defer c.lock.Unlock()
	delete(c.byKey, key)
}

// sharedCache removes itself from sharedCaches when it stops.
type sharedCache struct {
	cache.Cache
	forget func()
}

// Start runs the cache until the manager stops.
func (c *sharedCache) Start(ctx context.Context) error {
	defer c.forget()
	return c.Cache.Start(ctx)
}

// NeedLeaderElection returns false: the cache must start before the controllers that use it.
func (*sharedCache) NeedLeaderElection() bool { return false }
