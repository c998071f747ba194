// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/contentrole"
	"github.com/nslifecycle/nslifecycle/internal/controller"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/permissions"
)

func setupTemplates(mgr ctrl.Manager, options Options, self string) (*template.Validator, error) {
	discoveryClient, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("failed to create a discovery client: %w", err)
	}
	metadataClient, err := metadata.NewForConfigAndClient(metadata.ConfigFor(mgr.GetConfig()), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("failed to create a metadata client: %w", err)
	}
	cacheOptions := template.CacheOptions(options.SystemNamespace)
	cacheOptions.Scheme, cacheOptions.HTTPClient = mgr.GetScheme(), mgr.GetHTTPClient()
	objects, err := cache.New(mgr.GetConfig(), cacheOptions)
	if err != nil {
		return nil, fmt.Errorf("failed to create a cache for the objects of templates: %w", err)
	}
	if err := mgr.Add(objects); err != nil {
		return nil, fmt.Errorf("failed to add the cache for the objects of templates: %w", err)
	}
	namespaces, templates := &controller.Requests{}, &controller.Requests{}
	revisions := &template.Revisions{
		Client: mgr.GetClient(), Cached: objects, SystemNamespace: options.SystemNamespace,
	}
	programs, rollouts := &template.Programs{Revisions: revisions}, &template.Rollouts{}
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
	writer := template.NewWriter(mgr.GetConfig(), mapper, discoveryClient, options.SystemNamespace, options.Clock)
	applier := &template.Applier{
		Writer: writer, Programs: programs, Rollouts: rollouts, Clock: options.Clock,
		Recorder:        metrics.TemplateRecorder{},
		Objects:         template.NewObjects(objects, options.Clock, func(name string) { namespaces.Add(false, name) }),
		Grants:          &template.Grants{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: options.Clock},
		ServiceAccounts: objects, Namespaces: mgr.GetClient(), Live: mgr.GetAPIReader(),
		WatchPermissions: watchPermissions, SystemNamespace: options.SystemNamespace, FullPass: options.TemplateFullPass,
	}
	tracker := &template.Tracker{}
	status := &controller.TemplateReconciler{
		Client: mgr.GetClient(), Programs: programs, Applier: applier, Tracker: tracker, Clock: options.Clock,
		Revisions: revisions, Rollouts: rollouts, ServiceAccounts: objects, Requests: templates,
		Authorizer: &template.Authorizer{
			Client: mgr.GetClient(), ServiceAccounts: objects, Writer: writer, Revisions: revisions,
			SystemNamespace: options.SystemNamespace, Operator: permissions.SubjectOf(self), Clock: options.Clock,
		},
	}
	reconciler := &controller.TemplatedNamespaceReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Applier: applier, Tracker: tracker, Clock: options.ServerClock,
		Recorder:        mgr.GetEventRecorder(reportingController),
		ServiceAccounts: objects, SystemNamespace: options.SystemNamespace, Workers: options.TemplateWorkers,
		StatusChanged: status.StatusChanged, Requests: namespaces,
	}
	status.PlanChanged, status.Authorized = reconciler.EnqueueSelected, reconciler.EnqueueSelected
	applier.Sources = template.NewSources(writer, mgr.GetAPIReader(), metadataClient, options.Clock,
		func(source v1alpha1.TemplateCopy) { reconciler.EnqueueCopiesOf(source) })
	if err := mgr.Add(applier.Sources); err != nil {
		return nil, fmt.Errorf("failed to add the watches of sources: %w", err)
	}
	if err := status.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("failed to set up the template reconciler: %w", err)
	}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("failed to set up the reconciler of namespaces with templates: %w", err)
	}
	return template.NewValidator(writer, mgr.GetAPIReader(), options.SystemNamespace), nil
}
