// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/contentrole"
	"github.com/nslifecycle/nslifecycle/internal/controller"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/template/authorization"
	"github.com/nslifecycle/nslifecycle/internal/template/execute"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
	"github.com/nslifecycle/nslifecycle/internal/template/permissions"
	"github.com/nslifecycle/nslifecycle/internal/template/validation"
)

// addTemplates adds the reconcilers of templates, and the webhook that validates them.
func addTemplates(_ context.Context, s *shared) error {
	s.cached = append(s.cached, &v1alpha1.NamespaceTemplate{})
	objects, err := s.addCache(observe.ObjectCacheOptions())
	if err != nil {
		return err
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfigAndClient(s.GetConfig(), s.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("failed to create a discovery client: %w", err)
	}
	sources, err := s.addCache(observe.SourceCacheOptions(s.SourceNamespace))
	if err != nil {
		return err
	}
	namespaces, templates := &controller.Requests{}, &controller.Requests{}
	live, err := s.newLiveClient(s.GetConfig(), s.GetHTTPClient())
	if err != nil {
		return err
	}
	writes := &observe.Writes{Clock: s.Clock}
	kinds := &observe.Kinds{
		Mapper:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoveryClient)),
		Discovery: discoveryClient, Clock: s.Clock,
	}
	observer := &observe.Observer{
		Kinds: kinds, Programs: &observe.Programs{Revisions: s.revisions}, Writes: writes,
		Rollouts: &observe.Rollouts{Clock: s.Clock},
		Limits:   &observe.Limits{Namespaces: s.GetClient(), Live: s.GetAPIReader()},
		Objects: observe.NewObjects(objects, writes, s.Clock, func(name string) {
			namespaces.Add(false, name)
		}),
		Grants: &observe.Grants{Client: s.GetClient(), Live: s.GetAPIReader(), Clock: s.Clock},
		Permissions: &observe.Permissions{
			WatchPermissions: contentrole.NewTemplateObjects(contentrole.Config{
				User: s.self, Client: live, Discovery: discoveryClient, Clock: s.Clock, Log: s.GetLogger(),
			}),
			Client: s.GetClient(), SystemNamespace: s.SystemNamespace,
		},
		ServiceAccounts: s.system, SystemNamespace: s.SystemNamespace, FullPassInterval: s.TemplateFullPass,
		Clock: s.Clock, ServerClock: s.ServerClock,
	}
	writer := &execute.Writer{
		Config: s.GetConfig(), Kinds: kinds, DryRuns: dryrun.New(contentrole.IsAggregated(live)),
		SystemNamespace: s.SystemNamespace,
	}
	status := &controller.TemplateReconciler{
		Client: s.GetClient(), Programs: observer.Programs, Observer: observer, Writes: writes, Clock: s.Clock,
		ServerClock: s.ServerClock, Rollouts: observer.Rollouts, Revisions: s.revisions, ServiceAccounts: s.system,
		Requests: templates, Namespaces: namespaces, Recorder: s.recorder(), Exempt: s.exempt(),
		Authorizer: &authorization.Authorizer{
			Client: s.GetClient(), ServiceAccounts: s.system, DryRunner: writer, Revisions: s.revisions,
			SystemNamespace: s.SystemNamespace, Operator: permissions.SubjectOf(s.self), IsOperator: true,
			Clock: s.Clock,
		},
	}
	reconciler := &controller.TemplatedNamespaceReconciler{
		Client: s.GetClient(), Live: s.GetAPIReader(), Observer: observer, Programs: observer.Programs, Writes: writes,
		Rollouts: observer.Rollouts,
		Executor: &execute.Executor{
			Writer: writer, Permissions: observer.Permissions, Grants: observer.Grants, Writes: writes,
			Live: s.GetAPIReader(), SystemNamespace: s.SystemNamespace,
		},
		ServerClock: s.ServerClock,
		Recorder:    s.recorder(),
		Exempt:      s.exempt(), Workers: s.TemplateWorkers, Requests: namespaces, Templates: templates,
	}
	observer.Sources = observe.NewSources(
		sources, s.GetClient(), s.SourceNamespace, reconciler.EnqueueCopiesOf)
	if err := errors.Join(status.SetupWithManager(s), reconciler.SetupWithManager(s)); err != nil || s.server == nil {
		return err
	}
	validation.NewValidator(
		writer.ResourceOf, s.GetAPIReader(), discoveryClient.RESTClient(), s.SystemNamespace).Register(s.server)
	return nil
}
