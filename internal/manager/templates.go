// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/contentrole"
	"github.com/nslifecycle/nslifecycle/internal/controller"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/template/authorization"
	"github.com/nslifecycle/nslifecycle/internal/template/execute"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
	"github.com/nslifecycle/nslifecycle/internal/template/permissions"
	"github.com/nslifecycle/nslifecycle/internal/template/validation"
)

// addCache adds another cache to a manager.
func addCache(mgr ctrl.Manager, options cache.Options) (cache.Cache, error) {
	options.Scheme, options.HTTPClient = mgr.GetScheme(), mgr.GetHTTPClient()
	added, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		return nil, fmt.Errorf("failed to create a cache for templates: %w", err)
	}
	if err := mgr.Add(added); err != nil {
		return nil, fmt.Errorf("failed to add a cache for templates: %w", err)
	}
	return added, nil
}

// setupTemplates adds the reconcilers of templates. The cache has the options that observe.SystemCacheOptions returns.
func setupTemplates(
	mgr ctrl.Manager, options Options, self string, system cache.Cache, revisions *observe.Revisions,
) (*validation.Validator, error) {
	objects, err := addCache(mgr, observe.ObjectCacheOptions())
	if err != nil {
		return nil, err
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("failed to create a discovery client: %w", err)
	}
	sources, err := addCache(mgr, observe.SourceCacheOptions(options.SourceNamespace))
	if err != nil {
		return nil, err
	}
	namespaces, templates := &controller.Requests{}, &controller.Requests{}
	live, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return nil, fmt.Errorf("failed to create a client without a cache: %w", err)
	}
	writes := &observe.Writes{Clock: options.Clock}
	kinds := &observe.Kinds{
		Mapper:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoveryClient)),
		Discovery: discoveryClient, Clock: options.Clock,
	}
	observer := &observe.Observer{
		Kinds: kinds, Programs: &observe.Programs{Revisions: revisions}, Writes: writes,
		Rollouts: &observe.Rollouts{Clock: options.Clock},
		Limits:   &observe.Limits{Namespaces: mgr.GetClient(), Live: mgr.GetAPIReader()},
		Objects: observe.NewObjects(objects, writes, options.Clock, func(name string) {
			namespaces.Add(false, name)
		}),
		Grants: &observe.Grants{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: options.Clock},
		Permissions: &observe.Permissions{
			WatchPermissions: contentrole.NewTemplateObjects(contentrole.Config{
				User: self, Client: live, Discovery: discoveryClient, Clock: options.Clock, Log: mgr.GetLogger(),
			}),
			Client: mgr.GetClient(), SystemNamespace: options.SystemNamespace,
		},
		ServiceAccounts: system, SystemNamespace: options.SystemNamespace, FullPassInterval: options.TemplateFullPass,
		Clock: options.Clock,
	}
	writer := &execute.Writer{
		Config: mgr.GetConfig(), Kinds: kinds, DryRuns: dryrun.New(contentrole.IsAggregated(live)),
		SystemNamespace: options.SystemNamespace,
	}
	status := &controller.TemplateReconciler{
		Client: mgr.GetClient(), Programs: observer.Programs, Observer: observer, Writes: writes, Clock: options.Clock,
		Rollouts: observer.Rollouts, Revisions: revisions, ServiceAccounts: system, Requests: templates,
		Namespaces: namespaces, Recorder: mgr.GetEventRecorder(reportingController), Exempt: options.exempt(),
		Authorizer: &authorization.Authorizer{
			Client: mgr.GetClient(), ServiceAccounts: system, DryRunner: writer, Revisions: revisions,
			SystemNamespace: options.SystemNamespace, Operator: permissions.SubjectOf(self), IsOperator: true,
			Clock: options.Clock,
		},
	}
	reconciler := &controller.TemplatedNamespaceReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Observer: observer, Programs: observer.Programs, Writes: writes,
		Rollouts: observer.Rollouts,
		Executor: &execute.Executor{
			Writer: writer, Permissions: observer.Permissions, Grants: observer.Grants, Writes: writes,
			Live: mgr.GetAPIReader(), SystemNamespace: options.SystemNamespace,
		},
		Clock:    options.ServerClock,
		Recorder: mgr.GetEventRecorder(reportingController),
		Exempt:   options.exempt(), Workers: options.TemplateWorkers, Requests: namespaces, Templates: templates,
	}
	observer.Sources = observe.NewSources(
		sources, mgr.GetClient(), options.SourceNamespace, reconciler.EnqueueCopiesOf)
	if err := status.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("failed to set up the template reconciler: %w", err)
	}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("failed to set up the reconciler of namespaces with templates: %w", err)
	}
	return validation.NewValidator(
		writer.ResourceOf, mgr.GetAPIReader(), discoveryClient.RESTClient(), options.SystemNamespace), nil
}
