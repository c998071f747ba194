// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

// Options are the options that packages initializer and finalizer have in common.
type Options struct {
	Workers int
	Backoff Backoff
	// Watches are the watches for objects of other kinds.
	Watches []Watch
}

// Backoff is the delay after an error. It doubles from First to Max.
type Backoff struct {
	First, Max time.Duration
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
			"maximum", o.Backoff.First, o.Backoff.Max))
	}
	return errors.Join(errs...)
}

// ForController returns the options of the controller.
func (o Options) ForController() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: o.Workers,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			o.Backoff.First, o.Backoff.Max),
		// A missing permission to watch must not stop the manager's other controllers. The permission can be granted
		// later.
		CacheSyncTimeout: math.MaxInt64,
		RecoverPanic:     ptr.To(true),
	}
}

// withoutRateLimit returns a copy of the configuration without a client-side rate limit, unless the configuration sets
// one. client-go's default is five requests per second, and users wait for initializers.
func withoutRateLimit(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if config.QPS == 0 && config.RateLimiter == nil {
		config.QPS = -1
	}
	return config
}

// NewClient returns a client without a cache, for the types that packages initializer and finalizer use. If
// httpClient is nil, it creates one.
func NewClient(config *rest.Config, httpClient *http.Client) (client.Client, error) {
	c, err := client.New(withoutRateLimit(config), client.Options{HTTPClient: httpClient, Scheme: scheme.New()})
	if err != nil {
		return nil, fmt.Errorf("failed to create a client: %w", err)
	}
	return c, nil
}

// Add adds a controller for a Handler to the manager. Its cache contains only the selected Namespaces; the manager's
// cache would contain all Namespaces, or those that its own selectors select. check is called when the controller
// starts, and logs errors.
func Add(
	mgr manager.Manager, name string, selection cache.ByObject, options Options,
	newHandler func(c client.Client) Handler, check func(ctx context.Context, c client.Client),
) error {
	if mgr == nil {
		return errors.New("the manager is nil: create one with ctrl.NewManager")
	}
	c, err := NewClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	namespaces, err := cache.New(withoutRateLimit(mgr.GetConfig()), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: c.Scheme(), Mapper: c.RESTMapper(),
		DefaultLabelSelector: selection.Label, DefaultFieldSelector: selection.Field,
		DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return fmt.Errorf("failed to create a cache of namespaces: %w", err)
	}
	r := newReconciler(newHandler(c), namespaces, c, options.Backoff)
	build := builder.ControllerManagedBy(mgr).Named(name).WithOptions(options.ForController()).
		WatchesRawSource(source.Kind(namespaces, &corev1.Namespace{}, r.eventHandler()))
	for _, watch := range options.Watches {
		if _, err := apiutil.GVKForObject(watch.Object, mgr.GetScheme()); err != nil {
			return fmt.Errorf("failed to watch %T: %w", watch.Object, err)
		}
		build.WatchesRawSource(r.newSource(mgr.GetCache(), watch))
	}
	if err := build.Complete(r); err != nil {
		return fmt.Errorf("failed to create a controller: %w", err)
	}
	return errors.Join(mgr.Add(namespaces), mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		check(ctx, c)
		return nil
	})))
}
