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
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/template/apply"
	"github.com/nslifecycle/nslifecycle/internal/template/authorization"
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

// setupTemplates adds the reconcilers of templates. The cache has the options that apply.SystemCacheOptions returns.
func setupTemplates(
	mgr ctrl.Manager, options Options, self string, system cache.Cache, revisions *apply.Revisions,
) (*validation.Validator, error) {
	objects, err := addCache(mgr, apply.ObjectCacheOptions())
	if err != nil {
		return nil, err
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("failed to create a discovery client: %w", err)
	}
	sources, err := addCache(mgr, apply.SourceCacheOptions(options.SourceNamespace))
	if err != nil {
		return nil, err
	}
	namespaces, templates := &controller.Requests{}, &controller.Requests{}
	programs, records := &apply.Programs{Revisions: revisions}, &apply.Records{Clock: options.Clock}
	live, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return nil, fmt.Errorf("failed to create a client without a cache: %w", err)
	}
	watchPermissions := contentrole.NewTemplateObjects(contentrole.Config{
		User: self, Client: live, Discovery: discoveryClient, Clock: options.Clock, Log: mgr.GetLogger(),
	})
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoveryClient))
	writer := apply.NewWriter(mgr.GetConfig(), mapper, discoveryClient, options.SystemNamespace, options.Clock,
		dryrun.New(contentrole.IsAggregated(live)))
	applier := &apply.Applier{
		Writer: writer, Programs: programs, Records: records, Clock: options.Clock,
		Recorder: metrics.TemplateRecorder{},
		Limits:   &apply.Limits{Records: records, Namespaces: mgr.GetClient(), Live: mgr.GetAPIReader()},
		Objects: apply.NewObjects(objects, records, options.Clock, func(name string) {
			namespaces.Add(false, name)
		}),
		Grants:          &apply.Grants{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: options.Clock},
		ServiceAccounts: system, Live: mgr.GetAPIReader(),
		WatchPermissions: watchPermissions, SystemNamespace: options.SystemNamespace, FullPass: options.TemplateFullPass,
	}
	status := &controller.TemplateReconciler{
		Client: mgr.GetClient(), Programs: programs, Applier: applier, Records: records, Clock: options.Clock,
		Revisions: revisions, ServiceAccounts: system, Requests: templates, Namespaces: namespaces,
		Recorder: mgr.GetEventRecorder(reportingController), Exempt: options.exempt(),
		Authorizer: &authorization.Authorizer{
			Client: mgr.GetClient(), ServiceAccounts: system, DryRunner: writer, Revisions: revisions,
			SystemNamespace: options.SystemNamespace, Operator: permissions.SubjectOf(self), IsOperator: true,
			Clock: options.Clock,
		},
	}
	reconciler := &controller.TemplatedNamespaceReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Applier: applier, Programs: programs, Records: records,
		Clock:           options.ServerClock,
		Recorder:        mgr.GetEventRecorder(reportingController),
		ServiceAccounts: system, Exempt: options.exempt(), Workers: options.TemplateWorkers,
		Requests: namespaces, Templates: templates,
	}
	applier.Sources = apply.NewSources(
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
