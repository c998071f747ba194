// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// initializerRegistry provides the registrations of initializers, and records since when pending
// initializers have been deregistered. The zero value is ready to use. The registry is empty after
// a restart.
type initializerRegistry struct {
	lock sync.Mutex
	// registrations are cached until the generations of the configurations change. They are needed for
	// each initializing Namespace, and are expensive to compute if many initializers have large selectors.
	registrations map[string]initialization.Registration
	// generations identifies the configurations that the registrations were computed from.
	generations string
	// deregisteredSince has the names of initializers as keys.
	deregisteredSince map[string]time.Time
}

// update returns the registry for the cached configurations, and records since when pending
// initializers of a Namespace have been deregistered. If the Namespace does not wait for
// initializers, update returns an empty registry.
func (r *initializerRegistry) update(
	ctx context.Context, cached client.Reader, hasTemplates bool, namespace *corev1.Namespace, now time.Time,
) (initialization.Registry, error) {
	state := initialization.ParseState(namespace)
	if state.Phase != initialization.PhaseInitializing {
		return initialization.Registry{}, nil
	}
	var configurations v1alpha1.NamespaceInitializerConfigurationList
	if err := cached.List(ctx, &configurations, client.UnsafeDisableDeepCopy); err != nil {
		return initialization.Registry{}, fmt.Errorf("failed to list NamespaceInitializerConfigurations: %w", err)
	}
	return r.record(state.Pending, configurations.Items, hasTemplates, now), nil
}

// confirm returns the registry for the configurations in the API server. An initializer that they
// register is no longer recorded as deregistered.
func (r *initializerRegistry) confirm(
	ctx context.Context, live client.Reader, hasTemplates bool, cached initialization.Registry,
) (initialization.Registry, error) {
	var configurations v1alpha1.NamespaceInitializerConfigurationList
	if err := live.List(ctx, &configurations); err != nil {
		return initialization.Registry{}, fmt.Errorf("failed to list NamespaceInitializerConfigurations: %w", err)
	}
	confirmed := initialization.Registry{
		Registrations:     initialization.ComputeRegistrations(configurations.Items, hasTemplates),
		DeregisteredSince: cached.DeregisteredSince,
	}
	for name := range cached.DeregisteredSince {
		if _, ok := confirmed.Registrations[name]; ok {
			r.forget(name)
		}
	}
	return confirmed, nil
}

func (r *initializerRegistry) record(
	pending []string, configurations []v1alpha1.NamespaceInitializerConfiguration, hasTemplates bool, now time.Time,
) initialization.Registry {
	generations := initialization.Generations(configurations)
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.registrations == nil || r.generations != generations {
		r.generations, r.registrations = generations, initialization.ComputeRegistrations(configurations, hasTemplates)
	}
	for _, name := range pending {
		if _, ok := r.registrations[name]; ok {
			delete(r.deregisteredSince, name)
			continue
		}
		if r.deregisteredSince == nil {
			r.deregisteredSince = map[string]time.Time{}
		}
		if _, ok := r.deregisteredSince[name]; !ok {
			r.deregisteredSince[name] = now
		}
	}
	return initialization.Registry{
		Registrations: r.registrations, DeregisteredSince: maps.Clone(r.deregisteredSince),
	}
}

func (r *initializerRegistry) forget(name string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	delete(r.deregisteredSince, name)
}

// handler returns an event handler that enqueues all initializing Namespaces when a configuration
// changes. An initializer in the configuration is no longer recorded as deregistered, even if the
// configuration contains it only briefly.
func (r *initializerRegistry) handler(cached client.Reader) handler.EventHandler {
	return handlerFor(func(ctx context.Context, object client.Object, isDeleted bool, queue requestQueue) {
		configuration, ok := object.(*v1alpha1.NamespaceInitializerConfiguration)
		if !ok {
			return
		}
		if !isDeleted {
			for _, initializer := range configuration.Initializers {
				r.forget(initializer.Name)
			}
		}
		var waiting corev1.NamespaceList
		err := cached.List(ctx, &waiting, client.HasLabels{v1alpha1.LabelInitializing}, client.UnsafeDisableDeepCopy)
		if err != nil {
			log.FromContext(ctx).Error(err, "Failed to list initializing namespaces")
		}
		for i := range waiting.Items {
			queue.Add(requestFor(waiting.Items[i].Name))
		}
	})
}
